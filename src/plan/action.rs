//! The actions of a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::host::mark::Mark;
use crate::inventory::Volume;
use crate::quantity;
use crate::types::HostPath;
use crate::view::{ClaimRef, JobView, NodeView, PvRef, PvView, Tenancy};
use crate::wipe::method::Method;

use super::{About, Cancellation, CleanupState, DiskOrder, OwnerQuery};

/// One action. Each write has the object's UID and resourceVersion as preconditions.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create a PV.
    Create(Box<PvDraft>),
    /// Change a PV's metadata or capacity.
    Patch(Patch),
    /// Attempt to clean a released volume.
    Clean(Box<CleanOrder>),
    /// Cancel a running wipe, or the Job that wipes.
    Cancel(Box<Cancellation>),
    /// Suspend a running wipe (`true`), or resume it.
    Suspend(Tenancy, bool),
    /// Record the state of a cleanup that no task works on.
    Track(Box<Track>),
    /// Remove our finalizer from the PV of a wiped volume.
    Release(Tenancy),
    /// Delete a PV without cleaning, or remove our finalizer from a Terminating one.
    Withdraw(Withdrawal),
    /// Forget a finished cleanup whose PV is gone.
    Forget(Tenancy),
    /// Write a mark without a change of a PV.
    WriteMark(Box<MarkWrite>),
    /// Read the PVs of these names: the mark of a volume names a PV that the watch does not show.
    FindPv(PvSearch),
    /// List the PVs of other nodes that may be of the same storage as these of ours.
    FindOwners(Vec<OwnerQuery>),
    /// Take the PV of another node over whose disk this volume is, if there is one and that node does not use it.
    TakeOver(Arc<Volume>),
    /// Remove a link, so that the kubelet mounts nothing by it.
    Unlink(String),
    /// Make the link of a PV.
    Link(Box<LinkOrder>),
    /// Change the labels of the Node that name its disks.
    LabelNode(NodeLabels),
    /// Make the entry of a blank disk that a class takes in.
    TakeIn(Box<DiskOrder>),
    /// Change or delete a cleaning Job.
    WriteJob(JobView, JobWrite),
}

/// A write to a cleaning Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobWrite {
    /// Remove the ownerReference of a running Job: the PV's deletion must not stop it halfway.
    Disown,
    /// Delete the Job of a PV that is gone.
    Collect,
    /// Delete a Job that blocks a cleanup or has completed, and why.
    Delete(String),
    /// Delete the Job of a PV that must not be cleaned (now), and why.
    Cancel(String),
}

/// A link to make, if the API server and the disk confirm what the plan has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkOrder {
    /// The PV.
    pub pv: PvView,
    /// Its volume.
    pub volume: Arc<Volume>,
    /// See [`super::Snapshot::epoch`].
    pub epoch: u64,
}

/// A change of the labels of the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLabels {
    /// The Node.
    pub node: NodeView,
    /// The labels to set or (`None`) to remove.
    pub labels: BTreeMap<String, Option<String>>,
}

/// The state of a cleanup, as the plan derives it from the cluster.
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
    /// See [`super::Cleanup::basis`].
    pub basis: u64,
}

/// A PV to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct PvDraft {
    /// The PV's name.
    pub name: String,
    /// The name to use if the PV of another volume has the first.
    pub second_name: String,
    /// Its volume.
    pub volume: Arc<Volume>,
    /// The hostname value of label and affinity.
    pub hostname: String,
    /// The mark that precedes the PV.
    pub mark: Option<MarkWrite>,
    /// The only claim that may have it, whose data the volume holds.
    pub claim: Option<ClaimRef>,
    /// The object, under the first name.
    pub object: Value,
}

