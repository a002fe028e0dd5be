//! The requests that this program makes of the API server, each with a time limit.
//!
//! Reads here are fresh ones: nothing comes out of a cache. A denied request is reported until such a
//! request succeeds; nothing else follows from it.

mod jobs;
mod node_cleanup;
mod outage;
mod permissions;
mod provisioner_status;
mod retries;
mod taint;
mod uninstall;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::errors::chain;
use crate::metrics::Metrics;
use crate::names::LABEL_HOSTNAME;
use crate::types::HostPath;
use crate::view::{PvRef, PvView};

pub(crate) use jobs::{JOBS, jobs_of};
pub use node_cleanup::BoundClaim;
pub(crate) use outage::is_unreachable;
use permissions::lacks_right;
pub use permissions::{Permissions, REMEDY};
pub(crate) use retries::retries;
pub use uninstall::{DaemonSetState, ProvisionerPod};

/// How long one request may take, the client's own retries on 429 and 503 included.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// Why a request failed. There are four classes: a conflict or a missing object, which is read again; a
/// refusal, after which this object backs off while others go on; what passes, which is retried; and a
/// bug. A write whose answer is lost is not read back: the next pass finds what came of it.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Conflict: the object changed, or is another one than was meant.
    #[error("the object has changed since it was looked at")]
    Conflict,
    /// Conflict: the name is taken.
    #[error("an object of that name exists already")]
    AlreadyExists,
    /// Gone: the object does not exist.
    #[error("the object does not exist")]
    NotFound,
    /// Refused: a permission is missing.
    #[error("the API server denies the right to {verb} {resource}: {message}")]
    Forbidden {
        /// `get`, `list`, `patch`, ...
        verb: &'static str,
        /// The resource's plural name.
        resource: &'static str,
        /// The API server's words.
        message: String,
    },
    /// Refused: by validation, admission, a policy or a quota.
    #[error("the API server refuses it: {0}")]
    Invalid(String),
    /// Passing: no answer in time.
    #[error("the API server did not answer within {TIME_LIMIT:?}")]
    TimedOut,
    /// Passing: server errors, 429, broken connections.
    #[error("the request to the API server failed: {0}")]
    Failed(String),
    /// A request that the API server does not understand.
    #[error("the API server does not understand the request, which is a bug: {0}")]
    Bug(String),
}

impl ApiError {
    /// Whether the same request may succeed in a moment.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Failed(_))
    }
}

/// A claim, as far as the gate before a wipe needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// The UID.
    pub uid: String,
    /// When it was made.
    pub created: Option<Timestamp>,
}

/// A Pod, as far as the gate before a wipe needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// `namespace/name`.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Whether it has ended: Succeeded or Failed.
    pub terminal: bool,
    /// When the kubelet took it up, or else when it was made.
    pub started: Option<Timestamp>,
    /// The names of the claims that it uses.
    pub claims: Vec<String>,
    /// The paths of the node that it mounts.
    pub host_paths: Vec<PathBuf>,
}

impl PodView {
    /// Whether it has not ended and mounts this path of the node, or one below it.
    #[must_use]
    pub fn mounts(&self, path: &HostPath) -> bool {
        let mut mounted = self.host_paths.iter();
        !self.terminal && mounted.any(|it| it.starts_with(path.as_str()))
    }
}

/// The API server, as this program uses it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    metrics: Arc<Metrics>,
    permissions: Arc<Permissions>,
    /// When a probe was answered last.
    answered: Arc<tokio::sync::Mutex<Option<tokio::time::Instant>>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

const PVS: &str = "persistentvolumes";

