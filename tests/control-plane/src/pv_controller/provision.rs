//! What is said about a claim for which no volume exists. Nothing is provisioned here: an external
//! provisioner is asked by annotation, as the real controller asks it.

use super::bind::set_claim_status;
use crate::{
    controllers::{
        Context, SyncError,
        object::{Claim, set_annotation},
    },
    recorder::Severity::{Normal, Warning},
    resource::PERSISTENT_VOLUME_CLAIMS,
    store::Part,
};

/// The scheduler's request to make a volume for a late-binding claim on this node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Who shall make the volume; the older key is still written beside the newer.
const STORAGE_PROVISIONER: [&str; 2] = [
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
];
/// Plug-ins of this prefix would be the controller's own; it has none.
pub(super) const IN_TREE: &str = "kubernetes.io/";

/// Whether a late-binding claim is past waiting for its pod.
pub(crate) fn is_asked_for(claim: &Claim) -> bool {
    claim.annotation(SELECTED_NODE).is_some()
}

/// Says why the claim stays without a volume, or whom it waits for.
pub(crate) fn explain(cx: &mut Context, claim: Claim) -> Result<(), SyncError> {
    let about = &PERSISTENT_VOLUME_CLAIMS;
    let Some(class) = cx.cache.classes.get(claim.class()).cloned() else {
        let message = format!("storageclass.storage.k8s.io {:?} not found", claim.class());
        cx.tell((about, &claim), Warning, "ProvisioningFailed", message);
        set_claim_status(cx, claim, "Pending", None)?;
        return Ok(());
    };
    let provisioner = class.provisioner();
    if provisioner.starts_with(IN_TREE) {
        let message = format!("no volume plugin matched name: {provisioner}");
        cx.tell((about, &claim), Warning, "ProvisioningFailed", message);
        set_claim_status(cx, claim, "Pending", None)?;
        return Ok(());
    }
    let mut asked = claim;
    if STORAGE_PROVISIONER
        .iter()
        .any(|key| asked.annotation(key) != Some(provisioner))
    {
        let mut new = (*asked.0).clone();
        for key in STORAGE_PROVISIONER {
            set_annotation(&mut new, key, provisioner);
        }
        asked = cx.update(about, new, Part::Main).map(Claim)?;
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or \
         manually by the system administrator. If volume creation is delayed, please verify that \
         the provisioner is running and correctly registered."
    );
    cx.tell((about, &asked), Normal, "ExternalProvisioning", message);
    set_claim_status(cx, asked, "Pending", None)?;
    Ok(())
}
