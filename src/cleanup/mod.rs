//! Cleaning released volumes.
//!
//! An [`attempt`] is a chain of types: [`gate`] gives the [`gate::Gated`] that is needed for the [`commit`], whose [`commit::Committed`] is needed
//! for the [`wipe`], whose [`wipe::Wiped`] is needed for the [`release`]. No step can be left out:
//! without the value there is no method to call.
//!
//! The cleaners in [`crate::wipe`] know nothing of Kubernetes.

pub mod attempt;
pub(crate) mod blocking;
pub mod commit;
mod duplicate;
pub(crate) mod exclusive;
pub(crate) mod external;
pub mod gate;
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
use crate::host::kubelet::KubeletDir;
use crate::metrics::Metrics;
use crate::plan::job_object::JobSource;
use crate::plan::{Occupied, Settings, reasons};
use crate::report::Reporter;
use crate::view::NodeView;
use crate::wipe::command::CommandError;
use crate::wipe::device::DeviceError;
use crate::wipe::tree::TreeError;

use table::ProcTable;

/// What cleans, in the words of the metrics' label `type`.
const PROCESS: &str = "process";
const JOB: &str = "job";

/// The latest that the main loop knows, for the gate.
#[derive(Clone, Debug)]
pub struct ControllerState {
    /// The configuration.
    pub settings: Settings,
    /// Our Node.
    pub node: NodeView,
    /// The storage that is spoken for.
    pub occupied: Arc<Occupied>,
    /// Whether cleaning is paused on the whole node.
    pub paused: bool,
}

/// What every cleanup stands on.
#[derive(Debug)]
pub struct CleanupContext {
    /// The API server.
    pub cluster: Cluster,
    /// The latest that the main loop knows.
    pub state: watch::Receiver<ControllerState>,
    /// The kubelet's directory.
    pub kubelet: Arc<KubeletDir>,
    /// How long to wait after a release where that directory cannot be seen.
    pub quiet_period: Duration,
    /// How far each cleanup is.
    pub table: Arc<ProcTable>,
    /// Told when the main loop ought to look at what has become of a cleanup or a write.
    pub wake: Arc<Notify>,
    /// For events.
    pub reporter: Reporter,
    /// For counters.
    pub metrics: Arc<Metrics>,
    /// For cleaning by Jobs.
    pub jobs: Arc<JobSource>,
}

/// Why a cleanup does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The PV changed while it was judged: judge again.
    Again,
    /// Somebody uses the volume, or it cannot be told at the moment: look again later.
    InUse {
        /// Who, in words.
        by: String,
        /// When an operator has to know.
        notify: Tell,
    },
    /// There is nothing to clean (any more).
    NotDue(String),
    /// Something is wrong.
    Failed(Failure),
}

/// How long a volume has to be in use before people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// Not at all: somebody has to do something.
    AtOnce,
    /// Longer than programs take that only look at a disk, such as udev.
    Soon,
    /// Longer than what passes by itself.
    IfItLasts,
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
    /// Whether the cleaner was told to stop, and did: there is nothing to mend.
    pub stopped: bool,
    /// Whether it stays so until somebody does something about it, and is told once.
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

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Self {
        Self {
            stopped: matches!(error, TreeError::Cancelled(_)),
            ..Self::cleaning(&error)
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self {
            stopped: matches!(error, DeviceError::Cancelled(_)),
            ..Self::cleaning(&error)
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        Self::cleaning(&error)
    }
}
