//! The commit: after it, no claim can be bound to the PV.

use serde_json::json;

use crate::crash::crash_point;
use crate::host::mark::{Mark, MarkOnDisk, MarkState};
use crate::names::{ANNOTATION_CONSENT, ANNOTATION_IDENTITY, FINALIZER};
use crate::plan::CleanOrder;
use crate::types::VolumeMode;

use super::gate::{gate, gate_orphan, write};
use super::mark::wiping;
use super::{BoxedVolume, CleanupContext, Stop, job};

/// The PV of a locked volume is Terminating and has our finalizer. A volume can only be wiped with it, and only
/// [`commit`] creates one.
#[derive(Debug)]
pub struct Commit {
    /// The PV and how its volume is cleaned.
    pub order: CleanOrder,
    identity: String,
    /// The mark of the volume while it is wiped. `None`: it can have none.
    pub mark: Option<Mark>,
    /// The release that the wipe is for.
    pub release: Option<String>,
}

impl Commit {
    /// The recorded identity of the volume.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The mark to write over `found`, so that it is in this state or a later one. `None`: it is already, or the volume
    /// can have none.
    pub fn mark_in(&self, state: MarkState, found: &MarkOnDisk) -> Option<Mark> {
        let mark = self.mark.clone()?;
        (!found.is_of(&mark.pv_uid, state)).then_some(Mark { state, ..mark })
    }
}

/// Passes the gate, adds our finalizer to the PV and deletes it. Kubernetes binds no claim to a Terminating PV, not
/// even a claim that names it. So no claim gets the volume while it is wiped.
///
/// # Errors
/// [`Stop`]: the next pass decides again, or the failure is reported.
pub async fn commit(
    context: &CleanupContext,
    order: &CleanOrder,
) -> Result<(Commit, BoxedVolume), Stop> {
    let (pv, permission, volume) = gate(context, order).await?;
    // Under the lock, which another provisioner of this node holds until its Job is there.
    if order.volume.candidate.kind == VolumeMode::Block {
        job::is_unchanged(context, order).await?;
    }
    let mut finalizers = pv.finalizers.clone();
    if !pv.has_finalizer() {
        finalizers.push(FINALIZER.to_owned());
    }
    // Sent even without changes: the PV was read before the volume was locked, and the previous holder
    // of the lock may have released the PV since. The API server refuses an old resourceVersion.
    let mut metadata = json!({ "finalizers": finalizers });
    if pv.identity.as_ref() != Some(&permission.identity) {
        metadata["annotations"][ANNOTATION_IDENTITY] = json!(permission.identity);
    }
    if pv.consent.is_some() {
        metadata["annotations"][ANNOTATION_CONSENT] = json!(null);
    }
    crash_point("add-finalizer");
    let patched = context.cluster.patch_pv(&pv.reference(), metadata).await;
    let mut pv = patched.map_err(write("adding the finalizer to the PV"))?;
    if !pv.deleting {
        crash_point("delete-pv");
        let deleted = context.cluster.delete_pv(&pv.reference()).await;
        let deleted = deleted.map_err(write("deleting the PV before cleaning it"))?;
        pv.release = deleted.and_then(|pv| pv.release);
    }
    let commit = Commit {
        order: order.clone(),
        identity: permission.identity,
        mark: wiping(context, &pv, volume.candidate()),
        release: pv.release,
    };
    Ok((commit, volume))
}

/// Commits a volume whose PV is gone. Nothing in the API stands for it, so its mark is the commit: it is still the one
/// that was judged.
///
/// # Errors
/// [`Stop`]: the next pass decides again, or the failure is reported.
pub async fn commit_orphan(
    context: &CleanupContext,
    order: &CleanOrder,
) -> Result<(Commit, BoxedVolume), Stop> {
    job::no_pods(context, order).await?;
    let volume = gate_orphan(context, order).await?;
    let candidate = volume.candidate();
    let commit = Commit {
        order: order.clone(),
        identity: candidate.identity.text.clone(),
        mark: wiping(context, &order.pv, candidate),
        release: None,
    };
    Ok((commit, volume))
}
