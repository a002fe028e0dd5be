//! The part of the `/status` document that this command shows.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::wipe::pace::{amount, rate};

/// The version of the document that this program knows.
const VERSION: u64 = 1;
/// A longer wait is a problem.
const LONG_WAIT_SECONDS: u64 = 600;
/// The error for the answer of another program.
pub const NOT_A_STATUS: &str =
    "the answer is not the status of a provisioner; does another program listen there?";

/// The document of one node. Unknown fields are ignored, and missing ones are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Document {
    pub node: String,
    pub ready: bool,
    pub not_ready: Vec<String>,
    pub degraded: Vec<String>,
    pub paused: bool,
    pub log_level: Option<String>,
    pub classes: Vec<Class>,
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

/// Whether an operator must act; the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// An operator must act.
    Trouble,
    /// Work is in progress.
    Busy,
    /// No action is required.
    Calm,
}

impl Document {
    /// Parses an answer.
    ///
    /// # Errors
    /// When it comes from another program or has another version.
    pub fn read(answer: &Value) -> Result<Self> {
        match answer["schemaVersion"].as_u64() {
            Some(VERSION) => Self::deserialize(answer).context(NOT_A_STATUS),
            Some(found) => bail!(
                "the answer has version {found} of the document, and this program knows {VERSION}: use the program of the same version as the provisioner (kubectl exec POD -- /local-volume-provisioner status)"
            ),
            None => bail!("{NOT_A_STATUS} (it has no schemaVersion)"),
        }
    }

    /// Whether the node is ready and not degraded, which decides the exit code.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.ready && self.degraded.is_empty()
    }

    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.classes.iter().flat_map(|class| &class.volumes)
    }

    /// The number of volumes that require an operator.
    #[must_use]
    pub fn troubles(&self) -> usize {
        self.volumes()
            .filter(|volume| volume.concern() == Concern::Trouble)
            .count()
    }
}

impl Volume {
    /// Whether an operator must act. An unknown state counts as trouble, so that it is never hidden.
    #[must_use]
    pub fn concern(&self) -> Concern {
        let waits = self.cleanup.as_ref().map_or(0, |cleanup| cleanup.seconds);
        match (self.state.as_str(), self.reason.as_deref()) {
            ("Available" | "Bound" | "Retained", _) | ("Skipped", Some("NamePatternMismatch")) => {
                Concern::Calm
            }
            ("Waiting", _) if waits >= LONG_WAIT_SECONDS => Concern::Trouble,
            (
                "Creating" | "Due" | "Waiting" | "Cleaning" | "Cleaned" | "Paused" | "Terminating",
                _,
            )
            | ("Skipped", Some("CleanupRunning")) => Concern::Busy,
            _ => Concern::Trouble,
        }
    }

    /// The age of the state of its cleanup.
    #[must_use]
    pub fn since(&self) -> Option<String> {
        self.cleanup.as_ref().map(|cleanup| age(cleanup.seconds))
    }

    /// A description of its cleanup, reason and detail.
    #[must_use]
    pub fn what(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.cleanup.as_ref().map(Cleanup::description));
        let detail = self.detail.as_deref().unwrap_or_default();
        if !parts.iter().any(|part| part.contains(detail)) {
            parts.push(detail.into());
        }
        let text = parts.join("; ");
        match &self.reason {
            Some(reason) if text.is_empty() => reason.clone(),
            Some(reason) => format!("{reason}: {text}"),
            None => text,
        }
    }
}

impl Cleanup {
    fn description(&self) -> String {
        match self.state.as_str() {
            "Waiting" => match &self.waiting_for {
                Some(reason) => format!("waiting: {reason}"),
                None => "waiting".into(),
            },
            "Running" => match &self.job {
                Some(job) => format!("by Job {job}"),
                None => self.pace(),
            },
            "Succeeded" => "clean".into(),
            _ => {
                let error = self.last_error.as_ref().map(|error| format!(": {error}"));
                let retry = match self.retry_in_seconds {
                    Some(0) => "; the next try is due".to_owned(),
                    Some(seconds) => format!("; next try in {}", age(seconds)),
                    None => String::new(),
                };
                let error = error.unwrap_or_default();
                format!("attempt {} failed{error}{retry}", self.attempts)
            }
        }
    }

    fn pace(&self) -> String {
        let mut parts = Vec::new();
        if let Some(ratio) = self.progress {
            // Rounded down, so that only a complete wipe shows 100 %.
            let percent = (100.0 * ratio).floor();
            parts.push(format!("{percent} % ({})", amount(self.bytes_wiped)));
        } else if self.bytes_wiped > 0 {
            parts.push(format!("{} wiped", amount(self.bytes_wiped)));
        }
        if self.entries_removed > 0 {
            parts.push(format!("{} entries removed", self.entries_removed));
        }
        parts.extend(self.rate.map(rate));
        let left = self
            .eta
            .and_then(|eta| Duration::try_from_secs_f64(eta).ok());
        parts.extend(left.map(|left| format!("{} left", age(left.as_secs()))));
        if parts.is_empty() {
            "begun".into()
        } else {
            parts.join(", ")
        }
    }
}

/// A duration in up to two units: `42s`, `12m`, `5h12m`, `3d4h`.
fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if days > 1 => format!("{days}d{}h", hours % 24),
        () if hours > 0 => format!("{hours}h{}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m"),
        () => format!("{seconds}s"),
    }
}
