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
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
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
    stream: BoxStream<'static, watcher::Result<Event<K>>>,
    /// How often etcd had been restored when the stream began.
    restores: u64,
    pauses: Pauses,
    /// The failure after which the watch is restarted.
    failed: Option<watcher::Error>,
    is_broken: bool,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub(crate) fn new(
        cluster: &Cluster,
        resource: &'static str,
        api: Api<K>,
        config: Config,
    ) -> Self {
        let stream = Self::stream(&api, &config);
        Self {
            cluster: cluster.clone(),
            resource,
            api,
            config,
            stream,
            restores: cluster.restores(),
            pauses: Pauses::default(),
            failed: None,
            is_broken: false,
        }
    }

    /// Lists the objects, then watches them.
    fn stream(api: &Api<K>, config: &Config) -> BoxStream<'static, watcher::Result<Event<K>>> {
        let stream = watcher(api.clone(), config.clone());
        let stream = stream.modify(|it| it.meta_mut().managed_fields = None);
        stream.boxed()
    }

    /// Waits for the next event. [`Denied`] precedes each retry of a denied request.
    async fn next(&mut self) -> Option<Result<Event<K>, Denied>> {
        loop {
            if let Some(error) = self.failed.take() {
                // Boxed to keep the future of each watch small.
                Box::pin(self.pauses.wait_after(&error, &self.cluster)).await;
                let restores = self.cluster.restores();
                if std::mem::replace(&mut self.restores, restores) != restores {
                    let resource = self.resource;
                    tracing::warn!(resource, "etcd was restored; the objects are listed again");
                    self.stream = Self::stream(&self.api, &self.config);
                }
            }
            match self.stream.next().await? {
                // It precedes each list request, even a denied one.
                Ok(Event::Init) => return Some(Ok(Event::Init)),
                Ok(event) => {
                    self.cluster.permissions.granted(self.resource, "list");
                    if std::mem::take(&mut self.is_broken) {
                        tracing::info!(resource = self.resource, "the watch works again");
                    }
                    self.pauses.reset();
                    if let Event::Apply(object) | Event::InitApply(object) = &event {
                        let version = object.meta().resource_version.as_ref();
                        self.cluster.has_seen(self.resource, version);
                    }
                    return Some(Ok(event));
                }
                Err(error) => {
                    let is_denied = self.report(&error);
                    self.failed = Some(error);
                    if is_denied {
                        return Some(Err(Denied));
                    }
                }
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

    /// Applies events to a table until it changes, and returns what was kept of the objects that are gone. `keep` reads
    /// an object. An incomplete list changes nothing: it does not show which objects are missing.
    pub(crate) async fn next_change<V: PartialEq>(
        &mut self,
        known: &Known<V>,
        keep: impl Fn(&K) -> Option<V>,
    ) -> Option<Result<Vec<V>, Denied>> {
        let mut listing = BTreeMap::new();
        loop {
            match self.next().await? {
                Err(Denied) => return Some(Err(Denied)),
                Ok(Event::Init) => listing.clear(),
                Ok(Event::InitApply(object)) => {
                    listing.extend(keep(&object).map(|kept| (object.name_any(), kept)));
                }
                Ok(Event::InitDone) => {
                    let mut gone = known.send_replace(Some(listing)).unwrap_or_default();
                    for name in known.borrow().iter().flatten().map(|(name, _)| name) {
                        gone.remove(name);
                    }
                    return Some(Ok(gone.into_values().collect()));
                }
                Ok(Event::Apply(object)) => {
                    if apply(known, object.name_any(), keep(&object)) {
                        return Some(Ok(Vec::new()));
                    }
                }
                Ok(Event::Delete(object)) => {
                    apply(known, object.name_any(), None);
                    return Some(Ok(keep(&object).into_iter().collect()));
                }
            }
        }
    }

    /// Keeps a table up to date, and calls `changed` after each change, as [`Self::next_change`].
    pub(crate) async fn follow<V: PartialEq>(
        mut self,
        known: &Known<V>,
        keep: impl Fn(&K) -> Option<V>,
        changed: impl Fn(Vec<V>),
    ) {
        while let Some(change) = self.next_change(known, &keep).await {
            if let Ok(gone) = change {
                changed(gone);
            }
        }
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
