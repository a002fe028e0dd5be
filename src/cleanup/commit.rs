//! The commit: after it, no claim can be bound to the PV.

use serde_json::json;

use crate::cluster::{ApiError, REMEDY};
use crate::crash::crash_point;
use crate::names::{ANNOTATION_CONSENT, ANNOTATION_IDENTITY, FINALIZER};
use crate::plan::{CleanOrder, reasons};

use super::gate::Gated;
use super::{CleanupContext, Failure, LockedVolume, Stop};
use crate::types::VolumeMode;

/// A volume whose PV is Terminating and has our finalizer. Only a value of this type can be wiped, and
/// only [`Gated::commit`] creates one.
#[derive(Debug)]
pub struct Committed {
    pub(super) commit: Commit,
    pub(super) volume: Box<dyn LockedVolume>,
}

/// What a commit is about. It has no constructor besides [`Gated::commit`].
#[derive(Debug)]
pub struct Commit {
    order: CleanOrder,
    identity: String,
}

impl Commit {
    /// The PV and how its volume is cleaned.
    #[must_use]
    pub fn order(&self) -> &CleanOrder {
        &self.order
    }

    /// The recorded identity of the volume.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn into_order(self) -> CleanOrder {
        self.order
    }
}

impl Committed {
    /// Its parts, for a Job: only devices are cleaned by Jobs.
    pub(super) fn into_device(self) -> Result<(Commit, Box<dyn LockedVolume>), Failure> {
        match self.volume.candidate().kind {
            VolumeMode::Block => Ok((self.commit, self.volume)),
            VolumeMode::Filesystem => Err(Failure::new(
                reasons::VOLUME_FAILED_DELETE,
                "a cleaning Job requires a device; nothing was touched; this is a bug",
            )),
        }
    }
}

impl Gated {
    /// Adds our finalizer to the PV and deletes it. Kubernetes binds no claim to a Terminating PV, not
    /// even a claim that names it. So no claim gets the volume while it is wiped.
    ///
    /// # Errors
    /// [`Stop::Again`] when the PV changed after the gate read it.
    pub async fn commit(self, context: &CleanupContext) -> Result<Committed, Stop> {
        let Self {
            order,
            pv,
            permission,
            volume,
        } = self;
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
        if permission.consent_used {
            metadata["annotations"][ANNOTATION_CONSENT] = json!(null);
        }
        crash_point("add-finalizer");
        let patched = context.cluster.patch_pv(&pv.reference(), metadata).await;
        let pv = patched.map_err(|error| stop(error, "adding the finalizer to the PV"))?;
        if !pv.deleting {
            crash_point("delete-pv");
            let deleted = context.cluster.delete_pv(&pv.reference()).await;
            deleted.map_err(|error| stop(error, "deleting the PV before cleaning it"))?;
        }
        let commit = Commit {
            order,
            identity: permission.identity,
        };
        Ok(Committed { commit, volume })
    }
}

fn stop(error: ApiError, what: &str) -> Stop {
    match error {
        ApiError::Conflict => Stop::Again,
        ApiError::NotFound => Stop::NotDue("the PV is gone".into()),
        ApiError::Forbidden { .. } => Stop::Failed(Failure::new(
            reasons::PERMISSION_MISSING,
            format!(
                "{what} failed: {error}; without this permission no volume is cleaned; {REMEDY}, then cleaning starts automatically"
            ),
        )),
        error => Stop::Failed(Failure::new(
            reasons::VOLUME_FAILED_DELETE,
            format!("{what} failed: {error}"),
        )),
    }
}
