//! The binding of a claim and a volume, and its undoing.
//!
//! Binding is four writes in a fixed order. Each is left out when it is done already, so a binding
//! that was interrupted anywhere goes on from there when either side is looked at again.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Claim, Volume, remove_annotation, set_annotation},
    },
    resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES},
    store::Part,
};

/// Binds the two to each other.
pub(crate) fn bind(cx: &mut Context, volume: Volume, claim: Claim) -> Result<(), SyncError> {
    let volume = reserve(cx, volume, &claim)?;
    let volume = set_volume_phase(cx, volume, "Bound", "")?;
    let claim = name_volume(cx, claim, &volume)?;
    set_claim_status(cx, claim, "Bound", Some(&volume))?;
    Ok(())
}

/// The first write: the volume names the claim, with its UID. The scheduler makes it for claims
/// that bind late, and leaves the other three to the controller.
pub(crate) fn reserve(
    cx: &mut Context,
    volume: Volume,
    claim: &Claim,
) -> Result<Volume, SyncError> {
    let present = volume.claim_ref();
    let named = present.is_some_and(|reference| reference.names(claim));
    if named && present.is_some_and(|reference| !reference.uid.is_empty()) {
        return Ok(volume);
    }
    let mut new = (*volume.0).clone();
    new["spec"]["claimRef"] = json!({
        "apiVersion": "v1",
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "namespace": claim.namespace(),
        "name": claim.name(),
        "uid": claim.uid(),
        "resourceVersion": claim["metadata"]["resourceVersion"],
    });
    if !named {
        set_annotation(&mut new, BOUND_BY_CONTROLLER, "yes");
    }
    cx.update(&PERSISTENT_VOLUMES, new, Part::Main).map(Volume)
}

/// The second write, and every other change of a volume's phase.
pub(crate) fn set_volume_phase(
    cx: &mut Context,
    volume: Volume,
    phase: &str,
    message: &str,
) -> Result<Volume, SyncError> {
    if volume.phase() == phase {
        return Ok(volume);
    }
    let mut new = (*volume.0).clone();
    new["status"]["phase"] = phase.into();
    set_or_remove(&mut new["status"], "message", (!message.is_empty()).then(|| message.into()));
    cx.update(&PERSISTENT_VOLUMES, new, Part::Status).map(Volume)
}

/// The third write: the claim names the volume, and the binding counts as completed.
fn name_volume(cx: &mut Context, claim: Claim, volume: &Volume) -> Result<Claim, SyncError> {
    let named = claim.volume_name() == volume.name();
    if named && claim.annotation(BIND_COMPLETED).is_some() {
        return Ok(claim);
    }
    let mut new = (*claim.0).clone();
    if !named {
        new["spec"]["volumeName"] = volume.name().into();
        set_annotation(&mut new, BOUND_BY_CONTROLLER, "yes");
    }
    set_annotation(&mut new, BIND_COMPLETED, "yes");
    cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Main).map(Claim)
}

/// The fourth write, and every other change of a claim's status. Access modes follow the volume;
/// the capacity is noted when the claim becomes Bound and stays, as does the attributes class when
/// it leaves Pending: from then on the resizer of the volume maintains them. Without a
/// volume all of them go.
pub(crate) fn set_claim_status(
    cx: &mut Context,
    claim: Claim,
    phase: &str,
    volume: Option<&Volume>,
) -> Result<Claim, SyncError> {
    let mut new: Value = claim["status"].clone();
    new["phase"] = phase.into();
    match volume {
        None => {
            for field in ["accessModes", "capacity", "currentVolumeAttributesClassName"] {
                set_or_remove(&mut new, field, None);
            }
        }
        Some(volume) => {
            new["accessModes"] = volume["spec"]["accessModes"].clone();
            if claim.phase() != phase {
                new["capacity"]["storage"] = volume["spec"]["capacity"]["storage"].clone();
            }
            if claim.phase() == "Pending" && phase == "Bound" {
                let class = volume.attributes_class();
                let class = (!class.is_empty()).then(|| class.into());
                set_or_remove(&mut new, "currentVolumeAttributesClassName", class);
            }
        }
    }
    if new == claim["status"] {
        return Ok(claim);
    }
    let mut whole = Arc::unwrap_or_clone(claim.0);
    whole["status"] = new;
    cx.update(&PERSISTENT_VOLUME_CLAIMS, whole, Part::Status).map(Claim)
}

/// Frees a volume from its claim: what the controller chose goes, what the user chose is reserved
/// again (only the UID goes). Then it is Available.
pub(crate) fn unbind(cx: &mut Context, volume: &Volume) -> Result<(), SyncError> {
    let mut new = (*volume.0).clone();
    if volume.annotation(BOUND_BY_CONTROLLER).is_some() {
        set_or_remove(&mut new["spec"], "claimRef", None);
        remove_annotation(&mut new, BOUND_BY_CONTROLLER);
    } else {
        set_or_remove(&mut new["spec"]["claimRef"], "uid", None);
    }
    let freed = cx.update(&PERSISTENT_VOLUMES, new, Part::Main).map(Volume)?;
    set_volume_phase(cx, freed, "Available", "")?;
    Ok(())
}

fn set_or_remove(object: &mut Value, field: &str, value: Option<Value>) {
    match (value, object.as_object_mut()) {
        (Some(value), _) => object[field] = value,
        (None, Some(fields)) => {
            fields.remove(field);
        }
        (None, None) => {}
    }
}
