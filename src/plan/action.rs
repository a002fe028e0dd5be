//! What a plan says to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::config::{AccessMode, Class};
use crate::host::mounts::DeviceNumber;
use crate::types::{HostPath, MountPath, VolumeMode};
use crate::view::{JobView, PvRef, PvView, ReclaimPolicy, Tenancy};
use crate::wipe::method::Method;

use super::CleanupState;

/// One thing to do. Every write names the object's UID and the version that it was decided on.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make a PV.
    Create(Box<PvDraft>),
    /// Change a PV's metadata or capacity.
    Patch(Patch),
    /// Attempt to clean a released volume.
    Clean(Box<CleanOrder>),
    /// Record the state of a cleanup that no task works on.
    Track(Box<Track>),
    /// Remove our finalizer from the PV of a wiped volume.
    Release(Tenancy),
    /// Delete a PV that nobody ever used and that no longer stands for its disk.
    Withdraw(Withdrawal),
    /// Forget a finished cleanup whose PV is gone.
    Forget(Tenancy),
    /// Delete the Job of a PV that is gone.
    Collect(JobView),
    /// Delete a Job that is in the way or has done its work, and why.
    DeleteJob(JobView, String),
    /// Delete the Job of a PV that is not to be cleaned (now), and why.
    CallOff(JobView, String),
    /// Remove the ownerReference of a Job at work: a deleted PV must not stop it halfway.
    Disown(JobView),
}

/// The state of a cleanup that the plan reads off the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// The PV and its claim.
    pub tenancy: Tenancy,
    /// The PV's name.
    pub pv: String,
    /// The volume's path on the host.
    pub path: HostPath,
    /// The state.
    pub state: CleanupState,
    /// What it was decided on.
    pub basis: u64,
}

/// A PV to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct PvDraft {
    /// The PV's name.
    pub name: String,
    /// The name to take if the first turns out to be another volume's.
    pub second_name: String,
    /// The class.
    pub class: String,
    /// `spec.local.path`.
    pub path: HostPath,
    /// The hostname value for label and affinity.
    pub hostname: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Whether our finalizer is on it from the start.
    pub finalizer: bool,
    /// The owning Node, with `setPVOwnerRef`.
    pub owner: Option<OwnerReference>,
    /// Bytes, rounded down.
    pub capacity: u64,
    /// How pods get it.
    pub mode: VolumeMode,
    /// The device, if it is one on disk.
    pub device: Option<DraftDevice>,
    /// `spec.accessModes`.
    pub access_mode: AccessMode,
    /// `spec.local.fsType`.
    pub fs_type: Option<String>,
    /// `spec.mountOptions`.
    pub mount_options: Vec<String>,
    /// The reclaim policy.
    pub policy: ReclaimPolicy,
    /// Further node selector terms, OR-ed with the node's own.
    pub selector: Vec<NodeSelectorTerm>,
}

/// A device that a PV is to be made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftDevice {
    /// Its path in our mount namespace.
    pub mount_path: MountPath,
    /// The device that was looked at.
    pub number: DeviceNumber,
}

/// A change of one PV's metadata and capacity, made in one request that fails if the PV is no longer the
/// version that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The PV.
    pub pv: PvRef,
    /// Annotations to set or (`None`) to take off.
    pub annotations: BTreeMap<&'static str, Option<String>>,
    /// The hostname label to set.
    pub hostname_label: Option<String>,
    /// All finalizers that it shall have.
    pub finalizers: Option<Vec<String>>,
    /// All owners that it shall have.
    pub owners: Option<Vec<OwnerReference>>,
    /// `spec.capacity` in bytes.
    pub capacity: Option<u64>,
    /// What is told once it is done: an event's reason and text.
    pub events: Vec<(&'static str, String)>,
}

impl Patch {
    /// A patch that changes nothing yet.
    #[must_use]
    pub fn of(pv: &PvView) -> Self {
        Self {
            pv: pv.reference(),
            annotations: BTreeMap::new(),
            hostname_label: None,
            finalizers: None,
            owners: None,
            capacity: None,
            events: Vec::new(),
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty()
            && self.hostname_label.is_none()
            && self.finalizers.is_none()
            && self.owners.is_none()
            && self.capacity.is_none()
    }
}

/// The deletion of a PV without cleaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// The PV.
    pub pv: PvRef,
    /// The finalizers to leave on it, if ours has to come off first.
    pub finalizers: Option<Vec<String>>,
    /// Whether it is still to be deleted.
    pub delete: bool,
    /// The event's reason, see [`super::reasons`].
    pub reason: &'static str,
    /// Why, for the event.
    pub because: String,
}

/// A released volume that is to be cleaned. Everything in it was true when the plan was made; the
/// gate looks again.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanOrder {
    /// The PV as it was.
    pub pv: PvView,
    /// The class, by whose settings the volume is cleaned from beginning to end.
    pub class: Arc<Class>,
    /// The path that the PV names.
    pub path: HostPath,
    /// The same file in our mount namespace.
    pub mount_path: MountPath,
    /// What it is on disk.
    pub kind: VolumeMode,
    /// How it is cleaned.
    pub method: Method,
    /// With `useJobForCleaning` and a device: it is cleaned by a Job, made in these terms.
    pub job: Option<JobTerms>,
    /// The Job that has cleaned it: only the result is checked.
    pub cleaned_by: Option<JobView>,
    /// The volume's size in bytes.
    pub capacity: u64,
    /// The disks below that have to seek.
    pub rotational: BTreeSet<DeviceNumber>,
    /// What the decision was made on, see [`super::Cleanup::basis`].
    pub basis: u64,
    /// The configuration that it was made under, see [`super::Settings::generation`].
    pub generation: u64,
}

/// What a cleaning Job has from the Node and the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct JobTerms {
    /// The value of the Node's hostname label, which may differ from its name.
    pub hostname: String,
    /// `jobTolerations`.
    pub tolerations: Vec<Toleration>,
}
