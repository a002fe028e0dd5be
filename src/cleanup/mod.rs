//! Cleaning released volumes.
//!
//! An [`attempt`] is a chain of types. [`gate`] returns [`gate::Gated`], which [`commit`] consumes. The
//! [`wipe`] consumes [`commit::Committed`], and the [`release`] consumes [`wipe::Wiped`]. So no step can be
//! skipped.
//!
//! The cleaners themselves ([`crate::wipe`]) do not know Kubernetes. The `clean` command calls them through
//! [`wipe`], with the same checks.

pub mod attempt;
pub(crate) mod blocking;
pub mod commit;
mod duplicate;
pub(crate) mod external;
pub mod gate;
mod host;
pub(crate) mod inspect;
pub mod job;
pub(crate) mod oversee;
pub mod release;
pub mod table;
pub(crate) mod volume;
pub mod wipe;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::plan::job_object::JobSource;
use crate::plan::{Occupied, Settings, reasons};
use crate::report::Reporter;
use crate::view::NodeView;
use crate::wipe::error::WipeError;

use table::ProcTable;

pub use commit::Commit;
pub use host::{CleanVolume, Host, KubeletUses, LocalHost, Lock, LockedVolume, PassFacts};
pub use inspect::Obstacle;

/// The latest state of the main loop, for the gate.
#[derive(Clone, Debug)]
pub struct ControllerState {
    /// The configuration.
    pub settings: Settings,
    /// Our Node.
    pub node: NodeView,
    /// The storage that other PVs and uses occupy.
    pub occupied: Arc<Occupied>,
    /// Whether cleaning is paused on the whole node.
    pub paused: bool,
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

/// Why an attempt ended before the volume was clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The PV changed during the checks: retry.
    Again,
    /// The volume is in use, or the check failed with a transient error: retry later.
    InUse {
        /// The user or the error, for an operator.
        by: String,
        /// When the use is reported.
        notify: NotifyAfter,
    },
    /// There is nothing to clean, or no longer.
    NotDue(String),
    /// A failure that is reported.
    Failed(Failure),
}

/// How long a volume must be in use before the use is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyAfter {
    /// At once: the use does not end without an operator or tenant.
    Zero,
    /// Longer than programs such as udev probe a disk.
    ShortUse,
    /// Longer than uses that normally end without intervention.
    LongUse,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Again => f.write_str("the PV changed meanwhile"),
            Self::InUse { by, .. } => f.write_str(by),
            Self::NotDue(why) => f.write_str(why),
            Self::Failed(failure) => f.write_str(&failure.message),
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
    /// Whether the cleaner was cancelled: there is nothing to fix.
    pub stopped: bool,
    /// Whether the failure lasts until an operator acts. It is reported once.
    pub lasts: bool,
}

impl Failure {
    /// A failure.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            stopped: false,
            lasts: false,
        }
    }

    /// A failure of the cleaner itself.
    fn cleaning(error: &dyn std::error::Error) -> Self {
        Self::new(reasons::VOLUME_FAILED_DELETE, crate::errors::chain(error))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<WipeError> for Failure {
    fn from(error: WipeError) -> Self {
        Self {
            stopped: error == WipeError::Cancelled,
            ..Self::cleaning(&error)
        }
    }
}
