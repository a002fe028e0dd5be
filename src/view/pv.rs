//! A PersistentVolume.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, HostPathVolumeSource, LocalVolumeSource, ObjectReference,
    PersistentVolume as FullPv, PersistentVolumeStatus, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::names::{
    ANNOTATION_BOUND_BY_CONTROLLER, ANNOTATION_CONSENT, ANNOTATION_IDENTITY,
    ANNOTATION_INSTALLATION, ANNOTATION_MOVED_FROM, ANNOTATION_OFFER, ANNOTATION_PATH,
    ANNOTATION_PAUSED, ANNOTATION_PROVISIONED_BY, ANNOTATION_RETIRED, ANNOTATION_STATE_DIRECTORY,
    ANNOTATION_USED, FINALIZER, LABEL_HOSTNAME, LABEL_IDENTITY_HASH, UNVERIFIED,
};
use crate::types::{HostPath, VolumeMode};
use crate::view::partial::{annotation_is_true, parse};
use crate::view::{Affinity, Partial, PvLink};

/// A PersistentVolume, as far as it is read.
pub type PersistentVolume = Partial<FullPv, PvSpec, PersistentVolumeStatus>;

/// The spec of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PvSpec {
    capacity: BTreeMap<String, Quantity>,
    claim_ref: Option<ObjectReference>,
    /// The CSI driver and its attributes.
    pub csi: Option<CSIPersistentVolumeSource>,
    /// The path on any node that a Pod runs on.
    pub host_path: Option<HostPathVolumeSource>,
    /// The path, usable or not.
    pub local: Option<LocalVolumeSource>,
    pub(super) node_affinity: Option<VolumeNodeAffinity>,
    persistent_volume_reclaim_policy: Option<String>,
    storage_class_name: Option<String>,
    volume_mode: Option<String>,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Kubernetes' own words")]
pub enum Phase {
    Pending,
    Available,
    Bound,
    Released,
    Failed,
}

/// `spec.persistentVolumeReclaimPolicy`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Kubernetes' own words")]
pub enum ReclaimPolicy {
    Delete,
    Retain,
    Recycle,
    /// An unknown policy.
    #[serde(untagged)]
    Other(String),
}

/// `spec.claimRef`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// Absent while the PV is only reserved for a claim of that name.
    pub uid: Option<String>,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One use of a volume by one tenant. The state of a cleanup belongs to a tenancy, so that it never applies to the
/// volume's next tenant or to a new PV of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenancy {
    /// The PV's UID.
    pub pv_uid: String,
    /// The claim's UID, if the PV names one.
    pub claim_uid: Option<String>,
}

/// The preconditions of a write: it fails on another object or another version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvRef {
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The version that the write was decided on.
    pub resource_version: String,
}

/// A PV that owns the storage at a path of this node, whatever leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOwner {
    /// The PV's name.
    pub pv: String,
    /// The PV's UID.
    pub uid: String,
    /// The path, as the PV has it.
    pub path: String,
    /// Whether it also owns the volumes below the path. A hostPath PV does not: it may show a whole machine.
    pub owns_below: bool,
}

