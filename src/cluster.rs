//! The requests to the API server, each with a time limit.
//!
//! Reads never come from a cache, except the paths of the claims of running Pods. A denied permission is reported until a request with it succeeds, and has no
//! other effect.

mod claims;
mod jobs;
mod nodes;
mod origin;
mod outage;
mod permissions;
mod pods;
mod pvs;
mod retries;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ListParams, PostParams, Preconditions};
use kube::core::{Request, Status};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::errors::chain;
use crate::metrics::Metrics;

pub(crate) use jobs::{JOBS, jobs_of};
pub use origin::Origin;
pub(crate) use outage::is_unreachable;
use permissions::lacks_permission;
pub use permissions::{Permissions, REMEDY};
use pods::ClaimedPaths;
pub(crate) use pods::JOB_IMAGE_VARIABLE;
pub use pods::PodView;
pub(crate) use retries::retries;

/// How long one request may take, the client's own retries on 429 and 503 included.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// The number of objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// Why a request failed. There are four classes: a change of the object, which is read again; a refusal, after which
/// only this object backs off; a transient error, which is retried; and a bug. A write whose response is lost is not
/// read back: the next pass sees its result.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Change: the object has another version or UID than the request names, or the name of a new one is taken.
    #[error("the object has changed since it was read, or another one has its name")]
    Conflict,
    /// Change: the object does not exist.
    #[error("the object does not exist")]
    NotFound,
    /// Refused: a permission is missing.
    #[error("the API server denies permission to {verb} {resource}: {message}")]
    Forbidden {
        /// `get`, `list`, `patch`, ...
        verb: &'static str,
        /// The resource's plural name.
        resource: &'static str,
        /// The API server's message.
        message: String,
    },
    /// Refused: by validation, admission, a policy or a quota.
    #[error("the API server refuses it: {0}")]
    Invalid(String),
    /// Transient: server errors, 429, failed connections, no response in time.
    #[error("the request to the API server failed: {0}")]
    Failed(String),
    /// Transient: a disk prevents what belongs to the request.
    #[error("{0}")]
    Disk(String),
    /// A request that the API server does not understand.
    #[error("the API server does not understand the request, which is a bug: {0}")]
    Bug(String),
}

impl ApiError {
    /// Whether the same request may succeed if it is retried.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Disk(_))
    }

    /// Whether the object has changed or is gone, so that the next pass decides again.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Conflict | Self::NotFound)
    }

    /// Whether a later try may succeed without a repair.
    pub fn is_retriable(&self) -> bool {
        self.is_passing() || self.is_change()
    }
}

/// The fields of a claim that its deletion, and the gate before a wipe, require.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// The UID.
    pub uid: String,
    /// The version.
    pub resource_version: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// `spec.volumeName`.
    pub volume: Option<String>,
    /// Whether its binding to that volume is complete.
    pub is_bound: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `status.phase`.
    pub phase: Option<String>,
    /// The UID of the Pod whose generic ephemeral volume it is.
    pub of_pod: Option<String>,
}

