//! Our own Node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use crate::names::{ANNOTATION_PAUSED, LABEL_HOSTNAME};

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
}

/// Why a Node cannot be served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeFault {
    /// The label that each PV's node affinity requires is missing.
    #[error(
        "the Node {0:?} has no label {LABEL_HOSTNAME:?}; the kubelet sets it, put it back with: kubectl label node {0} {LABEL_HOSTNAME}={0}"
    )]
    NoHostname(String),
    /// A field is missing that the API server always sets.
    #[error("the Node object has no {0}")]
    Incomplete(&'static str),
}

impl NodeView {
    /// Reads a Node's metadata.
    ///
    /// # Errors
    /// [`NodeFault`] when a required field is missing.
    pub fn from_metadata(metadata: &ObjectMeta) -> Result<Self, NodeFault> {
        let name = metadata.name.clone().ok_or(NodeFault::Incomplete("name"))?;
        let uid = metadata.uid.clone().ok_or(NodeFault::Incomplete("uid"))?;
        let labels = metadata.labels.clone().unwrap_or_default();
        let hostname = labels.get(LABEL_HOSTNAME).filter(|value| !value.is_empty());
        let hostname = hostname
            .cloned()
            .ok_or_else(|| NodeFault::NoHostname(name.clone()))?;
        let paused = super::pv::annotation_is_true(metadata, ANNOTATION_PAUSED);
        Ok(Self {
            name,
            uid,
            hostname,
            labels,
            paused,
        })
    }

    /// The owner reference that garbage-collects an object with this Node.
    #[must_use]
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
