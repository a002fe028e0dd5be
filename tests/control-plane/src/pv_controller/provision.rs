//! What is said about a claim for which no volume exists. Nothing is provisioned here: an external
//! provisioner is asked by annotation, as the real controller asks it.

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
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Who shall make the volume; the older key is still written beside the newer.
const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
/// Plug-ins of this prefix would be the controller's own; here are none that make volumes.
pub(super) const IN_TREE: &str = "kubernetes.io/";

/// Whether a late-binding claim is past waiting for its pod.
pub(crate) fn is_asked_for(claim: &Claim) -> bool {
    claim.annotation(SELECTED_NODE).is_some()
}

/// Says why the claim stays without a volume, or whom it waits for.
pub(crate) fn explain(cx: &mut Context, claim: Claim) -> Result<(), SyncError> {
    let class = cx.cache.classes.get(claim.class());
    let why = match class.map(|class| class.provisioner().to_owned()) {
        None => format!("storageclass.storage.k8s.io {:?} not found", claim.class()),
        Some(plugin) if plugin.starts_with(IN_TREE) => {
            format!("no volume plugin matched name: {plugin}")
        }
        Some(external) => return ask(cx, claim, &external),
    };
    let about = (&PERSISTENT_VOLUME_CLAIMS, &*claim);
    cx.tell(about, Warning, "ProvisioningFailed", why);
    Ok(())
}

fn ask(cx: &mut Context, claim: Claim, provisioner: &str) -> Result<(), SyncError> {
    let asked = name_provisioner(cx, claim, provisioner)?;
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or \
         manually by the system administrator. If volume creation is delayed, please verify that \
         the provisioner is running and correctly registered."
    );
    let about = (&PERSISTENT_VOLUME_CLAIMS, &*asked);
    cx.tell(about, Normal, "ExternalProvisioning", message);
    Ok(())
}

/// Notes on the claim who shall make its volume.
fn name_provisioner(cx: &mut Context, claim: Claim, name: &str) -> Result<Claim, SyncError> {
    let [_, current] = STORAGE_PROVISIONER;
    if claim.annotation(current) == Some(name) {
        return Ok(claim);
    }
    let mut new = (*claim.0).clone();
    for key in STORAGE_PROVISIONER {
        set_annotation(&mut new, key, name);
    }
    cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Main).map(Claim)
}
