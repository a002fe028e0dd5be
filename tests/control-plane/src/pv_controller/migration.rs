//! In-tree plug-ins of which a CSI driver has taken over the volumes.

use super::{MIGRATED_TO, provision::STORAGE_PROVISIONER};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Claim, remove_annotation, set_annotation},
    },
    resource::PERSISTENT_VOLUME_CLAIMS,
    store::Part,
};

/// The plug-ins and their drivers.
const DRIVERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// The driver that serves the volumes of this plug-in; `None` for one that was not migrated.
pub(crate) fn driver_of(plugin: &str) -> Option<&'static str> {
    let mut drivers = DRIVERS.iter();
    drivers.find_map(|&(name, driver)| (name == plugin).then_some(driver))
}

/// Notes on a claim which driver took over from its provisioner, or that none did. A claim for
/// which nobody was asked keeps what it says.
pub(super) fn note_on_claim(cx: &mut Context, claim: Claim) -> Result<Claim, SyncError> {
    let [beta, current] = STORAGE_PROVISIONER;
    let asked = claim.annotation(current).or_else(|| claim.annotation(beta));
    let Some(provisioner) = asked else {
        return Ok(claim);
    };
    let noted = claim.annotation(MIGRATED_TO).unwrap_or_default();
    let driver = driver_of(provisioner).unwrap_or_default();
    if noted == driver {
        return Ok(claim);
    }
    let mut new = (*claim.0).clone();
    if driver.is_empty() {
        remove_annotation(&mut new, MIGRATED_TO);
    } else {
        set_annotation(&mut new, MIGRATED_TO, driver);
    }
    cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Main)
        .map(Claim)
}
