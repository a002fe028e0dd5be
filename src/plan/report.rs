//! What a plan says of the world: one line for each volume, and what people have to be told.

use serde::Serialize;

use crate::types::{SkipReason, VolumeMode};
use crate::view::{Phase, PvRef};

/// Something that people have to be told, once, when it becomes true.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// What it is about.
    pub about: About,
    /// The event's reason, see [`reasons`].
    pub reason: &'static str,
    /// One or two sentences: what happened, to what, what happens next, what to do.
    pub message: String,
}

/// The object that an event is attached to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A PV, by name and UID.
    Pv(String, String),
    /// The provisioner's own Pod.
    Pod,
}

impl From<&PvRef> for About {
    fn from(pv: &PvRef) -> Self {
        Self::Pv(pv.name.clone(), pv.uid.clone())
    }
}

/// Event reasons.
#[allow(missing_docs, reason = "they are explained in docs/events.md")]
pub mod reasons {
    pub const VOLUME_DELETE: &str = "VolumeDelete";
    pub const VOLUME_FAILED_DELETE: &str = "VolumeFailedDelete";
    pub const VOLUME_UNSUPPORTED_RECLAIM_POLICY: &str = "VolumeUnsupportedReclaimPolicy";
    pub const VOLUME_UNKNOWN_RECLAIM_POLICY: &str = "VolumeUnknownReclaimPolicy";
    pub const VOLUME_IDENTITY_MISMATCH: &str = "VolumeIdentityMismatch";
    pub const VOLUME_HOSTNAME_MISMATCH: &str = "VolumeHostnameMismatch";
    pub const VOLUME_IDENTITY_RECORDED: &str = "VolumeIdentityRecorded";
    pub const VOLUME_ADOPTED: &str = "VolumeAdopted";
    pub const VOLUME_IN_USE: &str = "VolumeInUse";
    pub const VOLUME_MISSING: &str = "VolumeMissing";
    pub const VOLUME_NOT_MOUNTED: &str = "VolumeNotMounted";
    pub const VOLUME_READ_ONLY: &str = "VolumeReadOnly";
    pub const VOLUME_DUPLICATE: &str = "VolumeDuplicate";
    pub const VOLUME_NOT_EMPTY: &str = "VolumeNotEmpty";
    pub const VOLUME_DATA_LEFT: &str = "VolumeDataLeft";
    pub const STARTUP_TAINT_REMOVED: &str = "StartupTaintRemoved";
    pub const STARTUP_TAINT_STAYS: &str = "StartupTaintStays";
    pub const CLASS_INVALID: &str = "ClassInvalid";
    pub const PERMISSION_MISSING: &str = "PermissionMissing";
    pub const CLEANING_PAUSED: &str = "CleaningPaused";
    pub const CONFIG_RELOADED: &str = "ConfigReloaded";
    pub const CONFIG_RELOAD_FAILED: &str = "ConfigReloadFailed";
}

/// What is the matter with a volume, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[allow(missing_docs, reason = "they are explained in docs/status.md")]
pub enum VolumeState {
    /// Not offered, for the reason beside it.
    Skipped,
    /// Its PV is being made.
    Creating,
    Available,
    Bound,
    /// Released, and kept because of its reclaim policy.
    Retained,
    /// Released, and about to be cleaned.
    Due,
    Waiting,
    Cleaning,
    /// Clean; the object is about to go.
    Cleaned,
    /// Cleaning failed and will be tried again.
    CleaningFailed,
    /// Cleaning is refused until somebody does something.
    Refused,
    Paused,
    /// Terminating, and not (yet) to be cleaned.
    Terminating,
    /// Another disk than the one that the PV was made for.
    IdentityMismatch,
    Missing,
    NotMounted,
    Unhealthy,
    /// The PV belongs to somebody else.
    Foreign,
    /// The PV's class is no longer configured, or is switched off.
    ClassGone,
    Failed,
}

/// One volume, or one entry that is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeReport {
    /// The entry's name in the discovery directory, or the PV's path below it.
    pub entry: String,
    /// The path on the host.
    pub path: String,
    /// The PV's name.
    pub pv: Option<String>,
    /// The PV's phase.
    #[serde(serialize_with = "phase")]
    pub phase: Option<Phase>,
    /// How pods get it.
    pub mode: Option<VolumeMode>,
    /// Bytes.
    pub capacity: Option<u64>,
    /// The identity that was seen.
    pub identity: Option<String>,
    /// What is the matter.
    pub state: VolumeState,
    /// Why it is not offered, if it is not.
    pub reason: Option<SkipReason>,
    /// A sentence about it.
    pub detail: Option<String>,
}

impl VolumeReport {
    /// Whether the kernel does not say what it is.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        use SkipReason::{NoCapacity, TimedOut, Unreadable};
        matches!(self.reason, Some(Unreadable | TimedOut | NoCapacity))
    }
}

#[allow(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the field so"
)]
fn phase<S: serde::Serializer>(phase: &Option<Phase>, serializer: S) -> Result<S::Ok, S::Error> {
    match phase {
        Some(phase) => serializer.collect_str(phase),
        None => serializer.serialize_none(),
    }
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Whether every eligible entry has a PV and nothing stood in the way of finding out.
    pub ready: bool,
    /// What is wrong with the class itself.
    pub faults: Vec<String>,
    /// Its volumes and entries, by name.
    pub volumes: Vec<VolumeReport>,
}

impl ClassReport {
    /// Whether all that it lacks are PVs that are being made.
    #[must_use]
    pub fn only_waits_for_pvs(&self) -> bool {
        !self.ready
            && self.faults.is_empty()
            && !self.volumes.iter().any(VolumeReport::is_unreadable)
    }
}
