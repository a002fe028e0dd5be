//! The input of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::{Config, Fault, Loaded};
use crate::host::boot::BootTime;
use crate::host::mounts::DeviceNumber;
use crate::inventory::Observation;
use crate::types::HostPath;
use crate::view::{Jobs, NodeView, PathOwner, PvView, StorageClassView};

use super::job_object::JobSource;
use super::{Contradictions, Ledger};

/// The configuration and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The valid part.
    pub config: Arc<Config>,
    /// Classes that are switched off, with their faults.
    pub faulty: BTreeMap<String, String>,
    /// Faults outside of the classes; their keys have safe values.
    pub faults: Vec<String>,
    /// Incremented with each configuration; a new one resets the back-off of failed cleanups.
    pub generation: u64,
    /// Our own installation, `<namespace>/<DaemonSet>`. `None`: it is unknown, and not recorded on PVs.
    pub installation: Option<String>,
    /// The UID of the namespace kube-system, by which marks name the cluster. `None`: marks are neither written nor
    /// judged.
    pub cluster: Option<String>,
}

impl Settings {
    /// The settings of a loaded configuration, in an installation.
    pub fn of(
        loaded: &Loaded,
        generation: u64,
        installation: Option<String>,
        cluster: Option<String>,
    ) -> Self {
        let of_class = |fault: &Fault| Some((fault.class.clone()?, fault.message.clone()));
        let others = loaded.faults.iter().filter(|fault| fault.class.is_none());
        Self {
            config: Arc::new(loaded.config.clone()),
            faulty: loaded.faults.iter().filter_map(of_class).collect(),
            faults: others.map(ToString::to_string).collect(),
            generation,
            installation,
            cluster,
        }
    }
}

/// One cleanup, as the ProcTable has it. Times count from the start of the process, as [`Snapshot::now`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// The PV's name.
    pub pv: String,
    /// The volume's path on the host.
    pub path: HostPath,
    /// The identity of the disk that the last attempt was for.
    pub identity: String,
    /// The state.
    pub state: CleanupState,
    /// When the state began.
    pub since: Duration,
    /// Whether a task of this process works on it.
    pub running: bool,
    /// Whether that task has made no progress for so long that it holds no slot.
    pub stalled: bool,
    /// Whether that task waits until cleaning is resumed. It then holds no slot.
    pub suspended: bool,
    /// The rotational disks below the volume.
    pub disks: BTreeSet<DeviceNumber>,
    /// A hash of the facts that the last attempt was decided on. When it changes, the next attempt is due at once.
    pub basis: u64,
}

/// The state of a cleanup: in the ProcTable, the plan, `/status` and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupState {
    /// For a slot, or for the Job named, to start or to be deleted.
    Waiting {
        /// What for.
        reason: String,
        /// `namespace/name`.
        job: Option<String>,
    },
    /// The last attempt found a user, or facts that had changed.
    Blocked {
        /// The user.
        reason: String,
        /// When the operator is notified.
        notify_at: Option<Duration>,
        /// When the next attempt is due.
        retry_at: Duration,
    },
    /// A task deletes the data.
    Wiping,
    /// A Job deletes the data.
    JobRunning {
        /// `namespace/name`.
        job: String,
    },
    /// The data is gone, verified. The lock is held until the PV is released.
    Wiped {
        /// Why the PV could not be released, once that is worth a notice.
        error: Option<String>,
        /// When the next release is due.
        retry_at: Duration,
    },
    /// Our finalizer is removed; the API server deletes the PV.
    Released,
    /// The last attempt failed.
    Failed {
        /// The cause.
        error: String,
        /// When the next attempt is due; [`Duration::MAX`] if only when the facts change.
        retry_at: Duration,
    },
}

impl Cleanup {
    /// Whether this process holds the volume, so that nothing else may use its path.
    pub fn is_active(&self) -> bool {
        self.running || matches!(self.state, CleanupState::Wiped { .. })
    }

    /// Whether this process deletes the data now.
    pub fn is_wiping(&self) -> bool {
        self.running && self.state == CleanupState::Wiping
    }

    /// Whether an attempt is due on these facts.
    pub fn is_attempt_due(&self, now: Duration, basis: u64) -> bool {
        match self.state {
            CleanupState::Blocked { retry_at, .. } | CleanupState::Failed { retry_at, .. } => {
                basis != self.basis || now >= retry_at
            }
            _ => true,
        }
    }
}

/// The state of cluster and node at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Our Node; absent while it is not registered.
    pub node: Option<NodeView>,
    /// The StorageClasses, by name: `None` does not exist, an absent one could not be read so far.
    pub storage_classes: BTreeMap<String, Option<StorageClassView>>,
    /// What each class's directory holds, by class name.
    pub observed: BTreeMap<String, Observation>,
    /// Our PVs, and all PVs below our directories; `None` until they were listed.
    pub pvs: Option<Vec<PvView>>,
    /// The PVs of other provisioners that may be of storage of this node.
    pub owners: Arc<Vec<PathOwner>>,
    /// The cleaning Jobs on this node, by name.
    pub jobs: Jobs,
    /// What cleaning Jobs are made from.
    pub job_source: Arc<JobSource>,
    /// What this process does and has found out.
    pub ledger: Ledger,
    /// The links for the kubelet that exist, with their targets.
    pub links: BTreeMap<String, String>,
    /// Why no link can be made.
    pub links_fault: Option<String>,
    /// Incremented when the connection to the API server fails, or leads to another cluster: the PVs of all links must be
    /// read again.
    pub epoch: u64,
    /// The offers of PVs that were deleted unused since this process started, with the UIDs of the PVs.
    pub ended: BTreeSet<(String, String)>,
    /// Time since the process started. The plan has no clock of its own.
    pub now: Duration,
    /// The wall clock, to compare with timestamps of the API.
    pub date: Timestamp,
    /// The same by the clock of the boot.
    pub boot_time: Option<BootTime>,
    /// The ID of the state directory.
    pub state_directory: Option<String>,
    /// Whether it is recorded in it that marks were lost.
    pub has_doubt: bool,
    /// [`super::Occupied::contradictions`] of the last plan.
    pub contradictions: Contradictions,
    /// For how long that must last before `missingVolumePolicy: Delete` takes effect.
    pub missing_limit: Duration,
    /// By installation, for how long each read has found its DaemonSet absent.
    pub absent_for: BTreeMap<String, Duration>,
    /// How long a DaemonSet must be absent before the PVs of its installation are taken over.
    pub absence_limit: Duration,
}
