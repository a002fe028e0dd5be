//! What the API server's watches show: the Nodes' names, and a little of each PV.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, ResourceExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::plan::{self, Next};
use super::roster::Roster;
use super::volume::Volume;
use crate::cache::{follow, tells_something};
use crate::cluster::Cluster;

/// All PVs of our classes, by name.
pub type Volumes = HashMap<String, Volume>;

/// Something that is listed, and then kept up to date.
#[derive(Debug)]
struct Listed<T> {
    /// `None` until it was listed once.
    now: Option<T>,
    /// The list that is being read.
    coming: T,
}

impl<T: Default> Default for Listed<T> {
    fn default() -> Self {
        Self {
            now: None,
            coming: T::default(),
        }
    }
}

impl<T: Default> Listed<T> {
    fn begin(&mut self) {
        self.coming = T::default();
    }

    fn end(&mut self) {
        self.now = Some(std::mem::take(&mut self.coming));
    }
}

#[derive(Debug, Default)]
struct State {
    nodes: Listed<Roster>,
    /// Whether there was no Node at all since, and when there was one again.
    were_none: bool,
    refilled: Option<Timestamp>,
    volumes: Listed<Volumes>,
}

impl State {
    /// Keeps in mind when the Nodes came back, if all were gone for a while.
    fn note_refill(&mut self) {
        let Some(roster) = &mut self.nodes.now else {
            return;
        };
        if roster.is_empty() {
            self.were_none = true;
        } else if std::mem::take(&mut self.were_none) {
            self.refilled = Some(Timestamp::now());
        }
        roster.refilled = self.refilled;
    }
}

/// Both watches, from now until this is dropped.
#[derive(Debug)]
pub struct View {
    state: Arc<Mutex<State>>,
    tasks: [JoinHandle<()>; 2],
}

impl View {
    /// Starts watching. `wake` is told when a Node comes or goes, or a PV changes.
    #[must_use]
    pub fn start(cluster: &Cluster, classes: &BTreeSet<String>, wake: &Arc<Notify>) -> Self {
        let state = Arc::default();
        let nodes = watch_nodes(cluster.clone(), Arc::clone(&state), Arc::clone(wake));
        let volumes = watch_volumes(
            cluster.clone(),
            classes.clone(),
            Arc::clone(&state),
            Arc::clone(wake),
        );
        Self {
            state,
            tasks: [tokio::spawn(nodes), tokio::spawn(volumes)],
        }
    }

    /// Looks at all of it; `None` until both were listed.
    pub fn look<T>(&self, at: impl FnOnce(&Roster, &Volumes) -> T) -> Option<T> {
        let state = lock(&self.state);
        Some(at(state.nodes.now.as_ref()?, state.volumes.now.as_ref()?))
    }

    /// What comes next for a PV in the light of the newest that is known of the Nodes.
    #[must_use]
    pub fn next(&self, volume: &Volume, delay: Duration) -> Next {
        self.look(|roster, _| plan::next(volume, roster, Timestamp::now(), delay))
            .unwrap_or(Next::Nothing)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn watch_nodes(cluster: Cluster, state: Arc<Mutex<State>>, wake: Arc<Notify>) {
    let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.client().clone());
    let stream = watcher(api, Config::default())
        .inspect_ok(|event| {
            if matches!(event, Event::Init) {
                lock(&state).nodes.begin();
            }
        })
        .try_filter(tells_something);
    follow(cluster, "nodes", stream, |event| {
        let mut state = lock(&state);
        let nodes = &mut state.nodes;
        let news = match event {
            Event::Init => false,
            Event::InitApply(node) => {
                nodes.coming.add(&node.metadata);
                false
            }
            Event::InitDone => {
                nodes.end();
                true
            }
            // A heartbeat is no news.
            Event::Apply(node) => nodes
                .now
                .as_mut()
                .is_some_and(|now| now.add(&node.metadata)),
            Event::Delete(node) => {
                let gone = node.metadata.name.unwrap_or_default();
                tracing::info!(node = gone, "the Node is gone");
                nodes.now.as_mut().is_some_and(|now| {
                    now.remove(&gone);
                    true
                })
            }
        };
        state.note_refill();
        if news {
            wake.notify_one();
        }
    })
    .await;
}

async fn watch_volumes(
    cluster: Cluster,
    classes: BTreeSet<String>,
    state: Arc<Mutex<State>>,
    wake: Arc<Notify>,
) {
    let api: Api<PersistentVolume> = Api::all(cluster.client().clone());
    let stream = watcher(api, Config::default())
        .inspect_ok(|event| {
            if matches!(event, Event::Init) {
                lock(&state).volumes.begin();
            }
        })
        .try_filter(tells_something);
    let insert = |volumes: &mut Volumes, pv: &PersistentVolume| match Volume::of(pv, &classes) {
        Some(volume) => {
            volumes.insert(volume.pv.name.clone(), volume);
            true
        }
        None => volumes.remove(&pv.name_any()).is_some(),
    };
    follow(cluster, "persistentvolumes", stream, |event| {
        let volumes = &mut lock(&state).volumes;
        let news = match event {
            Event::Init => false,
            Event::InitApply(pv) => {
                insert(&mut volumes.coming, &pv);
                false
            }
            Event::InitDone => {
                volumes.end();
                true
            }
            Event::Apply(pv) => volumes.now.as_mut().is_some_and(|now| insert(now, &pv)),
            Event::Delete(pv) => {
                let now = volumes.now.as_mut();
                now.is_some_and(|now| now.remove(&pv.name_any()).is_some())
            }
        };
        if news {
            wake.notify_one();
        }
    })
    .await;
}
