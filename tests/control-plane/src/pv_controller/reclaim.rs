//! What happens to a volume whose claim is gone: its own reclaim policy says.

use super::{
    MIGRATED_TO, PROVISIONED_BY, bind::set_volume_phase, provision::IN_TREE, volume::claim_of,
};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Key, Volume, remove_annotation},
    },
    recorder::Severity::Warning,
    resource::PERSISTENT_VOLUMES,
    store::Part,
};

/// In-tree plug-ins whose volumes a CSI driver serves; only these can be migrated.
const MIGRATED_PLUGINS: [&str; 7] = [
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
];

/// Does what the policy of a released volume says.
pub(crate) fn reclaim(cx: &mut Context, volume: Volume) -> Result<(), SyncError> {
    if volume
        .annotation(MIGRATED_TO)
        .is_some_and(|driver| !driver.is_empty())
    {
        return Ok(());
    }
    match volume.reclaim_policy() {
        "Retain" => Ok(()),
        "Delete" => delete(cx, &volume),
        "Recycle" => recycle(cx, &volume),
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            fail(cx, volume, "VolumeUnknownReclaimPolicy", message)
        }
    }
}

/// Removes the claim that a volume was migrated to a CSI driver, when whoever provisioned it is
/// not a plug-in that can be.
pub(crate) fn drop_false_migration(cx: &mut Context, volume: Volume) -> Result<Volume, SyncError> {
    let migrated = volume
        .annotation(PROVISIONED_BY)
        .is_some_and(|by| MIGRATED_PLUGINS.contains(&by));
    if migrated || volume.annotation(MIGRATED_TO).is_none() {
        return Ok(volume);
    }
    let mut new = (*volume.0).clone();
    remove_annotation(&mut new, MIGRATED_TO);
    cx.update(&PERSISTENT_VOLUMES, new, Part::Main).map(Volume)
}

/// Policy Delete. Whoever provisioned the volume from outside deletes it too; of the plug-ins
/// within, only `hostPath` has a deleter.
fn delete(cx: &mut Context, volume: &Volume) -> Result<(), SyncError> {
    let Some(volume) = still_released(cx, volume)? else {
        return Ok(());
    };
    match volume.annotation(PROVISIONED_BY) {
        Some(external) if !external.is_empty() && !external.starts_with(IN_TREE) => Ok(()),
        _ if volume["spec"]["hostPath"].is_object() => {
            leave(
                cx,
                &volume,
                "VolumeFailedDelete",
                "directories of hostPath volumes are not deleted",
            );
            Ok(())
        }
        _ => {
            let message = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                volume.name()
            );
            fail(cx, volume, "VolumeFailedDelete", &message)
        }
    }
}

/// Policy Recycle: only `hostPath` has a recycler.
fn recycle(cx: &mut Context, volume: &Volume) -> Result<(), SyncError> {
    let Some(volume) = still_released(cx, volume)? else {
        return Ok(());
    };
    if volume["spec"]["hostPath"].is_object() {
        leave(
            cx,
            &volume,
            "VolumeFailedRecycle",
            "directories of hostPath volumes are not scrubbed",
        );
        return Ok(());
    }
    fail(
        cx,
        volume,
        "VolumeFailedRecycle",
        "No recycler plugin found for the volume!",
    )
}

/// The volume as the store has it now, if it is still to be reclaimed: what is about to be
/// destroyed is never judged by a cached state.
fn still_released(cx: &mut Context, volume: &Volume) -> Result<Option<Volume>, SyncError> {
    let key = Key::cluster(volume.name());
    let Some(fresh) = cx.read(&PERSISTENT_VOLUMES, &key)?.map(Volume) else {
        return Ok(None);
    };
    let bound = fresh
        .claim_ref()
        .is_some_and(|reference| !reference.uid.is_empty());
    if fresh.uid() != volume.uid() || fresh.is_terminating() || !bound {
        return Ok(None);
    }
    let claim = claim_of(cx, &fresh)?;
    let released = claim
        .is_none_or(|claim| !claim.volume_name().is_empty() && claim.volume_name() != fresh.name());
    Ok(released.then_some(fresh))
}

/// Gives up until the next resync, visibly.
fn fail(
    cx: &mut Context,
    volume: Volume,
    reason: &'static str,
    message: &str,
) -> Result<(), SyncError> {
    let failed_already = volume.phase() == "Failed";
    let volume = set_volume_phase(cx, volume, "Failed", message)?;
    if !failed_already {
        cx.tell((&PERSISTENT_VOLUMES, &volume), Warning, reason, message);
    }
    Ok(())
}

/// Says what this control plane does not do. The volume stays Released, because nothing failed.
fn leave(cx: &mut Context, volume: &Volume, reason: &'static str, what: &str) {
    let message =
        format!("This control plane cannot reclaim the volume: {what}; it stays Released.");
    cx.tell((&PERSISTENT_VOLUMES, volume), Warning, reason, message);
}
