//! The cache of StorageClasses.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::runtime::watcher::Config;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Known, Watch};
use crate::cluster::Cluster;
use crate::view::StorageClassView;

/// How long the start waits for the first list.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// A watch of all StorageClasses, since a cluster has only a few.
#[derive(Debug)]
pub struct ClassCache {
    known: Known<StorageClassView>,
    _task: JoinSet<()>,
}

impl ClassCache {
    /// Starts the watch, which notifies `wake` of each change.
    pub fn start(cluster: &Cluster, wake: Arc<Notify>) -> Self {
        let (known, api) = (Known::default(), Api::all(cluster.client.clone()));
        let watch = Watch::new(cluster, "storageclasses", api, Config::default());
        let view = |class: &StorageClass| Some(class.into());
        let task = watch.follow(known.clone(), view, async move |change| {
            if change.is_ok() {
                wake.notify_one();
            }
            ControlFlow::Continue(())
        });
        Self { known, _task: JoinSet::from_iter([task]) }
    }

    /// Waits for the first list, up to a limit.
    pub async fn wait_for_first_list(&self) {
        let mut known = self.known.subscribe();
        let listed = known.wait_for(Option::is_some);
        let _ = tokio::time::timeout(FIRST_LIST_TIMEOUT, listed).await;
    }

    /// The StorageClasses of these names: `None` for one that does not exist. Empty before the first list.
    pub fn views<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<String, Option<StorageClassView>> {
        let known = self.known.borrow();
        let view = |name: &'a String| Some((name.clone(), known.as_ref()?.get(name).cloned()));
        names.filter_map(view).collect()
    }
}
