//! What follows from who provisioned a volume: whether a CSI driver has taken it over, and which
//! finalizer holds it until its storage is deleted.

use super::{MIGRATED_TO, PROVISIONED_BY, provision::IN_TREE};
use crate::{
    controllers::{
        Context, SyncError,
        object::{
            Key, Volume, add_finalizer, has_finalizer, remove_annotation, remove_finalizer,
            set_annotation,
        },
    },
    resource::PERSISTENT_VOLUMES,
    store::Part,
};

/// Holds a volume of an in-tree plug-in until the controller has deleted its storage.
pub(crate) const IN_TREE_DELETION: &str = "kubernetes.io/pv-controller";
/// Does the same for the provisioner of a CSI driver.
const EXTERNAL_DELETION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// In-tree plug-ins, and the CSI drivers that have taken over their volumes.
const MIGRATED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// Whether a driver is noted on the volume, and so reclaims it.
pub(super) fn is_migrated(volume: &Volume) -> bool {
    let driver = volume.annotation(MIGRATED_TO);
    driver.is_some_and(|driver| !driver.is_empty())
}

/// Brings the annotation and the finalizer of a volume in line with its provisioner and its policy.
/// A volume without a provisioner keeps what it has.
pub(crate) fn update(cx: &mut Context, volume: Volume) -> Result<Volume, SyncError> {
    let Some(provisioner) = volume.annotation(PROVISIONED_BY) else {
        return Ok(volume);
    };
    let mut new = (*volume.0).clone();
    let migrated = MIGRATED.iter().find(|(plugin, _)| *plugin == provisioner);
    if let Some((_, driver)) = migrated {
        set_annotation(&mut new, MIGRATED_TO, driver);
        drop_finalizer(&mut new, IN_TREE_DELETION);
    } else {
        if is_migrated(&volume) {
            remove_annotation(&mut new, MIGRATED_TO);
        }
        if provisioner.starts_with(IN_TREE) {
            match volume.reclaim_policy() {
                "Delete" if !has_finalizer(&new, IN_TREE_DELETION) => {
                    add_finalizer(&mut new, IN_TREE_DELETION);
                }
                "Retain" | "Recycle" => drop_finalizer(&mut new, IN_TREE_DELETION),
                _ => {}
            }
            drop_finalizer(&mut new, EXTERNAL_DELETION);
        }
    }
    if new == *volume.0 {
        return Ok(volume);
    }
    cx.update(&PERSISTENT_VOLUMES, new, Part::Main).map(Volume)
}

/// Removes the finalizers of a volume whose storage is deleted.
pub(crate) fn let_go(cx: &mut Context, volume: &Volume) -> Result<(), SyncError> {
    let key = Key::cluster(volume.name());
    let held = cx
        .read(&PERSISTENT_VOLUMES, &key)?
        .is_some_and(|fresh| has_finalizer(&fresh, IN_TREE_DELETION));
    if held {
        cx.release(&PERSISTENT_VOLUMES, &key, IN_TREE_DELETION)?;
    }
    Ok(())
}

fn drop_finalizer(volume: &mut serde_json::Value, finalizer: &str) {
    if has_finalizer(volume, finalizer) {
        remove_finalizer(volume, finalizer);
    }
}
