//! The document of `/status`, and the answers of `/ready` and `/healthz`.
//!
//! They require no authentication, so they have no text that a tenant chose, such as the name of a file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cleanup::table::{ProcEntry, ProcTable};
use crate::cluster::{Origin, Permissions, REMEDY};
use crate::escape::{each_text, without_tenants, without_uuids};
use crate::host::mark::StateDir;
use crate::log::{self, printable};
use crate::plan::{ClassReport, CleanupState, VolumeState};

/// The outcome of the latest pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// The node's name.
    pub node: String,
    /// Why the node is not ready; empty when it is.
    pub not_ready: Vec<String>,
    /// What does not work as configured while the node still serves.
    pub degraded: Vec<String>,
    /// The protections of volumes that are off.
    pub unprotected: Vec<String>,
    /// Whether cleanups are paused on the whole node.
    pub paused: bool,
    /// The classes with their volumes.
    pub classes: Vec<ClassReport>,
    /// When the pass ended; `None` before the first one.
    pub ended: Option<Instant>,
    /// The number of passes so far, this one included.
    pub number: u64,
    /// The largest resourceVersion of the PVs that the pass has seen.
    pub resource_version: u64,
}

/// The state that the HTTP server reads.
#[derive(Clone, Debug)]
pub struct Status {
    /// The latest pass.
    pub pass: watch::Receiver<Arc<Pass>>,
    /// The cleanups, live.
    pub table: Arc<ProcTable>,
    /// The missing permissions.
    pub permissions: Arc<Permissions>,
    /// Which cluster answers.
    pub origin: Arc<Origin>,
    /// The longest pass of a healthy loop.
    pub pass_timeout: Duration,
    /// The marks. A container sees another directory at this path only when it starts.
    pub state: StateDir,
}

impl Status {
    /// Whether the latest pass ended within [`Self::pass_timeout`], and the state directory is there.
    ///
    /// # Errors
    /// The reason why not.
    pub fn healthy(&self) -> Result<(), String> {
        self.state.check().map_err(|lost| lost.to_string())?;
        let ended = self.pass.borrow().ended;
        match ended.map(|ended| ended.elapsed()) {
            None => Err("the first pass of the main loop has not ended yet".into()),
            Some(silence) if silence > self.pass_timeout => {
                Err(format!("the main loop has not ended a pass for {}s", silence.as_secs()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether every class was read and every eligible volume has a PV.
    ///
    /// # Errors
    /// The reasons why not, one per line.
    pub fn ready(&self) -> Result<(), String> {
        self.healthy()?;
        let reasons: Vec<_> = self.not_ready().iter().map(|reason| public(reason)).collect();
        reasons.is_empty().then_some(()).ok_or(reasons.join("\n"))
    }

    fn not_ready(&self) -> Vec<String> {
        let other = self.origin.other().into_iter();
        other.chain(self.pass.borrow().not_ready.clone()).collect()
    }

    /// The document of `/status`.
    pub fn document(&self) -> Value {
        let pass = Arc::clone(&self.pass.borrow());
        let (mut classes, cleanups) = (pass.classes.clone(), self.table.by_pv());
        for volume in classes.iter_mut().flat_map(|class| &mut class.volumes) {
            let Some(cleanup) = volume.pv.as_ref().and_then(|pv| cleanups.get(pv)) else {
                continue;
            };
            let (cleanup_state, state) = states(&cleanup.cleanup.state);
            volume.cleanup = Some(cleanup_json(cleanup_state, cleanup, &self.table));
            // These states change without a pass.
            if let VolumeState::Due | VolumeState::Waiting | VolumeState::Cleaning = volume.state {
                volume.state = state;
            }
        }
        let missing = self.permissions.missing().into_iter();
        let missing = missing.map(|missing| format!("{missing}; {REMEDY}"));
        let missing = missing.chain(self.origin.other());
        let degraded: Vec<_> = pass.degraded.iter().cloned().chain(missing).collect();
        let mut document = json!({
            "schemaVersion": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "node": pass.node,
            "ready": self.ready().is_ok(),
            "notReady": self.not_ready(),
            "degraded": degraded,
            "unprotected": pass.unprotected,
            "paused": pass.paused,
            "pass": { "number": pass.number, "resourceVersion": pass.resource_version.to_string() },
            "logLevel": log::level(),
            "classes": classes,
        });
        each_text(&mut document, &|text| *text = public(text));
        document
    }
}

/// A text without what tenants chose, what makes a copy of a disk pass for it, and control characters.
fn public(text: &str) -> String {
    printable(&without_uuids(&without_tenants(text)))
}

/// The state of a cleanup in `/status`, and the matching state of its volume.
fn states(state: &CleanupState) -> (&'static str, VolumeState) {
    match state {
        CleanupState::Waiting { .. } | CleanupState::Blocked { .. } => {
            ("Waiting", VolumeState::Waiting)
        }
        CleanupState::Wiping | CleanupState::JobRunning { .. } | CleanupState::Wiped { .. } => {
            ("Running", VolumeState::Cleaning)
        }
        CleanupState::Released => ("Succeeded", VolumeState::Cleaned),
        CleanupState::Failed { .. } => ("Failed", VolumeState::CleaningFailed),
    }
}

/// The progress of a cleanup. Fields that do not apply are null. Times are in seconds, rates in bytes a second.
fn cleanup_json(state: &str, entry: &ProcEntry, table: &ProcTable) -> Value {
    let elapsed = entry.lasted(table);
    let pace = entry.progress.pace(elapsed);
    let running = state == "Running";
    let (mut job, mut waiting_for, mut retry, mut release_error) = (None, None, None, None);
    match &entry.cleanup.state {
        CleanupState::Waiting { reason, job: of } => {
            (job, waiting_for) = (of.as_ref(), Some(reason));
        }
        CleanupState::Blocked { reason, .. } => waiting_for = Some(reason),
        CleanupState::JobRunning { job: of } => job = Some(of),
        CleanupState::Wiped { error, .. } => release_error = error.as_ref(),
        CleanupState::Failed { retry_at, .. } if *retry_at < Duration::MAX => {
            retry = Some(retry_at.saturating_sub(table.now()).as_secs());
        }
        CleanupState::Wiping | CleanupState::Released | CleanupState::Failed { .. } => {}
    }
    json!({
        "state": state,
        "attempts": entry.attempts(),
        "seconds": elapsed.as_secs(),
        "progress": pace.ratio(),
        "entriesRemoved": pace.entries,
        "bytesWiped": pace.bytes_done,
        "bytesTotal": pace.bytes_total,
        "rate": pace.rate().filter(|_| running),
        "eta": pace.left().filter(|_| running).map(|left| left.as_secs_f64()),
        "job": job,
        "waitingFor": waiting_for,
        "lastError": release_error.or(entry.last_error.as_ref()),
        "retryInSeconds": retry,
    })
}
