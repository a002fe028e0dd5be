//! What `/status` tells, and what `/ready` and `/healthz` answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clean::table::{ProcEntry, ProcTable};
use crate::cluster::{Permissions, REMEDY};
use crate::log;
use crate::plan::CleanupState;
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
            .map(|class| class_json(class, &cleanups, &self.table))
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
    match cleanup.cleanup.state {
        CleanupState::Waiting { .. } | CleanupState::Blocked { .. } => VolumeState::Waiting,
        CleanupState::Wiping | CleanupState::JobRunning { .. } | CleanupState::Wiped { .. } => {
            VolumeState::Cleaning
        }
        CleanupState::Released => VolumeState::Cleaned,
        CleanupState::Failed { .. } => VolumeState::CleaningFailed,
    }
}

fn class_json(
    class: &ClassReport,
    cleanups: &BTreeMap<String, ProcEntry>,
    table: &ProcTable,
) -> Value {
    let mut value = json!(class);
    if let Some(volumes) = value["volumes"].as_array_mut() {
        for volume in volumes {
            let pv = volume["pv"].as_str();
            if let Some(cleanup) = pv.and_then(|pv| cleanups.get(pv)) {
                volume["cleanup"] = json!(Cleanup::of(cleanup, table));
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

impl Cleanup {
    fn of(entry: &ProcEntry, table: &ProcTable) -> Self {
        let elapsed = entry.lasted(table);
        let pace = entry.progress.pace(elapsed);
        // Any other state has another beginning.
        let (mut job, mut waiting_for, mut retry, mut release_error) = (None, None, None, None);
        let state = match &entry.cleanup.state {
            CleanupState::Waiting { reason, job: of } => {
                job.clone_from(of);
                waiting_for = Some(reason.clone());
                "Waiting"
            }
            CleanupState::Blocked { reason, .. } => {
                waiting_for = Some(reason.clone());
                "Waiting"
            }
            CleanupState::Wiping => "Running",
            CleanupState::JobRunning { job: at_work } => {
                job = Some(at_work.clone());
                "Running"
            }
            CleanupState::Wiped { error, .. } => {
                release_error.clone_from(error);
                "Running"
            }
            CleanupState::Released => "Succeeded",
            CleanupState::Failed {
                retry_at, lasts, ..
            } => {
                let left = retry_at.saturating_sub(table.now()).as_secs();
                retry = (!lasts).then_some(left);
                "Failed"
            }
        };
        let running = state == "Running";
        Self {
            state,
            attempts: entry.attempts(),
            seconds: elapsed.as_secs(),
            progress: pace.ratio(),
            entries_removed: pace.entries,
            bytes_wiped: pace.bytes_done,
            rate: pace.rate().filter(|_| running),
            eta: pace
                .left()
                .filter(|_| running)
                .map(|left| left.as_secs_f64()),
            job,
            waiting_for,
            last_error: release_error.or_else(|| entry.last_error.clone()),
            retry_in_seconds: retry,
        }
    }
}
