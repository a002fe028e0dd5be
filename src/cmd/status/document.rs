//! The part of the `/status` document that this command shows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::config::duration;
use crate::wipe::pace::{amount, rate};

/// The version of the document that this program knows.
const VERSION: u64 = 1;
/// A longer wait is a problem.
const LONG_WAIT_SECONDS: u64 = 600;
/// The error for the answer of another program or version.
const NOT_A_STATUS: &str = "the answer is not the status of a provisioner of this version";

/// The document of one node. Unknown fields are ignored, and missing ones are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Document {
    pub node: String,
    pub ready: bool,
    pub not_ready: Vec<String>,
    pub degraded: Vec<String>,
    pub paused: bool,
    pub classes: Vec<Class>,
    /// The whole document.
    #[serde(skip)]
    pub received: Value,
}

/// One class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Class {
    pub name: String,
    pub ready: bool,
    pub faults: Vec<String>,
    pub volumes: Vec<Volume>,
}

/// One volume, or a skipped entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub entry: String,
    pub pv: Option<String>,
    pub phase: Option<String>,
    pub capacity: Option<u64>,
    pub state: String,
    pub reason: Option<String>,
    pub detail: Option<String>,
    pub cleanup: Option<Cleanup>,
}

/// The progress of a cleanup.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cleanup {
    pub state: String,
    pub attempts: u32,
    pub seconds: u64,
    pub progress: Option<f64>,
    pub entries_removed: u64,
    pub bytes_wiped: u64,
    pub rate: Option<f64>,
    pub eta: Option<f64>,
    pub job: Option<String>,
    pub waiting_for: Option<String>,
    pub last_error: Option<String>,
    pub retry_in_seconds: Option<u64>,
}

impl Document {
    /// Parses an answer.
    ///
    /// # Errors
    /// When it comes from another program or has another version.
    pub fn read(answer: &str) -> Result<Self> {
        let received: Value = serde_json::from_str(answer).context(NOT_A_STATUS)?;
        let version = &received["schemaVersion"];
        ensure!(
            *version == VERSION,
            "{NOT_A_STATUS}: its schemaVersion is {version}, not {VERSION}"
        );
        let document = Self::deserialize(&received).context(NOT_A_STATUS)?;
        Ok(Self {
            received,
            ..document
        })
    }

    /// Whether the node is ready and not degraded, which decides the exit code.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.ready && self.degraded.is_empty()
    }

    /// Why the node is not well, and the volumes that require an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let reasons = self.not_ready.iter().chain(&self.degraded).cloned();
        let volumes = self.classes.iter().flat_map(|class| &class.volumes);
        let volumes = volumes.filter(|volume| volume.is_problem());
        reasons
            .chain(volumes.map(|volume| format!("{} {}", volume.entry, volume.state)))
            .collect()
    }
}

impl Volume {
    /// Whether an operator must act. An unknown state counts as a problem, so that it is never hidden.
    #[must_use]
    pub fn is_problem(&self) -> bool {
        let waits = self.cleanup.as_ref().map_or(0, |cleanup| cleanup.seconds);
        match (self.state.as_str(), self.reason.as_deref()) {
            ("Waiting", _) => waits >= LONG_WAIT_SECONDS,
            ("Skipped", reason) => {
                !matches!(reason, Some("NamePatternMismatch" | "CleanupRunning"))
            }
            (state, _) => ![
                "Available",
                "Bound",
                "Retained",
                "Creating",
                "Due",
                "Cleaning",
                "Cleaned",
                "Paused",
                "Terminating",
            ]
            .contains(&state),
        }
    }

    /// The reason, a description of its cleanup, and the detail.
    #[must_use]
    pub fn what(&self) -> String {
        let cleanup = self.cleanup.as_ref().map(Cleanup::description);
        let in_cleanup = |detail: &String| cleanup.as_ref().is_some_and(|it| it.contains(detail));
        let detail = self.detail.clone().filter(|detail| !in_cleanup(detail));
        let parts = [self.reason.clone(), cleanup, detail];
        let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(": ")
    }
}

impl Cleanup {
    fn description(&self) -> String {
        match (self.state.as_str(), &self.waiting_for, &self.job) {
            ("Waiting", reason, _) => format!("waiting: {}", reason.as_deref().unwrap_or("-")),
            ("Running", _, Some(job)) => format!("by Job {job}"),
            ("Running", _, None) => self.pace(),
            ("Succeeded", ..) => "clean".into(),
            _ => {
                let error = self.last_error.as_deref().unwrap_or("-");
                let retry = self.retry_in_seconds.map(time);
                let retry = retry.map(|time| format!("; next try in {time}"));
                let retry = retry.unwrap_or_default();
                format!("attempt {} failed: {error}{retry}", self.attempts)
            }
        }
    }

    fn pace(&self) -> String {
        // Rounded down, so that only a complete wipe shows 100 %.
        let percent = self.progress.map(|ratio| (100.0 * ratio).floor());
        let left = self.eta.map(Duration::try_from_secs_f64);
        let left = left.and_then(Result::ok).map(|left| time(left.as_secs()));
        let parts = [
            percent.map(|percent| format!("{percent} %")),
            (self.bytes_wiped > 0).then(|| format!("{} wiped", amount(self.bytes_wiped))),
            (self.entries_removed > 0).then(|| format!("{} entries removed", self.entries_removed)),
            self.rate.map(rate),
            left.map(|left| format!("{left} left")),
        ];
        let parts = parts.into_iter().flatten();
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// A duration as in the configuration.
#[must_use]
pub fn time(seconds: u64) -> String {
    duration::format(Duration::from_secs(seconds))
}
