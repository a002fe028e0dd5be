//! What `/status` tells, and what `/ready` and `/healthz` answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clean::table::{ProcEntry, ProcState, ProcTable};
use crate::cluster::{Permissions, REMEDY};
use crate::host::users::Blind;
use crate::log;
use crate::plan::{ClassReport, VolumeState};

/// The outcome of the latest pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// The node's name.
    pub node: String,
    /// Why the node is not ready; empty when it is.
    pub not_ready: Vec<String>,
    /// What does not work as configured, though the node serves.
    pub degraded: Vec<String>,
    /// Whether cleaning is paused on the whole node.
    pub paused: bool,
    /// The classes with their volumes.
    pub classes: Vec<ClassReport>,
    /// When it ended; none before the first one has.
    pub ended: Option<Instant>,
    /// How many passes have ended, this one included.
    pub number: u64,
    /// The largest resourceVersion of the PVs that it was made with.
    pub resource_version: u64,
}

/// All that the HTTP server answers from.
#[derive(Clone, Debug)]
pub struct Status {
    /// The latest pass.
    pub pass: watch::Receiver<Arc<Pass>>,
    /// The cleanups, live.
    pub table: Arc<ProcTable>,
    /// The rights that are missing.
    pub permissions: Arc<Permissions>,
    /// Whether the processes of the host are seen that may use a volume, or why not.
    pub sight: Result<(), Blind>,
    /// How long the loop may be silent before it counts as dead.
    pub patience: Duration,
}

impl Status {
    /// Whether the loop has made a pass and goes on making them.
    ///
    /// # Errors
    /// Why not.
    pub fn healthy(&self) -> Result<(), String> {
        let ended = self.pass.borrow().ended;
        match ended.map(|ended| ended.elapsed()) {
            None => Err("the first pass of the main loop has not ended yet".into()),
            Some(silence) if silence > self.patience => Err(format!(
                "the main loop has not ended a pass for {}s",
                silence.as_secs()
            )),
            Some(_) => Ok(()),
        }
    }

    /// Whether every class was read and every eligible volume has a PV.
    ///
    /// # Errors
    /// Why not, a line for each reason.
    pub fn ready(&self) -> Result<(), String> {
        self.healthy()?;
        let reasons = self.pass.borrow().not_ready.join("\n");
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons)
        }
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> Value {
        let pass = Arc::clone(&self.pass.borrow());
        let cleanups = self.table.by_pv();
        let classes: Vec<_> = pass
            .classes
            .iter()
            .map(|class| class_json(class, &cleanups))
            .collect();
        let missing = self.permissions.missing();
        let rights = missing
            .iter()
            .map(|(resource, verb, why)| format!("no right to {verb} {resource}: {why}; {REMEDY}"));
        let degraded: Vec<_> = pass.degraded.iter().cloned().chain(rights).collect();
        json!({
            "schemaVersion": 1,
            "node": pass.node,
            "ready": self.ready().is_ok(),
            "notReady": pass.not_ready,
            "degraded": degraded,
            "paused": pass.paused,
            "pass": { "number": pass.number, "resourceVersion": pass.resource_version.to_string() },
            "logLevel": log::level().map(|level| level.to_string()),
            "hostProcesses": match self.sight {
                Ok(()) => "seen".to_owned(),
                Err(blind) => format!("not seen: {blind}"),
            },
            "classes": classes,
        })
    }
}

/// What a pass says of a volume that it has sent to be cleaned, or that is being cleaned.
const DUE: [VolumeState; 3] = [
    VolumeState::Due,
    VolumeState::Waiting,
    VolumeState::Cleaning,
];

fn state_of(cleanup: &ProcEntry) -> VolumeState {
    match cleanup.state {
        ProcState::Waiting(_) => VolumeState::Waiting,
        ProcState::Running => VolumeState::Cleaning,
        ProcState::Succeeded => VolumeState::Cleaned,
        ProcState::Failed { .. } => VolumeState::CleaningFailed,
    }
}

fn class_json(class: &ClassReport, cleanups: &BTreeMap<String, ProcEntry>) -> Value {
    let mut value = json!(class);
    if let Some(volumes) = value["volumes"].as_array_mut() {
        for volume in volumes {
            let pv = volume["pv"].as_str();
            if let Some(cleanup) = pv.and_then(|pv| cleanups.get(pv)) {
                volume["cleanup"] = json!(Cleanup::from(cleanup));
                // It has gone on since the pass, and no pass is made for that.
                if DUE.iter().any(|state| volume["state"] == json!(state)) {
                    volume["state"] = json!(state_of(cleanup));
                }
            }
        }
    }
    value
}

/// How far a cleanup is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cleanup {
    state: &'static str,
    attempts: u32,
    /// Seconds since the state began.
    seconds: u64,
    /// From 0 to 1, where the end is known.
    progress: Option<f64>,
    entries_removed: u64,
    bytes_wiped: u64,
    /// Bytes in a second, on average.
    rate: Option<f64>,
    /// Seconds that are left at that rate.
    eta: Option<f64>,
    /// The Job that cleans, `namespace/name`.
    job: Option<String>,
    waiting_for: Option<String>,
    last_error: Option<String>,
    retry_in_seconds: Option<u64>,
}

impl From<&ProcEntry> for Cleanup {
    fn from(entry: &ProcEntry) -> Self {
        let elapsed = entry.since.elapsed();
        let pace = entry.progress.pace(elapsed);
        // Any other state has another beginning.
        let running = entry.state == ProcState::Running;
        let (state, waiting_for, retry) = match &entry.state {
            ProcState::Waiting(what) => ("Waiting", Some(what.clone()), None),
            ProcState::Running => ("Running", None, None),
            ProcState::Succeeded => ("Succeeded", None, None),
            ProcState::Failed { retry_at, .. } => {
                let left = retry_at.saturating_duration_since(Instant::now()).as_secs();
                ("Failed", None, (!entry.lasts).then_some(left))
            }
        };
        Self {
            state,
            attempts: entry.attempts,
            seconds: elapsed.as_secs(),
            progress: pace.ratio(),
            entries_removed: pace.entries,
            bytes_wiped: pace.bytes_done,
            rate: pace.rate().filter(|_| running),
            eta: pace
                .left()
                .filter(|_| running)
                .map(|left| left.as_secs_f64()),
            job: entry.job.clone(),
            waiting_for,
            last_error: entry
                .release_error
                .as_ref()
                .or(entry.last_error.as_ref())
                .cloned(),
            retry_in_seconds: retry,
        }
    }
}
