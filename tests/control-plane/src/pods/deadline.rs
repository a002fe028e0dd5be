//! `activeDeadlineSeconds`: how long a pod may be on its node.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use serde_json::Value;

use crate::controllers::object::text;

pub(super) const REASON: &str = "DeadlineExceeded";
pub(super) const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// When the pod has had its time; `None` before it has started, and for one that has all the time.
pub(super) fn of(pod: &Value) -> Option<Instant> {
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_u64()?;
    let started: Timestamp = text(&pod["status"]["startTime"]).parse().ok()?;
    let gone = Timestamp::now().duration_since(started);
    let gone = Duration::try_from(gone).unwrap_or_default();
    Some(Instant::now() + Duration::from_secs(seconds).saturating_sub(gone))
}
