//! `activeDeadlineSeconds`: how long a pod may be on its node.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::controllers::object::text;

pub(super) const REASON: &str = "DeadlineExceeded";
pub(super) const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// A pod's time, which is counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadline {
    seconds: u64,
    pub(super) due: Instant,
}

impl Deadline {
    /// `known` stays as it is, unless the pod has got another time since; `None` before it has
    /// started, and for one that has all the time.
    pub(super) fn of(pod: &Value, known: Option<Self>) -> Option<Self> {
        let seconds = pod["spec"]["activeDeadlineSeconds"].as_u64()?;
        if known.is_some_and(|known| known.seconds == seconds) {
            return known;
        }
        let started: Timestamp = text(&pod["status"]["startTime"]).parse().ok()?;
        let gone = Timestamp::now().duration_since(started);
        let gone = Duration::try_from(gone).unwrap_or_default();
        // The status knows the second in which it started; nobody shall lose the rest of it.
        let left = Duration::from_secs(seconds.saturating_add(1)).saturating_sub(gone);
        let due = Instant::now() + left.min(Duration::from_secs(seconds));
        Some(Self { seconds, due })
    }
}
