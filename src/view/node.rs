//! Our own Node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use super::partial::annotation_is_true;
use crate::names::{
    ANNOTATION_PAUSED, APPROVE_PREFIX, CONSENT_PREFIX, LABEL_HOSTNAME, SALT_PREFIX,
};

/// The Node that this provisioner serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The object's name.
    pub name: String,
    /// The object's UID: another one means that the node was deleted and registered again.
    pub uid: String,
    /// The value of the label `kubernetes.io/hostname`, which may differ from the name.
    pub hostname: String,
    /// All labels, for `nodeLabelsForPV`.
    pub labels: BTreeMap<String, String>,
    /// Whether an administrator paused cleaning on the whole node.
    pub paused: bool,
    /// The operator's decisions about volumes without a PV. An annotation may have several.
    pub consents: BTreeSet<String>,
    /// The hashes of disks that an operator approves, by class.
    pub approvals: BTreeMap<String, String>,
}

impl NodeView {
    /// Reads a Node's metadata. The API server always sets name and UID.
    ///
    /// # Errors
    /// When it has no hostname label, which each PV's node affinity requires.
    pub fn from_metadata(metadata: &ObjectMeta) -> Result<Self, String> {
        let name = metadata.name.clone().unwrap_or_default();
        let labels = metadata.labels.clone().unwrap_or_default();
        let hostname = labels.get(LABEL_HOSTNAME).filter(|it| !it.is_empty()).cloned().ok_or_else(|| {
            format!(
                "the Node {name:?} has no label {LABEL_HOSTNAME:?}; the kubelet sets it, put it back with: kubectl label node {name} {LABEL_HOSTNAME}={name}"
            )
        })?;
        Ok(Self {
            name,
            uid: metadata.uid.clone().unwrap_or_default(),
            hostname,
            labels,
            consents: consents(metadata),
            approvals: approvals(metadata),
            paused: annotation_is_true(metadata, ANNOTATION_PAUSED),
        })
    }

    /// The salt of an operator for hashes of claims.
    pub fn salt(&self) -> Option<&str> {
        let mut consents = self.consents.iter();
        consents.find_map(|it| it.strip_prefix(SALT_PREFIX))
    }

    /// The owner reference that garbage-collects an object with this Node.
    pub fn as_owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        }
    }
}

fn consents(metadata: &ObjectMeta) -> BTreeSet<String> {
    let annotations = metadata.annotations.iter().flatten();
    let values = annotations.filter(|(key, _)| key.starts_with(CONSENT_PREFIX));
    let consents = values.flat_map(|(_, value)| value.split([',', ' ']));
    consents.map(ToOwned::to_owned).collect()
}

fn approvals(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let annotations = metadata.annotations.iter().flatten();
    let approvals = annotations.filter_map(|(key, hash)| {
        Some((key.strip_prefix(APPROVE_PREFIX)?.to_owned(), hash.clone()))
    });
    approvals.collect()
}