impl Cluster {
    /// Uses a client.
    #[must_use]
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            metrics,
            permissions: Arc::default(),
            answered: Arc::default(),
        }
    }

    /// The client, for watches and events.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The metrics, for what is counted beside the requests.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The permissions that were denied.
    #[must_use]
    pub fn permissions(&self) -> &Arc<Permissions> {
        &self.permissions
    }

    fn pvs(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Reads a Node's metadata.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn node(&self, name: &str) -> Result<kube::api::ObjectMeta, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = self.limited("nodes", "get", api.get_metadata(name)).await?;
        Ok(node.metadata)
    }

    /// Reads a PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pv(&self, name: &str) -> Result<Option<PvView>, ApiError> {
        let pv = self.limited(PVS, "get", self.pvs().get_opt(name)).await?;
        Ok(pv.as_ref().map(PvView::from_api))
    }

    /// Creates a PV.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_pv(&self, pv: &PersistentVolume) -> Result<PvView, ApiError> {
        let (pvs, params) = (self.pvs(), PostParams::default());
        let created = self.counted("create", pvs.create(&params, pv)).await?;
        Ok(PvView::from_api(&created))
    }

    /// Merges `metadata` into a PV's, if it is still the very object and version that `pv` names:
    /// otherwise the API server answers with a conflict.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn patch_pv(&self, pv: &PvRef, metadata: Value) -> Result<PvView, ApiError> {
        self.merge_pv(pv, json!({ "metadata": metadata })).await
    }

    /// Removes our finalizer by leaving these `others`; otherwise as [`Self::patch_pv`].
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
        let body = Patch::Merge(body);
        let pvs = self.pvs();
        let params = PatchParams::default();
        let patched = self
            .limited(PVS, "patch", pvs.patch(&pv.name, &params, &body))
            .await?;
        Ok(PvView::from_api(&patched))
    }

    /// Deletes a PV, if it is still the very object and version that `pv` names.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_pv(&self, pv: &PvRef) -> Result<(), ApiError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(pv.uid.clone()),
            resource_version: Some(pv.resource_version.clone()),
        });
        let pvs = self.pvs();
        self.counted("delete", pvs.delete(&pv.name, &params))
            .await
            .map(drop)
    }

    /// Reads a claim.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<ClaimView>, ApiError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let found = self
            .limited("persistentvolumeclaims", "get", api.get_metadata_opt(name))
            .await?;
        Ok(found.map(|claim| ClaimView {
            uid: claim.metadata.uid.unwrap_or_default(),
            created: claim.metadata.creation_timestamp.map(|time| time.0),
        }))
    }

    /// Lists the Pods of a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pods_of(&self, node: &str) -> Result<Vec<PodView>, ApiError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = self.limited("pods", "list", api.list(&params)).await?;
        Ok(pods.items.iter().map(pod_view).collect())
    }

    /// Lists the PVs without a hostname label and keeps those that `wanted` is true of. All other PVs
    /// that our side knows of have the label.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn unlabelled_pvs(
        &self,
        wanted: impl Fn(&PvView) -> bool,
    ) -> Result<Vec<PvView>, ApiError> {
        let unlabelled = ListParams::default().labels(&format!("!{LABEL_HOSTNAME}"));
        self.pvs_in_pages(unlabelled, wanted).await
    }

    /// Lists PVs page by page, and never holds more than a page beside those that are `wanted`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn pvs_in_pages(
        &self,
        params: ListParams,
        wanted: impl Fn(&PvView) -> bool,
    ) -> Result<Vec<PvView>, ApiError> {
        let mut kept = Vec::new();
        let mut params = params.limit(PAGE);
        loop {
            let pvs = self.pvs();
            let page = self.limited(PVS, "list", pvs.list(&params)).await?;
            kept.extend(page.items.iter().map(PvView::from_api).filter(&wanted));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(kept),
            }
        }
    }

    /// Counts a watch that broke, and records whether it was denied.
    pub fn watch_broke(&self, resource: &'static str, error: &watcher::Error) {
        self.metrics
            .watch_restarts_total
            .with_label_values(&[resource])
            .inc();
        if let Some((verb, status)) = refused(error).filter(|(_, status)| status.code == 403) {
            self.permissions
                .denied(resource, verb, status.message.clone());
        }
    }

    /// Counts and times the request, for the metrics that the Go provisioner has too.
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

    /// Makes a request within the time limit, and classifies its error.
    pub(crate) async fn limited<T>(
        &self,
        resource: &'static str,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        let Ok(answer) = tokio::time::timeout(TIME_LIMIT, request).await else {
            return Err(ApiError::TimedOut);
        };
        match answer {
            Ok(value) => {
                self.permissions.granted(resource, verb);
                Ok(value)
            }
            Err(kube::Error::Api(status)) => {
                let message = status.message.clone();
                if lacks_right(&status) {
                    self.permissions.denied(resource, verb, message.clone());
                    return Err(ApiError::Forbidden {
                        verb,
                        resource,
                        message,
                    });
                }
                let error = match status.code {
                    409 if status.reason == "AlreadyExists" => ApiError::AlreadyExists,
                    409 => ApiError::Conflict,
                    404 => ApiError::NotFound,
                    403 | 422 => ApiError::Invalid(message),
                    400 | 405 | 406 | 415 => ApiError::Bug(message),
                    code => {
                        return Err(ApiError::Failed(format!(
                            "{code} {}: {message}",
                            status.reason
                        )));
                    }
                };
                // The object is looked at only after the right.
                self.permissions.granted(resource, verb);
                Err(error)
            }
            Err(error) => Err(ApiError::Failed(chain(&error))),
        }
    }
}

/// What the API server refused a watch, and in which words.
fn refused(error: &watcher::Error) -> Option<(&'static str, &Status)> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => Some(("list", status)),
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(("watch", status)),
        _ => None,
    }
}

/// Whether a watch was denied.
pub(crate) fn is_denied(error: &watcher::Error) -> bool {
    refused(error).is_some_and(|(_, status)| status.code == 403)
}

/// Why a watch broke, in a line.
pub(crate) fn why_broken(error: &watcher::Error) -> String {
    match refused(error) {
        Some((_, status)) => format!("{} {}: {}", status.code, status.reason, status.message),
        None => chain(error),
    }
}

/// A JSON patch of these operations.
fn json_patch(operations: Value) -> Result<Patch<Value>, ApiError> {
    let operations = serde_json::from_value(operations);
    let operations = operations.map_err(|error| ApiError::Bug(error.to_string()))?;
    Ok(Patch::Json(operations))
}

fn pod_view(pod: &Pod) -> PodView {
    let metadata = &pod.metadata;
    let status = pod.status.as_ref();
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let volumes = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.volumes.as_ref())
        .into_iter()
        .flatten();
    let host_paths = volumes
        .clone()
        .filter_map(|volume| Some(volume.host_path.as_ref()?.path.clone().into()))
        .collect();
    let claims = volumes
        .filter_map(|volume| {
            let named = volume
                .persistent_volume_claim
                .as_ref()
                .map(|claim| claim.claim_name.clone());
            // A generic ephemeral volume's claim is named after the Pod and the volume.
            named.or_else(|| {
                volume
                    .ephemeral
                    .as_ref()
                    .map(|_| format!("{name}-{}", volume.name))
            })
        })
        .collect();
    PodView {
        name: format!("{namespace}/{name}"),
        namespace,
        terminal: status
            .and_then(|status| status.phase.as_deref())
            .is_some_and(|phase| phase == "Succeeded" || phase == "Failed"),
        started: status
            .and_then(|status| status.start_time.as_ref())
            .or(metadata.creation_timestamp.as_ref())
            .map(|time| time.0),
        claims,
        host_paths,
    }
}
