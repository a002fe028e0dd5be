//! Caches of the objects that concern this node, kept up to date by watches.
//!
//! Each node caches only its own PVs, so memory does not grow with the cluster. A cache may be stale: a cleanup
//! reads its objects again before it wipes.

mod classes;
mod expectations;
mod installations;
mod jobs;
mod node;
mod pauses;
mod pvs;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub use classes::ClassCache;
pub use expectations::Expectations;
pub use installations::InstallationCache;
pub use jobs::JobCache;
pub use node::NodeCache;
pub use pvs::PvCache;

use crate::cluster::{Cluster, refused};
use crate::errors::chain;

use pauses::Pauses;

/// The longest pause after the API server refused a watch. A permission that is granted takes effect within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(25);

/// What is kept of each object of one kind, by name; `None` until the first list is complete.
pub(crate) type Known<V> = watch::Sender<Option<BTreeMap<String, V>>>;

/// The API server denied the permission to list or to watch.
pub(crate) struct Denied;

/// A watch that reports its failures and backs off after each.
pub(crate) struct Watch<K> {
    cluster: Cluster,
    resource: &'static str,
    api: Api<K>,
    config: Config,
    is_broken: bool,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub fn new(cluster: &Cluster, resource: &'static str, api: Api<K>, config: Config) -> Self {
        Self { cluster: cluster.clone(), resource, api, config, is_broken: false }
    }

    /// Lists the objects, then watches them.
    fn stream(&self) -> BoxStream<'static, watcher::Result<Event<K>>> {
        let (cluster, resource) = (self.cluster.clone(), self.resource);
        let stream = watcher(self.api.clone(), self.config.clone()).modify(move |object| {
            object.meta_mut().managed_fields = None;
            cluster.has_seen(resource, object.meta().resource_version.as_ref());
        });
        stream.boxed()
    }

    /// Keeps a table up to date, until `changed` breaks. `keep` reads an object. `changed` is called after each change with
    /// what was kept of the objects that are gone, and before each retry of a denied request. An incomplete list changes
    /// nothing: it does not show which objects are missing.
    pub async fn follow<V: PartialEq>(
        mut self,
        known: Known<V>,
        keep: impl Fn(&K) -> Option<V>,
        mut changed: impl AsyncFnMut(Result<Vec<V>, Denied>) -> ControlFlow<()>,
    ) {
        let (mut stream, mut pauses) = (self.stream(), Pauses::default());
        // How often etcd had been restored when the stream began.
        let mut restores = self.cluster.restores();
        let mut listing = BTreeMap::new();
        while let Some(event) = stream.next().await {
            // It precedes each list request, even a denied one.
            if !matches!(event, Ok(Event::Init) | Err(_)) {
                self.cluster.permissions.granted(self.resource, "list");
                if std::mem::take(&mut self.is_broken) {
                    tracing::info!(resource = self.resource, "the watch works again");
                }
                pauses.growing.reset();
            }
            let gone = match event {
                Ok(Event::Init) => {
                    listing.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    listing.extend(keep(&object).map(|kept| (object.name_any(), kept)));
                    continue;
                }
                Ok(Event::InitDone) => {
                    let listed = Some(std::mem::take(&mut listing));
                    let mut gone = known.send_replace(listed).unwrap_or_default();
                    for name in known.borrow().iter().flat_map(BTreeMap::keys) {
                        gone.remove(name);
                    }
                    gone.into_values().collect()
                }
                Ok(Event::Apply(object)) => {
                    if !apply(&known, object.name_any(), keep(&object)) {
                        continue;
                    }
                    Vec::new()
                }
                Ok(Event::Delete(object)) => {
                    apply(&known, object.name_any(), None);
                    keep(&object).into_iter().collect()
                }
                Err(error) => {
                    if self.report(&error) && changed(Err(Denied)).await.is_break() {
                        return;
                    }
                    // Boxed to keep the future of each watch small.
                    Box::pin(pauses.wait_after(&error, &self.cluster)).await;
                    if std::mem::replace(&mut restores, self.cluster.restores()) != restores {
                        let resource = self.resource;
                        tracing::warn!(resource, "etcd was restored; the objects are listed again");
                        stream = self.stream();
                    }
                    continue;
                }
            };
            if changed(Ok(gone)).await.is_break() {
                return;
            }
        }
    }

    /// Counts and logs a failure. Returns whether a permission is missing, and records that.
    fn report(&mut self, error: &watcher::Error) -> bool {
        let (cluster, resource) = (&self.cluster, self.resource);
        let restarts = &cluster.metrics.watch_restarts_total;
        restarts.with_label_values(&[resource]).inc();
        let refusal = refused(error);
        let code = refusal.map(|(_, status)| status.code);
        // An expired version is normal for a long watch, so it is not logged.
        if code != Some(410) && !std::mem::replace(&mut self.is_broken, true) {
            let error = refusal.map_or_else(
                || chain(error),
                |(_, it)| format!("{} {}: {}", it.code, it.reason, it.message),
            );
            tracing::warn!(resource, error, "the watch failed; it is restarted");
        }
        let denied = refusal.filter(|(_, status)| status.code == 403);
        if let Some((verb, status)) = denied {
            let message = status.message.clone();
            cluster.permissions.denied(resource, verb, message);
        }
        denied.is_some()
    }
}

/// Replaces what is kept of one object, and returns whether that has changed. A heartbeat of a Node changes nothing.
fn apply<V: PartialEq>(known: &Known<V>, name: String, kept: Option<V>) -> bool {
    known.send_if_modified(|known| {
        let known = known.get_or_insert_default();
        let is_changed = known.get(&name) != kept.as_ref();
        match kept {
            Some(kept) => known.insert(name, kept),
            None => known.remove(&name),
        };
        is_changed
    })
}