/// The part of a PersistentVolume that decisions depend on.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own on the object")]
pub struct PvView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.finalizers`, in order.
    pub finalizers: Vec<String>,
    /// Whether `metadata.deletionTimestamp` is set ("Terminating").
    pub deleting: bool,
    /// `spec.storageClassName`.
    pub class: String,
    /// The path of its volume, or why there is none that is usable: `spec.local.path`, or [`ANNOTATION_PATH`] if that is a
    /// link. A PV with another source (hostPath, CSI, ...) is never cleaned, whatever its annotations are.
    pub local_path: Result<HostPath, String>,
    /// The link through which the kubelet mounts the volume, if the PV is bound to its disk.
    pub link: Option<PvLink>,
    /// The path of a hostPath PV, or a local path that is not usable.
    pub other_path: Option<String>,
    /// `spec.volumeMode`.
    pub mode: VolumeMode,
    /// `spec.capacity.storage`, as written.
    pub capacity: Option<String>,
    /// `spec.persistentVolumeReclaimPolicy`.
    pub policy: ReclaimPolicy,
    /// `spec.claimRef`.
    pub claim: Option<ClaimRef>,
    /// `status.phase`.
    pub phase: Phase,
    /// When the phase last changed or deletion began: the best known time of the release.
    pub released_at: Option<Timestamp>,
    /// The deletion and the release before it, by their times. Absent unless both are known: Kubernetes before 1.29 has no
    /// time of a release. After a restore of etcd, the PV can be bound, and then deleted, a second time.
    pub release: Option<String>,
    /// The hostname values that the required node affinity allows.
    pub hostnames: Vec<String>,
    /// The affinity, unless it only lists hostnames.
    pub affinity: Option<Affinity>,
    /// The label `kubernetes.io/hostname`.
    pub hostname_label: Option<String>,
    /// Annotation `pv.kubernetes.io/provisioned-by`.
    pub provisioned_by: Option<String>,
    /// The installation that manages it, see [`ANNOTATION_INSTALLATION`].
    pub installation: Option<String>,
    /// Whether a controller ever wrote the claimRef.
    pub bound_by_controller: bool,
    /// Whether the PV was ever seen bound.
    pub used: bool,
    /// Whether its disk has not been there since, with a mark that agrees.
    pub use_is_unverified: bool,
    /// The recorded identity.
    pub identity: Option<String>,
    /// The label with the hash of the identity.
    pub identity_hash: Option<String>,
    /// The token of its offer, which the mark on the disk has too, and the name of its link.
    pub offer: Option<String>,
    /// The `<UID>:<token>` of the PV that its disk had before it was moved here.
    pub moved_from: Option<String>,
    /// [`ANNOTATION_STATE_DIRECTORY`].
    pub state_directory: Option<String>,
    /// An administrator's consent, see [`ANNOTATION_CONSENT`].
    pub consent: Option<String>,
    /// Whether an administrator paused cleaning of this volume.
    pub paused: bool,
    /// The reclaim policy that it had before `retire` withheld it.
    pub retired: Option<String>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<OwnerReference>,
}

impl PvView {
    /// Reads a PV. The API server always sets name, UID and version. A missing one is read as empty, which no
    /// precondition matches.
    pub fn from_api(pv: &PersistentVolume) -> Self {
        let metadata = &pv.metadata;
        let (spec, status) = (&pv.spec, &pv.status);
        let annotation = |key| pv.annotations().get(key).cloned();
        let policy = spec.persistent_volume_reclaim_policy.as_ref();
        let link = PvLink::of(spec);
        let local_path = match &link {
            Some(_) => entry_path(annotation(ANNOTATION_PATH)),
            None => local_path(spec),
        };
        let local = spec.local.as_ref().filter(|_| local_path.is_err());
        let host_path = spec.host_path.as_ref().map(|it| &it.path);
        let deletion = metadata.deletion_timestamp.as_ref();
        let transition = status.last_phase_transition_time.as_ref();
        let use_is_unverified = annotation(ANNOTATION_USED).as_deref() == Some(UNVERIFIED);
        Self {
            name: pv.name_any(),
            uid: pv.uid().unwrap_or_default(),
            resource_version: pv.resource_version().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            finalizers: pv.finalizers().to_vec(),
            deleting: deletion.is_some(),
            class: spec.storage_class_name.clone().unwrap_or_default(),
            local_path,
            link: link.clone(),
            other_path: local.map(|it| &it.path).or(host_path).cloned(),
            mode: parse(spec.volume_mode.as_ref()).unwrap_or_default(),
            capacity: spec.capacity.get("storage").map(|it| it.0.clone()),
            policy: parse(policy).unwrap_or(ReclaimPolicy::Retain),
            claim: spec.claim_ref.as_ref().map(|claim| ClaimRef {
                namespace: claim.namespace.clone().unwrap_or_default(),
                name: claim.name.clone().unwrap_or_default(),
                uid: claim.uid.clone().filter(|uid| !uid.is_empty()),
            }),
            phase: parse(status.phase.as_ref()).unwrap_or(Phase::Pending),
            released_at: transition.or(deletion).map(|time| time.0),
            release: deletion
                .zip(transition)
                .map(|(deleted, released)| format!("{}/{}", deleted.0, released.0)),
            hostnames: spec.values_of_terms(LABEL_HOSTNAME).flatten().collect(),
            affinity: Affinity::from_api(spec.node_affinity.as_ref()),
            hostname_label: pv.labels().get(LABEL_HOSTNAME).cloned(),
            provisioned_by: annotation(ANNOTATION_PROVISIONED_BY),
            installation: annotation(ANNOTATION_INSTALLATION),
            bound_by_controller: annotation(ANNOTATION_BOUND_BY_CONTROLLER).is_some(),
            used: annotation_is_true(metadata, ANNOTATION_USED) || use_is_unverified,
            use_is_unverified,
            identity: annotation(ANNOTATION_IDENTITY),
            identity_hash: pv.labels().get(LABEL_IDENTITY_HASH).cloned(),
            offer: link.map_or_else(|| annotation(ANNOTATION_OFFER), |link| Some(link.token)),
            moved_from: annotation(ANNOTATION_MOVED_FROM),
            state_directory: annotation(ANNOTATION_STATE_DIRECTORY),
            consent: annotation(ANNOTATION_CONSENT),
            paused: annotation_is_true(metadata, ANNOTATION_PAUSED),
            retired: annotation(ANNOTATION_RETIRED),
            owners: pv.owner_references().to_vec(),
        }
    }

    /// Stands for the PV that the mark of a volume names, and that is gone.
    pub fn deleted(uid: &str, class: &str, path: &HostPath, identity: &str) -> Option<Self> {
        let pv = json!({
            "metadata": { "uid": uid, "annotations": { ANNOTATION_IDENTITY: identity } },
            "spec": { "storageClassName": class, "local": { "path": path } },
        });
        let pv = serde_json::from_value(pv);
        pv.ok().map(|pv| Self::from_api(&pv))
    }

    /// The preconditions of a write that is decided now.
    pub fn reference(&self) -> PvRef {
        PvRef {
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    /// The current tenancy.
    pub fn tenancy(&self) -> Tenancy {
        Tenancy {
            pv_uid: self.uid.clone(),
            claim_uid: self.claim.as_ref().and_then(|claim| claim.uid.clone()),
        }
    }

    /// The local path, if it is valid.
    pub fn path(&self) -> Option<&HostPath> {
        self.local_path.as_ref().ok()
    }

    /// The path of a local or hostPath PV, with its owner.
    pub fn path_owner(&self) -> Option<PathOwner> {
        let path = self.path().map(HostPath::as_str);
        Some(PathOwner {
            pv: self.name.clone(),
            uid: self.uid.clone(),
            path: path.or(self.other_path.as_deref())?.to_owned(),
            owns_below: path.is_some(),
        })
    }

    /// Whether it has our finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|it| it == FINALIZER)
    }

    /// Whether no pod can ever have written to the volume through this PV, so that it need not be cleaned.
    pub fn never_used(&self) -> bool {
        self.had_no_tenant() && self.claim.is_none()
    }

    /// The same, although it may be reserved for a claim.
    pub fn had_no_tenant(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Available)
            && !self.used
            && !self.bound_by_controller
    }
}

fn entry_path(path: Option<String>) -> Result<HostPath, String> {
    let text = path.ok_or_else(|| format!("its annotation {ANNOTATION_PATH} is missing"))?;
    HostPath::from_api(&text)
        .map_err(|why| format!("its annotation {ANNOTATION_PATH}={text:?} is not usable: {why}"))
}

fn local_path(spec: &PvSpec) -> Result<HostPath, String> {
    let Some(local) = &spec.local else {
        return Err("it is not a local volume (it has no spec.local)".into());
    };
    let text = &local.path;
    HostPath::from_api(text).map_err(|why| format!("its path {text:?} is not usable: {why}"))
}

#[cfg(test)]
mod tests;
