//! In-tree plug-ins of which a CSI driver has taken over the volumes.

use super::{MIGRATED_TO, provision::STORAGE_PROVISIONER};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Claim, Volume, remove_annotation, set_annotation},
    },
    resource::PERSISTENT_VOLUME_CLAIMS,
    store::Part,
};

/// A plug-in that a driver has taken over.
pub(crate) struct Migrated {
    pub(crate) plugin: &'static str,
    pub(crate) driver: &'static str,
    /// What its volumes have in their `spec`.
    source: &'static str,
}

const MIGRATED: [Migrated; 7] = [
    Migrated {
        plugin: "kubernetes.io/aws-ebs",
        driver: "ebs.csi.aws.com",
        source: "awsElasticBlockStore",
    },
    Migrated {
        plugin: "kubernetes.io/azure-disk",
        driver: "disk.csi.azure.com",
        source: "azureDisk",
    },
    Migrated {
        plugin: "kubernetes.io/azure-file",
        driver: "file.csi.azure.com",
        source: "azureFile",
    },
    Migrated {
        plugin: "kubernetes.io/cinder",
        driver: "cinder.csi.openstack.org",
        source: "cinder",
    },
    Migrated {
        plugin: "kubernetes.io/gce-pd",
        driver: "pd.csi.storage.gke.io",
        source: "gcePersistentDisk",
    },
    Migrated {
        plugin: "kubernetes.io/portworx-volume",
        driver: "pxd.portworx.com",
        source: "portworxVolume",
    },
    Migrated {
        plugin: "kubernetes.io/vsphere-volume",
        driver: "csi.vsphere.vmware.com",
        source: "vsphereVolume",
    },
];

/// The driver that serves the volumes of this plug-in; `None` for one that was not migrated.
pub(crate) fn driver_of(plugin: &str) -> Option<&'static str> {
    let mut migrated = MIGRATED.iter();
    migrated.find(|it| it.plugin == plugin).map(|it| it.driver)
}

/// Who has taken over volumes of this kind.
pub(crate) fn of_source(volume: &Volume) -> Option<&'static Migrated> {
    let mut migrated = MIGRATED.iter();
    migrated.find(|it| volume["spec"][it.source].is_object())
}

/// Whether a driver is noted on the volume, and so reclaims it.
pub(super) fn is_noted(volume: &Volume) -> bool {
    let driver = volume.annotation(MIGRATED_TO);
    driver.is_some_and(|driver| !driver.is_empty())
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
