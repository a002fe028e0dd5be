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

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

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

/// The API server denied the permission to list or to watch.
pub(crate) struct Denied;

/// A watch that reports its failures and backs off after each.
pub(crate) struct Watch<K> {
    cluster: Cluster,
    resource: &'static str,
    stream: BoxStream<'static, watcher::Result<Event<K>>>,
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
        let stream = watcher(api, config).modify(|it| it.meta_mut().managed_fields = None);
        Self {
            cluster: cluster.clone(),
            resource,
            stream: stream.boxed(),
            pauses: Pauses::default(),
            failed: None,
            is_broken: false,
        }
    }

    /// Waits for the next event. [`Denied`] precedes each retry of a denied request.
    pub(crate) async fn next(&mut self) -> Option<Result<Event<K>, Denied>> {
        loop {
            if let Some(error) = self.failed.take() {
                // Boxed to keep the future of each watch small.
                Box::pin(self.pauses.wait_after(&error, &self.cluster)).await;
            }
            match self.stream.next().await? {
                // It precedes each list request, even a denied one.
                Ok(Event::Init) => return Some(Ok(Event::Init)),
                Ok(event) => {
                    self.cluster.permissions().granted(self.resource, "list");
                    if std::mem::take(&mut self.is_broken) {
                        tracing::info!(resource = self.resource, "the watch works again");
                    }
                    self.pauses.reset();
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
        let restarts = &cluster.metrics().watch_restarts_total;
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
            cluster.permissions().denied(resource, verb, message);
        }
        denied.is_some()
    }

    /// Applies events to a store until it is complete, and returns the last one: an incomplete list does not show
    /// which objects are missing.
    async fn next_complete(&mut self, writer: &mut Writer<K>) -> Option<Result<Event<K>, Denied>> {
        loop {
            let Ok(event) = self.next().await? else {
                return Some(Err(Denied));
            };
            writer.apply_watcher_event(&event);
            if !matches!(event, Event::Init | Event::InitApply(_)) {
                return Some(Ok(event));
            }
        }
    }

    /// Keeps a store up to date, and calls `changed` for each event. An object that is missing from a new list is
    /// reported as deleted.
    async fn reflect(mut self, mut writer: Writer<K>, changed: impl Fn(Event<K>)) {
        let store = writer.as_reader();
        let mut before = Vec::new();
        while let Some(event) = self.next_complete(&mut writer).await {
            let Ok(event) = event else { continue };
            if matches!(event, Event::InitDone) {
                let is_missing = |it: &&Arc<K>| store.get(&ObjectRef::from_obj(&***it)).is_none();
                for missing in before.iter().filter(is_missing) {
                    changed(Event::Delete(K::clone(missing)));
                }
            }
            changed(event);
            before = store.state();
        }
    }
}

/// Whether the first list of a store is complete.
fn is_listed<K>(store: &Store<K>) -> bool
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.wait_until_ready().now_or_never().is_some()
}
