//! Writes whose answers may be lost. What was done all the same has to be told and counted, and for what
//! it was: a later look finds only that somebody has done it. So they look at once. Even then a look cannot
//! tell our deed from another's who did the same: what it finds is taken for ours.

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{ApiError, Cluster};
use crate::view::{PvRef, PvView};

/// The answer to a write; where it is lost, what `look` finds to have come of it, if anything.
pub(super) async fn or_look<T>(
    write: impl AsyncFnOnce() -> Result<T, ApiError>,
    look: impl AsyncFnOnce() -> Result<Option<T>, ApiError>,
) -> Result<T, ApiError> {
    // On the heap, or each future around it would be as large as both.
    match Box::pin(write()).await {
        Err(error) if error.is_passing() => Box::pin(look()).await.ok().flatten().ok_or(error),
        answer => answer,
    }
}

/// Whether an object has labels, annotations and whatever else is `wanted` of its metadata.
pub(super) fn has(metadata: &ObjectMeta, wanted: &Value) -> bool {
    is_merged(&json!(metadata), wanted)
}

/// Whether a merge patch would change nothing.
fn is_merged(value: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(key, patch)| {
            let found = value.get(key).unwrap_or(&Value::Null);
            is_merged(found, patch)
        }),
        patch => value == patch,
    }
}

impl Cluster {
    /// Makes a PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_pv(&self, pv: &PersistentVolume) -> Result<PvView, ApiError> {
        let metadata = &pv.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let wanted = json!({ "labels": metadata.labels, "annotations": metadata.annotations });
        let look = async || {
            let found = self.whole_pv(name).await?;
            let ours = found.filter(|found| has(&found.metadata, &wanted));
            Ok(ours.as_ref().map(PvView::from_api))
        };
        let (pvs, params) = (self.pvs(), PostParams::default());
        let create = pvs.create(&params, pv);
        let create = async || {
            let created = self.counted("create", create).await?;
            Ok(PvView::from_api(&created))
        };
        or_look(create, look).await
    }

    /// As [`Self::patch_pv`], for any part of a PV. The PV may be a later version than the patch has made, so nothing is to
    /// follow from it that must not meet another's change.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn patch_pv_surely(&self, pv: &PvRef, patch: Value) -> Result<PvView, ApiError> {
        let wanted = patch.clone();
        let look = async || {
            let found = self.whole_pv(&pv.name).await?;
            let is_it = |found: &PersistentVolume| found.metadata.uid.as_ref() == Some(&pv.uid);
            let done = found.filter(|found| is_it(found) && is_merged(&json!(found), &wanted));
            Ok(done.as_ref().map(PvView::from_api))
        };
        or_look(async || self.merge_into_pv(pv, patch).await, look).await
    }

    /// Takes our finalizer off a PV by leaving these `others` on it, if it is still the very object and
    /// version that `pv` names.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn take_finalizer_off(&self, pv: &PvRef, others: &[String]) -> Result<(), ApiError> {
        let metadata = json!({ "finalizers": others });
        let patch = async || self.patch_pv(pv, metadata).await.map(drop);
        let look = async || {
            let found = self.pv(&pv.name).await?;
            let held = found.is_some_and(|now| now.uid == pv.uid && now.has_finalizer());
            Ok((!held).then_some(()))
        };
        or_look(patch, look).await
    }

    /// As [`Self::delete_pv`]; it may be gone, or Terminating for as long as finalizers hold it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_pv_surely(&self, pv: &PvRef) -> Result<(), ApiError> {
        let look = async || {
            let found = self.pv(&pv.name).await?;
            let stays = found.is_some_and(|now| now.uid == pv.uid && !now.deleting);
            Ok((!stays).then_some(()))
        };
        or_look(async || self.delete_pv(pv).await, look).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_merged_when_it_would_change_nothing() {
        let found = json!({
            "uid": "u", "finalizers": ["a", "b"], "annotations": { "one": "1", "two": "2" },
        });
        for (patch, merged) in [
            (json!({}), true),
            (json!({ "annotations": { "one": "1" } }), true),
            (json!({ "annotations": { "one": "2" } }), false),
            (json!({ "annotations": { "three": null } }), true),
            (json!({ "annotations": { "two": null } }), false),
            (json!({ "labels": { "one": "1" } }), false),
            (json!({ "labels": { "one": null } }), true),
            (json!({ "labels": null }), true),
            (json!({ "finalizers": ["a", "b"] }), true),
            (json!({ "finalizers": ["b"] }), false),
        ] {
            assert_eq!(is_merged(&found, &patch), merged, "{patch}");
        }
    }

    #[tokio::test]
    async fn only_an_answer_that_is_lost_makes_anybody_look() {
        let answer =
            |look: Result<Option<u8>, ApiError>, write| or_look(async || write, async || look);
        assert!(matches!(answer(Ok(Some(2)), Ok(1)).await, Ok(1)));
        let found = answer(Ok(Some(2)), Err(ApiError::TimedOut)).await;
        assert!(matches!(found, Ok(2)), "{found:?}");
        for look in [Ok(None), Err(ApiError::Failed("busy".into()))] {
            let lost = answer(look, Err(ApiError::TimedOut)).await;
            assert!(matches!(lost, Err(ApiError::TimedOut)), "{lost:?}");
        }
        let refused = answer(Ok(Some(2)), Err(ApiError::Conflict)).await;
        assert!(matches!(refused, Err(ApiError::Conflict)), "{refused:?}");
    }
}
