//! What is wrong with the StorageClass of a class, in a manifest or in the cluster.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

/// The provisioner of StorageClasses whose PVs no program creates on demand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Binds a claim when its pod is scheduled, and so to a volume of a node on which the pod can run.
const LATE: &str = "WaitForFirstConsumer";

/// Each fault, with its remedy.
pub(super) fn faults(class: &StorageClass) -> Vec<[String; 2]> {
    let (name, provisioner) = (class.name_any(), &class.provisioner);
    let policy = class.reclaim_policy.as_deref().unwrap_or("Delete");
    let rules = [
        (
            provisioner == NO_PROVISIONER,
            format!("has the provisioner {provisioner}"),
            format!("provisioner: {NO_PROVISIONER}"),
        ),
        (
            class.volume_binding_mode.as_deref() == Some(LATE),
            "binds claims at once, perhaps to a node on which their pods cannot run".to_owned(),
            format!("volumeBindingMode: {LATE}"),
        ),
        (
            ["Delete", "Retain"].contains(&policy),
            format!("has the reclaimPolicy {policy}, which local volumes cannot have"),
            "reclaimPolicy: Delete or Retain".to_owned(),
        ),
    ];
    let broken = rules.into_iter().filter(|(holds, ..)| !holds);
    let fault = |(_, what, remedy)| {
        let remedy = format!("write {remedy}; if it exists already, delete it and create it again");
        [format!("the StorageClass {name} {what}"), remedy]
    };
    broken.map(fault).collect()
}
