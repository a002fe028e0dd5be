//! The StorageClass of a configured class.

use k8s_openapi::api::storage::v1::StorageClass;

use super::ReclaimPolicy;
use super::partial::parse;

/// The fields of a StorageClass that a new PV copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClassView {
    /// Copied to each PV; Kubernetes' default is Delete.
    pub reclaim_policy: ReclaimPolicy,
    /// Copied to each PV.
    pub mount_options: Vec<String>,
    /// `allowVolumeExpansion`: the kubelet grows the filesystem of a PV whose capacity grew.
    pub expandable: bool,
}

impl From<&StorageClass> for StorageClassView {
    fn from(class: &StorageClass) -> Self {
        Self {
            reclaim_policy: parse(class.reclaim_policy.as_ref()).unwrap_or(ReclaimPolicy::Delete),
            mount_options: class.mount_options.clone().unwrap_or_default(),
            expandable: class.allow_volume_expansion == Some(true),
        }
    }
}