/// A change of one PV's metadata and capacity, in one request that fails if the PV has changed since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch {
    /// The PV.
    pub pv: PvRef,
    /// Annotations to set or (`None`) to remove.
    pub annotations: BTreeMap<&'static str, Option<String>>,
    /// Labels to set or (`None`) to remove.
    pub labels: BTreeMap<&'static str, Option<String>>,
    /// The complete new list of finalizers.
    pub finalizers: Option<Vec<String>>,
    /// The complete new list of owners.
    pub owners: Option<Vec<OwnerReference>>,
    /// `spec.capacity` in bytes.
    pub capacity: Option<u64>,
    /// The mark to write first.
    pub mark: Option<Box<MarkWrite>>,
    /// The events to report once the patch is written: reason and text.
    pub events: Vec<(&'static str, String)>,
}

/// A search for the PV that a mark names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvSearch {
    /// The volume's path on the host.
    pub path: HostPath,
    /// The names that a provisioner gives.
    pub names: Vec<String>,
    /// See [`super::Ledger::searched`].
    pub mark: String,
}

/// A write of the mark of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkWrite {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The mark to write.
    pub mark: Mark,
    /// Whether the root of the filesystem first gets the attributes of the mark, or loses those that a tenant may have set.
    pub resets_root: bool,
}

impl Patch {
    /// An empty patch.
    pub fn of(pv: &PvView) -> Self {
        Self { pv: pv.reference(), ..Self::default() }
    }

    /// What to merge into the PV.
    pub fn body(&self) -> Value {
        let mut metadata = json!({});
        for (key, value) in &self.annotations {
            metadata["annotations"][*key] = json!(value);
        }
        for (key, value) in &self.labels {
            metadata["labels"][*key] = json!(value);
        }
        if let Some(finalizers) = &self.finalizers {
            metadata["finalizers"] = json!(finalizers);
        }
        if let Some(owners) = &self.owners {
            metadata["ownerReferences"] = json!(owners);
        }
        let mut body = json!({ "metadata": metadata });
        if let Some(bytes) = self.capacity {
            body["spec"]["capacity"]["storage"] = quantity::format(bytes).into();
        }
        body
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.mark.is_none() && self.changes_nothing()
    }

    /// Whether the PV stays as it is.
    pub fn changes_nothing(&self) -> bool {
        self.body() == json!({ "metadata": {} })
    }
}

/// One step of the deletion of a PV without cleaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// The PV.
    pub pv: PvRef,
    /// Of a Terminating PV: the other finalizers, which stay when ours is removed. `None`: the PV is deleted.
    pub finalizers: Option<Vec<String>>,
    /// The event's reason, see [`super::reasons`].
    pub reason: &'static str,
    /// Why, for the event.
    pub because: String,
}

/// A released volume to be cleaned, as of the plan. The gate checks it again.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanOrder {
    /// The PV as it was.
    pub pv: PvView,
    /// The volume. A cleanup uses the settings of its class to its end.
    pub volume: Arc<Volume>,
    /// How it is cleaned.
    pub method: Method,
    /// What its cleaning Job gets from Node and configuration; set for a device with `useJobForCleaning`.
    pub job: Option<JobTerms>,
    /// The Job that has cleaned it; then only the result is verified.
    pub cleaned_by: Option<JobView>,
    /// See [`super::Cleanup::basis`].
    pub basis: u64,
    /// See [`super::Settings::generation`].
    pub generation: u64,
    /// Of a volume without a PV: the name of our Node, which its events are about. Then [`Self::pv`] stands for the PV
    /// that its mark names.
    pub orphan_on: Option<String>,
}

impl CleanOrder {
    /// What its events are about.
    pub fn about(&self) -> About {
        match &self.orphan_on {
            Some(node) => About::Node(node.clone()),
            None => About::from(&self.pv),
        }
    }
}

/// What a cleaning Job gets from the Node and the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct JobTerms {
    /// The value of the Node's hostname label, which may differ from its name.
    pub hostname: String,
    /// `jobTolerations`.
    pub tolerations: Vec<Toleration>,
    /// The image.
    pub image: String,
    /// The directory of the marks, if the device has one. The Job mounts it, and checks the mark.
    pub state_directory: Option<String>,
}
