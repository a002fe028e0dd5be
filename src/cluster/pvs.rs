//! The requests about PVs.
//!
//! Each write names the UID and the version of its PV, so that it never changes another PV or a newer version.

use k8s_openapi::api::core::v1::PersistentVolume as FullPv;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ApiError, Cluster, only, without_uid};
use crate::names::LABEL_IDENTITY_HASH;
use crate::view::{PersistentVolume, PvRef, PvView};

pub(super) const PVS: &str = "persistentvolumes";
/// The identity hashes that one list selects.
const HASHES_PER_LIST: usize = 100;

impl Cluster {
    pub(super) fn pvs(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Reads a PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pv(&self, name: &str) -> Result<Option<PvView>, ApiError> {
        let pv = self.find(PVS, self.pvs().get_opt(name)).await?;
        pv.as_ref().map(view).transpose()
    }

    /// Reads a PV with all fields.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pv_manifest(&self, name: &str) -> Result<Value, ApiError> {
        let pvs: Api<FullPv> = Api::all(self.client.clone());
        let found = self.limited(PVS, "get", pvs.get(name)).await?;
        serde_json::to_value(found).map_err(|error| ApiError::Bug(error.to_string()))
    }

    /// Creates a PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_pv(&self, pv: &Value) -> Result<PvView, ApiError> {
        let created = self.create::<PersistentVolume>(None, pv)?;
        view(&self.counted("create", created).await?)
    }

    /// Merges `metadata` into the metadata of a PV. The API server returns a conflict unless the PV has the UID and
    /// the version of `pv`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn patch_pv(&self, pv: &PvRef, metadata: Value) -> Result<PvView, ApiError> {
        self.merge_pv(pv, json!({ "metadata": metadata })).await
    }

    /// Replaces the finalizers by the `others`, without ours, as [`Self::patch_pv`].
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn remove_finalizer(&self, pv: &PvRef, others: &[String]) -> Result<(), ApiError> {
        let metadata = json!({ "finalizers": others });
        self.patch_pv(pv, metadata).await.map(drop)
    }

    /// As [`Self::patch_pv`], for any part of a PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn merge_pv(&self, pv: &PvRef, mut body: Value) -> Result<PvView, ApiError> {
        body["metadata"]["uid"] = pv.uid.clone().into();
        body["metadata"]["resourceVersion"] = pv.resource_version.clone().into();
        let (pvs, params, body) = (self.pvs(), PatchParams::default(), Patch::Merge(body));
        let patched = pvs.patch(&pv.name, &params, &body);
        view(&self.limited(PVS, "patch", patched).await?)
    }

    /// Deletes a PV, if it has the UID and the version of `pv`. Returns it if a finalizer keeps it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_pv(&self, pv: &PvRef) -> Result<Option<PvView>, ApiError> {
        let seen = only(&pv.uid, Some(&pv.resource_version));
        let (pvs, params) = (self.pvs(), DeleteParams::default().preconditions(seen));
        let deleted = pvs.delete(&pv.name, &params);
        let deleted = self.counted("delete", deleted).await?;
        Ok(deleted.left().as_ref().map(PvView::from_api))
    }

    /// Lists the `wanted` PVs page by page.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pvs_in_pages(
        &self,
        params: ListParams,
        wanted: impl Fn(&PvView) -> bool,
    ) -> Result<Vec<PvView>, ApiError> {
        let keep = move |pv: PersistentVolume| Some(PvView::from_api(&pv)).filter(&wanted);
        self.list_pages(PVS, self.pvs(), params, keep).await
    }

    /// Lists all PVs with one of these identity hashes.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pvs_with_identities(&self, hashes: &[&str]) -> Result<Vec<PvView>, ApiError> {
        let mut found = Vec::new();
        for some in hashes.chunks(HASHES_PER_LIST) {
            let selector = format!("{LABEL_IDENTITY_HASH} in ({})", some.join(","));
            let params = ListParams::default().labels(&selector);
            found.extend(self.pvs_in_pages(params, |_| true).await?);
        }
        Ok(found)
    }

    /// Counts and times a request, for metrics that the Go provisioner also has.
    async fn counted<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        let begun = Instant::now();
        let result = self.limited(PVS, verb, request).await;
        self.metrics.request(verb, begun.elapsed(), result.is_err());
        result
    }
}

/// A PV without UID is no PV.
fn view(pv: &PersistentVolume) -> Result<PvView, ApiError> {
    let view = PvView::from_api(pv);
    if view.uid.is_empty() {
        return Err(without_uid());
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::http::Uri;
    use kube::Client;

    use crate::metrics::Metrics;

    use super::*;

    #[tokio::test]
    async fn one_list_selects_100_hashes_and_every_page_is_read() {
        let asked = Arc::<Mutex<Vec<(usize, bool)>>>::default();
        let seen = Arc::clone(&asked);
        let server = Router::new().fallback(move |uri: Uri| {
            let query = uri.query().unwrap_or_default();
            let is_first_page = !query.contains("continue=");
            let hashes = query.matches("hash-").count();
            seen.lock().unwrap().push((hashes, is_first_page));
            let token = if is_first_page { "more" } else { "" };
            let pv = json!({ "metadata": { "name": "pv" } });
            let list = json!({
                "kind": "PersistentVolumeList", "apiVersion": "v1",
                "metadata": { "continue": token }, "items": [pv],
            });
            std::future::ready(list.to_string())
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let hashes: Vec<_> = (0..150).map(|number| format!("hash-{number}")).collect();
        let hashes: Vec<_> = hashes.iter().map(String::as_str).collect();
        let found = cluster.pvs_with_identities(&hashes).await.unwrap();
        assert_eq!(found.len(), 4);
        let pages = [(100, true), (100, false), (50, true), (50, false)];
        assert_eq!(*asked.lock().unwrap(), pages);
    }
}