/// A client of the API server.
#[derive(Clone)]
pub struct Cluster {
    /// For watches and events, too.
    pub client: Client,
    /// For other users of the client, too.
    pub metrics: Arc<Metrics>,
    /// The permissions that were denied.
    pub permissions: Arc<Permissions>,
    /// The cluster in which this process started.
    pub origin: Arc<Origin>,
    clock: fn() -> Timestamp,
    /// When the latest probe was answered.
    answered: Arc<tokio::sync::Mutex<Option<tokio::time::Instant>>>,
    outages: watch::Sender<u64>,
    /// The newest version of a PV that a watch has shown, and how often etcd was restored to an earlier one.
    newest_pv: Arc<AtomicU64>,
    restores: Arc<AtomicU64>,
    claimed: Arc<Mutex<ClaimedPaths>>,
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Wraps a client.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            metrics,
            permissions: Arc::default(),
            origin: Arc::default(),
            clock: Timestamp::now,
            answered: Arc::default(),
            outages: watch::Sender::default(),
            newest_pv: Arc::default(),
            restores: Arc::default(),
            claimed: Arc::default(),
        }
    }

    /// Replaces the wall clock, which is only compared with dates of the API and written to it.
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Creates an object, and reads the answer as `K`.
    fn create<K: Resource<DynamicType = ()> + DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        object: &impl Serialize,
    ) -> Result<impl Future<Output = kube::Result<K>>, ApiError> {
        let bug = |error: &dyn fmt::Display| ApiError::Bug(error.to_string());
        let bytes = serde_json::to_vec(object).map_err(|error| bug(&error))?;
        let request =
            Request::new(K::url_path(&(), namespace)).create(&PostParams::default(), bytes);
        Ok(self.client.request(request.map_err(|error| bug(&error))?))
    }

    /// Lists objects page by page, and holds only one page besides the results of `keep`.
    pub(crate) async fn list_pages<K: Clone + Debug + DeserializeOwned, T>(
        &self,
        resource: &'static str,
        api: Api<K>,
        params: ListParams,
        keep: impl Fn(K) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let mut kept = Vec::new();
        let mut params = params.limit(PAGE_SIZE);
        loop {
            let page = self.limited(resource, "list", api.list(&params)).await?;
            kept.extend(page.items.into_iter().filter_map(&keep));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(kept),
            }
        }
    }

    /// Reads an object. That it does not exist is believed only from our cluster.
    async fn find<T>(
        &self,
        resource: &'static str,
        request: impl Future<Output = kube::Result<Option<T>>>,
    ) -> Result<Option<T>, ApiError> {
        let found = self.limited(resource, "get", request).await?;
        if found.is_none() {
            Box::pin(self.ensure_known()).await?;
        }
        Ok(found)
    }

    /// Makes a request within the time limit, and classifies its error. A write is sent only to our cluster.
    pub(crate) async fn limited<T>(
        &self,
        resource: &'static str,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        if !matches!(verb, "get" | "list") && self.origin.verified().is_err() {
            Box::pin(self.ensure_known()).await?;
        }
        match tokio::time::timeout(TIME_LIMIT, request).await {
            Err(_) => Err(ApiError::Failed(format!("no answer within {TIME_LIMIT:?}"))),
            Ok(Ok(value)) => {
                self.permissions.granted(resource, verb);
                Ok(value)
            }
            Ok(Err(kube::Error::Api(status))) => {
                let message = status.message.clone();
                if lacks_permission(&status) {
                    self.permissions.denied(resource, verb, message.clone());
                    return Err(ApiError::Forbidden { verb, resource, message });
                }
                let error = match status.code {
                    409 => ApiError::Conflict,
                    404 => ApiError::NotFound,
                    403 | 422 => ApiError::Invalid(message),
                    400 | 405 | 406 | 415 => ApiError::Bug(message),
                    code => ApiError::Failed(format!("{code} {}: {message}", status.reason)),
                };
                // The API server checks the permission before it reads the object.
                if !error.is_passing() {
                    self.permissions.granted(resource, verb);
                }
                Err(error)
            }
            Ok(Err(error)) => Err(ApiError::Failed(chain(&error))),
        }
    }
}

/// The verb that the API server refused to a watch, and its response.
pub(crate) fn refused(error: &watcher::Error) -> Option<(&'static str, &Status)> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => Some(("list", status)),
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(("watch", status)),
        _ => None,
    }
}

fn without_uid() -> ApiError {
    ApiError::Failed("the response has no metadata.uid".to_owned())
}

/// Requires the object with this UID, and this version if one is given.
fn only(uid: &str, version: Option<&str>) -> Preconditions {
    Preconditions { uid: Some(uid.to_owned()), resource_version: version.map(str::to_owned) }
}
