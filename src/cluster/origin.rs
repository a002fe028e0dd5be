//! Stops all writes while the address of the API server leads to another cluster.
//!
//! A cluster is known by the UID of its namespace kube-system. A copy has the same UID, but one from before this
//! process started does not have our Pod. Both are read at the start, after a failed connection, when a watch cannot
//! resume, and before a missing object ends anything; never without such a cause.

#[cfg(test)]
mod tests;

use http::Request;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{ApiError, Cluster, without_uid};

/// The denials in sequence that an API server that starts may send.
const MAX_DENIALS: usize = 3;

/// What our cluster is recognised by.
#[derive(Debug, Default)]
pub struct Origin {
    state: Mutex<State>,
    /// See [`Origin::epoch`].
    epoch: watch::Sender<u64>,
    /// When the latest check began.
    checked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct State {
    objects: Vec<Object>,
    /// Why no write is sent before the next check.
    doubt: Option<String>,
    /// Whether the latest check found another cluster.
    is_other: bool,
    /// How many checks in sequence were denied.
    denials: usize,
}

#[derive(Clone, Debug)]
struct Object {
    resource: &'static str,
    path: String,
    /// `None`: not known yet.
    uid: Option<String>,
    /// Whether the permission was ever there. An API server that starts denies everything at first.
    was_read: bool,
}

impl Origin {
    /// Compares our Pod from now on, if its UID is known, and the UID of the cluster if `has_uid`.
    pub fn compare(&self, pod: &ObjectReference, has_uid: bool) {
        let object = |resource, path, uid| Object {
            resource,
            path: format!("/api/v1/namespaces/{path}"),
            uid,
            was_read: false,
        };
        let cluster = has_uid.then(|| object("namespaces", "kube-system".to_owned(), None));
        let mut objects = Vec::from_iter(cluster);
        if let (Some(uid), Some(namespace), Some(name)) = (&pod.uid, &pod.namespace, &pod.name) {
            let path = format!("{namespace}/pods/{name}");
            objects.push(object("pods", path, Some(uid.clone())));
        }
        self.state.lock().objects = objects;
        self.doubt("this process starts");
    }

    /// The UID of our cluster, which marks name. `None`: it is not compared, or the permission to read it is missing.
    pub fn uid(&self) -> Option<String> {
        let objects = &self.state.lock().objects;
        let cluster = objects.iter().find(|it| it.resource == "namespaces");
        cluster?.uid.clone()
    }

    /// Incremented by each doubt, and when another cluster answers. What was read before may be outdated.
    pub fn epoch(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }

    /// Why all writes are stopped, if another cluster answers.
    pub fn other(&self) -> Option<String> {
        let state = self.state.lock();
        state.doubt.clone().filter(|_| state.is_other)
    }

    /// The next write waits for a check.
    pub(super) fn doubt(&self, why: &str) {
        let mut state = self.state.lock();
        if !state.is_other {
            state.doubt = Some(format!("the cluster is not verified: {why}"));
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    /// Counts a denial. Returns whether the permission is missing for good: then the object is not compared.
    fn lasts(&self) -> bool {
        let mut state = self.state.lock();
        state.denials += 1;
        state.denials > MAX_DENIALS
    }

    /// Whether the cluster is verified.
    ///
    /// # Errors
    /// [`ApiError::Failed`] with the doubt.
    pub fn verified(&self) -> Result<(), ApiError> {
        let doubt = self.state.lock().doubt.clone();
        doubt.map_or(Ok(()), |why| Err(ApiError::Failed(why)))
    }
}

impl Cluster {
    /// Checks which cluster answers. A check that began after the call serves all callers.
    ///
    /// # Errors
    /// [`ApiError::Failed`]: another one, or unknown.
    pub async fn ensure_known(&self) -> Result<(), ApiError> {
        let asked = Instant::now();
        let mut checked = self.origin.checked.lock().await;
        if checked.is_none_or(|at| at < asked) {
            *checked = Some(Instant::now());
            if let Err(error) = self.recognise().await {
                self.origin.doubt(&error.to_string());
            }
        }
        self.origin.verified()
    }

    async fn recognise(&self) -> Result<(), ApiError> {
        let mut objects = self.origin.state.lock().objects.clone();
        for it in &mut objects {
            let request = Request::get(&*it.path).body(Vec::new());
            let request = request.map_err(|error| ApiError::Bug(error.to_string()))?;
            let found = self.client.request::<PartialObjectMeta>(request);
            let found = match self.limited(it.resource, "get", found).await {
                Err(ApiError::Forbidden { .. }) if !it.was_read || self.origin.lasts() => continue,
                Err(ApiError::NotFound) => None,
                found => Some(found?.metadata.uid.ok_or_else(without_uid)?),
            };
            if it.uid.is_some() && it.uid != found {
                let [found, ours] = [&found, &it.uid].map(|it| it.as_deref().unwrap_or("absent"));
                let path = &it.path;
                let why = format!(
                    "another cluster or a copy answers: the UID of {path} is {found}, not {ours}; writes are stopped"
                );
                let mut state = self.origin.state.lock();
                if !std::mem::replace(&mut state.is_other, true) {
                    tracing::error!("{why}");
                    self.origin.epoch.send_modify(|epoch| *epoch += 1);
                }
                state.doubt = Some(why);
                return Ok(());
            }
            (it.was_read, it.uid) = (found.is_some(), found);
            self.origin.state.lock().denials = 0;
        }
        let mut state = self.origin.state.lock();
        (state.objects, state.doubt) = (objects, None);
        if std::mem::take(&mut state.is_other) {
            tracing::info!("our cluster answers again; writes continue");
        }
        Ok(())
    }
}
