//! Cleaning released volumes.
//!
//! An [`attempt`] is a chain of types. [`commit`] passes the [`gate`] and returns a [`Commit`] with the locked volume.
//! Only with a commit can a volume be wiped, and only a wipe returns a [`release::Wiped`], which the [`release`]
//! requires. So no step can be skipped.
//!
//! The cleaners themselves ([`crate::wipe`]) do not know Kubernetes. The `clean` command calls them through
//! [`wipe`], with the same checks.

pub mod attempt;
pub(crate) mod blocking;
pub mod commit;
pub(crate) mod external;
mod format;
pub mod gate;
mod host;
pub(crate) mod inspect;
mod intake;
pub mod job;
pub(crate) mod mark;
pub(crate) mod monitor;
pub(crate) mod path_owner;
pub(crate) mod pods;
pub mod release;
pub mod table;
pub(crate) mod volume;
pub mod wipe;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::cluster::Cluster;
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::names::is_link;
use crate::plan::job_object::JobSource;
use crate::plan::{Occupied, Settings, reasons};
use crate::report::Reporter;
use crate::view::NodeView;

use table::ProcTable;

pub use commit::Commit;
pub use host::{
    BoxedVolume, CleanVolume, Cleaning, Host, KubeletUses, LocalHost, Lock, LockedVolume, Look,
    Marking, PassFacts,
};
pub use inspect::Obstacle;
pub(crate) use path_owner::path_owner;

/// The latest state of the main loop, for the gate.
#[derive(Clone, Debug)]
pub struct ControllerState {
    /// The configuration.
    pub settings: Settings,
    /// Our Node.
    pub node: NodeView,
    /// The storage that other PVs and uses occupy.
    pub occupied: Arc<Occupied>,
}

impl ControllerState {
    /// Whether cleaning is paused on the whole node.
    pub fn is_paused(&self) -> bool {
        self.settings.config.pause_cleaning || self.node.paused
    }
}

/// The clients and state that every cleanup uses.
#[derive(Debug)]
pub struct CleanupContext {
    /// The API server.
    pub cluster: Cluster,
    /// The latest state of the main loop.
    pub state: watch::Receiver<ControllerState>,
    /// The machine.
    pub host: Arc<dyn Host>,
    /// How long to wait after a release if the kubelet's directory is not visible.
    pub quiet_period: Duration,
    /// The state of each cleanup.
    pub table: Arc<ProcTable>,
    /// Wakes the main loop after a cleanup or a write.
    pub wake: Arc<Notify>,
    /// For events.
    pub reporter: Reporter,
    /// For counters.
    pub metrics: Arc<Metrics>,
    /// For cleaning by Jobs.
    pub jobs: Arc<JobSource>,
}

impl CleanupContext {
    /// Removes the link of an offer. Returns whether there was one.
    ///
    /// # Errors
    /// A [`Stop`] while a pod may mount the volume by it.
    fn unlink(&self, token: Option<&String>) -> Result<bool, Stop> {
        let Some(token) = token.filter(|it| is_link(it)) else {
            return Ok(false);
        };
        let failed = |why| {
            let message = format!("its link cannot be removed: {why}");
            Failure::new(message).into()
        };
        self.host.unlink(token).map_err(failed)
    }
}

/// Why an attempt ended before the volume was clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The facts have changed since the plan: the next pass decides again.
    Changed(String),
    /// The volume is in use, or a check failed with a transient error: retry later.
    InUse {
        /// The user or the error, for an operator.
        by: String,
        /// How long the use must last before it is reported.
        notify_after: Duration,
    },
    /// A failure that is reported.
    Failed(Failure),
}

impl Stop {
    /// The cause, for an operator.
    pub fn message(&self) -> &str {
        match self {
            Self::Changed(text) | Self::InUse { by: text, .. } => text,
            Self::Failed(failure) => &failure.message,
        }
    }
}

/// A cleanup that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The event's reason.
    pub reason: &'static str,
    /// The cause, for an operator.
    pub message: String,
}

impl Failure {
    /// A failure without a reason of its own.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_reason(reasons::VOLUME_FAILED_DELETE, message)
    }

    /// A failure for a reason of its own.
    pub fn with_reason(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// An error of a cleaner.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(chain(&error))
    }
}
