//! What a plan reports: the state of each volume, and notices for operators.

use serde::Serialize;
use serde_json::Value;

use crate::host::mark::{Mark, MarkState};
use crate::host::sha256;
use crate::types::{SkipReason, VolumeMode};
use crate::view::{ClaimRef, Phase, PvRef, PvView};

use super::DiskReport;

/// A problem to report to operators, once, when it begins.
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
    /// A Node, by its name.
    Node(String),
    /// A claim.
    Claim(ClaimRef),
}

impl From<&PvRef> for About {
    fn from(pv: &PvRef) -> Self {
        Self::Pv(pv.name.clone(), pv.uid.clone())
    }
}

impl From<&PvView> for About {
    fn from(pv: &PvView) -> Self {
        Self::Pv(pv.name.clone(), pv.uid.clone())
    }
}

/// Event reasons.
#[allow(missing_docs, reason = "they are explained in docs/events.md")]
pub mod reasons {
    pub const VOLUME_DELETE: &str = "VolumeDelete";
    pub const VOLUME_CLEANED: &str = "VolumeCleaned";
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
    pub const VOLUME_DIRTY: &str = "VolumeDirty";
    pub const VOLUME_MARK_MISMATCH: &str = "VolumeMarkMismatch";
    pub const VOLUME_UNVERIFIED: &str = "VolumeUnverified";
    pub const VOLUME_DATA_LEFT: &str = "VolumeDataLeft";
    pub const DEVICES_FOUND: &str = "DevicesFound";
    pub const DEVICE_FAILED: &str = "DeviceFailed";
    pub const STARTUP_TAINT_REMOVED: &str = "StartupTaintRemoved";
    pub const STARTUP_TAINT_STAYS: &str = "StartupTaintStays";
    pub const CAPACITY_SHARED: &str = "CapacityShared";
    pub const CLASS_INVALID: &str = "ClassInvalid";
    pub const PERMISSION_MISSING: &str = "PermissionMissing";
    pub const PROTECTION_MISSING: &str = "ProtectionMissing";
    pub const CLEANING_PAUSED: &str = "CleaningPaused";
    pub const CLEANING_CANCELLED: &str = "CleaningCancelled";
    pub const CONFIG_RELOADED: &str = "ConfigReloaded";
    pub const CONFIG_RELOAD_FAILED: &str = "ConfigReloadFailed";
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[allow(missing_docs, reason = "they are explained in docs/status.md")]
pub enum VolumeState {
    /// Not offered, for the reason in [`VolumeReport::reason`].
    #[default]
    Skipped,
    /// Its PV is being created.
    Creating,
    Available,
    Bound,
    /// Bound to a claim, but not verified: no new pod of the claim starts.
    Unlinked,
    /// Released, and kept because of its reclaim policy.
    Retained,
    /// Released, and about to be cleaned.
    Due,
    Waiting,
    Cleaning,
    /// Clean; the PV is about to be deleted.
    Cleaned,
    /// Cleaning failed and will be retried.
    CleaningFailed,
    /// Cleaning is refused until an operator acts.
    Refused,
    Paused,
    /// Terminating, and not (yet) to be cleaned.
    Terminating,
    /// The disk is not the one that the PV was created for.
    IdentityMismatch,
    MarkMismatch,
    Missing,
    NotMounted,
    Unhealthy,
    /// The PV belongs to another provisioner.
    Foreign,
    /// The PV's class is no longer configured, or is switched off.
    ClassGone,
    Failed,
}

/// What a mark says, without its claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkReport {
    /// The state.
    pub state: &'static str,
    /// The UID of its PV.
    pub pv_uid: String,
    /// The cluster that wrote it.
    pub cluster: String,
    /// A hash of the claim with the salt of an operator: `/status`, which requires no authentication, names no claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_hash: Option<String>,
}

impl MarkReport {
    /// Reports a mark. A salt `<name>-<secret>` gives the hash `<name>:<hash>`, also of a mark without a claim, which differs
    /// from all others. Without a salt, nothing tells the claim.
    pub fn new(mark: &Mark, salt: Option<&str>) -> Self {
        let claim =
            mark.claim.as_ref().filter(|_| mark.state != MarkState::Free).unwrap_or(&mark.token);
        let hash = |salt: &str| {
            let name = salt.split('-').next().unwrap_or_default();
            format!("{name}:{}", sha256(format!("{salt} {claim}").as_bytes()))
        };
        Self {
            claim_hash: salt.map(hash),
            state: mark.state.as_str(),
            pv_uid: mark.pv_uid.clone(),
            cluster: mark.cluster.clone(),
        }
    }
}

/// One volume, or one entry that is not a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeReport {
    /// The entry's name in the discovery directory, or the PV's path below it.
    pub entry: String,
    /// The path on the host.
    pub path: String,
    /// The PV's name.
    pub pv: Option<String>,
    /// The PV's phase.
    pub phase: Option<Phase>,
    /// The volume mode.
    pub mode: Option<VolumeMode>,
    /// Bytes.
    pub capacity: Option<u64>,
    /// The identity that was seen.
    pub identity: Option<String>,
    /// The mark that was read, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkReport>,
    /// The state.
    pub state: VolumeState,
    /// Why it is not offered, if it is not.
    pub reason: Option<SkipReason>,
    /// The cause, for an operator.
    pub detail: Option<String>,
    /// The cleanup, in the document of `/status` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Value>,
}

impl VolumeReport {
    /// Whether the kernel did not answer what it is.
    pub fn is_unreadable(&self) -> bool {
        use SkipReason::{NoCapacity, TimedOut, Unreadable};
        matches!(self.reason, Some(Unreadable | TimedOut | NoCapacity))
    }
}

/// One class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Whether the class has no fault, every entry could be read, and each eligible one has a PV.
    pub ready: bool,
    /// What is wrong with the class itself.
    pub faults: Vec<String>,
    /// Its volumes and entries, by name.
    pub volumes: Vec<VolumeReport>,
    /// The disks that its rule matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskReport>,
    /// Why its disks could not be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks_fault: Option<String>,
    /// The hash of the disks that wait for an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_approve: Option<String>,
}

impl ClassReport {
    /// The number of disks that wait for an approval, if there are any.
    pub fn disks_to_approve(&self) -> Option<i64> {
        self.to_approve.as_ref()?;
        let waiting = self.disks.iter().filter(|it| it.left_alone.is_none());
        i64::try_from(waiting.count()).ok()
    }
}
