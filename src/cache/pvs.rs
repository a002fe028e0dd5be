//! The PVs that concern this node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::names::LABEL_HOSTNAME;
use crate::view::{PvRef, PvView};

/// How long the answer to a write stands in for the watch event that it causes.
const ASSUMED_FOR: Duration = Duration::from_secs(30);

/// A watch of the PVs with our hostname label, the PVs of this node without that label, and
/// the answers to our own writes that the watch has not delivered yet.
#[derive(Debug)]
pub struct PvCache {
    hostname: String,
    ready: watch::Receiver<bool>,
    task: JoinHandle<()>,
    learnt: Learnt,
}

/// What was learnt otherwise than by the watch.
#[derive(Debug, Default)]
struct Memory {
    /// PVs without the label, or with that of an old hostname, by UID.
    strays: BTreeMap<String, PvView>,
    /// Answers to our writes, by name.
    assumed: BTreeMap<String, Assumed>,
    /// When the watch told of the end of which PVs, by UID. The answer to our creation of one may come
    /// later.
    deleted: BTreeMap<String, Instant>,
}

#[derive(Debug)]
struct Assumed {
    view: PvView,
    /// The versions that the watch may still show, or none before it was made.
    replaces: Vec<Option<String>>,
    since: Instant,
}

impl PvCache {
    /// Starts watching. `wake` is told of every change.
    #[must_use]
    pub fn start(cluster: &Cluster, hostname: &str, wake: Arc<Notify>) -> Self {
        let (store, writer) = reflector::store();
        let (send, ready) = watch::channel(false);
        let api: Api<PersistentVolume> = Api::all(cluster.client().clone());
        let config = watcher::Config::default().labels(&format!("{LABEL_HOSTNAME}={hostname}"));
        let stream = watcher(api, config)
            .modify(|pv| pv.metadata.managed_fields = None)
            .reflect(writer)
            .try_filter(super::tells_something);
        let learnt = Learnt {
            watched: store,
            memory: Arc::default(),
        };
        let watched = learnt.clone();
        let each = move |event| {
            match &event {
                watcher::Event::InitDone => {
                    send.send_replace(true);
                }
                watcher::Event::Delete(pv) => watched.deleted(pv),
                _ => {}
            }
            if !matches!(event, watcher::Event::InitApply(_)) {
                wake.notify_one();
            }
        };
        let task = tokio::spawn(super::follow(
            cluster.clone(),
            "persistentvolumes",
            stream,
            each,
        ));
        Self {
            hostname: hostname.to_owned(),
            ready,
            task,
            learnt,
        }
    }

    /// The hostname value that it watches for.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Where to remember what was learnt otherwise.
    #[must_use]
    pub fn learnt(&self) -> Learnt {
        self.learnt.clone()
    }

    /// All PVs; `None` until they were listed.
    #[must_use]
    pub fn views(&self) -> Option<Vec<PvView>> {
        if !*self.ready.borrow() {
            return None;
        }
        let watched = self.learnt.watched.state();
        let mut views: BTreeMap<String, PvView> = watched
            .iter()
            .map(|pv| PvView::from_api(pv))
            .map(|view| (view.name.clone(), view))
            .collect();
        self.learnt.lock().complete(&mut views);
        Some(views.into_values().collect())
    }
}

impl Drop for PvCache {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Memory {
    /// Adds what the watch does not show (yet), and forgets what it has caught up with.
    fn complete(&mut self, views: &mut BTreeMap<String, PvView>) {
        self.strays
            .retain(|uid, stray| match views.get(&stray.name) {
                Some(watched) => watched.uid != *uid,
                None => true,
            });
        self.assumed.retain(|name, assumed| {
            let watched = views.get(name);
            assumed.stands(watched.map(|view| view.resource_version.as_str()))
        });
        for (name, assumed) in &self.assumed {
            views.insert(name.clone(), assumed.view.clone());
        }
        for stray in self.strays.values() {
            views
                .entry(stray.name.clone())
                .or_insert_with(|| stray.clone());
        }
    }

    fn assume(&mut self, view: PvView, replaces: Vec<Option<String>>) {
        let (name, since) = (view.name.clone(), Instant::now());
        let assumed = Assumed {
            view,
            replaces,
            since,
        };
        self.assumed.insert(name, assumed);
    }
}

impl Assumed {
    /// Whether the watch, which shows this version, has not caught up with it.
    fn stands(&self, watched: Option<&str>) -> bool {
        let is_older = self
            .replaces
            .iter()
            .any(|older| older.as_deref() == watched);
        is_older && self.since.elapsed() < ASSUMED_FOR
    }
}

/// A handle for those who learn of PVs otherwise than by the watch.
#[derive(Clone, Debug)]
pub struct Learnt {
    watched: reflector::Store<PersistentVolume>,
    memory: Arc<Mutex<Memory>>,
}

impl Learnt {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a PV is known to be another, or gone, since it was looked at.
    #[must_use]
    pub fn has_changed(&self, pv: &PvRef) -> bool {
        let watched = self.watched.get(&ObjectRef::new(&pv.name));
        let watched = watched.and_then(|pv| pv.metadata.resource_version.clone());
        let memory = self.lock();
        let version = match memory.assumed.get(&pv.name) {
            Some(assumed) if assumed.stands(watched.as_deref()) => {
                Some(&assumed.view.resource_version)
            }
            _ => watched.as_ref().or_else(|| {
                let stray = memory.strays.get(&pv.uid)?;
                Some(&stray.resource_version)
            }),
        };
        version != Some(&pv.resource_version)
    }

    /// We made this PV.
    pub fn made(&self, view: PvView) {
        let mut memory = self.lock();
        if !memory.deleted.contains_key(&view.uid) {
            memory.assume(view, vec![None]);
        }
    }

    /// The watch has told that this PV is gone.
    fn deleted(&self, pv: &PersistentVolume) {
        let mut memory = self.lock();
        memory.deleted.retain(|_, at| at.elapsed() < ASSUMED_FOR);
        let uid = pv.metadata.uid.clone().unwrap_or_default();
        // The store has known it for a moment.
        memory.assumed.retain(|_, assumed| assumed.view.uid != uid);
        memory.deleted.insert(uid, Instant::now());
    }

    /// We changed a PV of this version into this one.
    pub fn changed(&self, replaces: &str, view: PvView) {
        let mut memory = self.lock();
        if let Some(stray) = memory.strays.get_mut(&view.uid) {
            *stray = view;
            return;
        }
        // The watch may not even show the one before.
        let mut older = match memory.assumed.get(&view.name) {
            Some(before) if before.view.resource_version == replaces => before.replaces.clone(),
            _ => Vec::new(),
        };
        older.push(Some(replaces.to_owned()));
        memory.assume(view, older);
    }

    /// There are these PVs without our label.
    pub fn strays(&self, strays: Vec<PvView>) {
        let strays = strays
            .into_iter()
            .map(|stray| (stray.uid.clone(), stray))
            .collect();
        self.lock().strays = strays;
    }

    /// There is also this one.
    pub fn stray(&self, stray: PvView) {
        self.lock().strays.insert(stray.uid.clone(), stray);
    }

    /// The names of the strays, to look whether they are still there.
    #[must_use]
    pub fn stray_names(&self) -> Vec<(String, String)> {
        let memory = self.lock();
        memory
            .strays
            .values()
            .map(|stray| (stray.uid.clone(), stray.name.clone()))
            .collect()
    }

    /// Whether a PV is known as a stray.
    #[must_use]
    pub fn is_stray(&self, uid: &str) -> bool {
        self.lock().strays.contains_key(uid)
    }

    /// Looks what has become of a stray.
    pub async fn look_again(&self, cluster: &Cluster, uid: &str, name: &str) {
        match cluster.pv(name).await {
            Ok(Some(pv)) if pv.uid == uid => self.stray(pv),
            Ok(_) => self.gone(uid),
            Err(error) => {
                tracing::debug!(pv = name, %error, "looking at a PV without a label failed");
            }
        }
    }

    /// A stray is gone.
    pub fn gone(&self, uid: &str) {
        self.lock().strays.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pv(version: &str) -> PersistentVolume {
        let metadata = json!({ "name": "pv", "uid": "uid", "resourceVersion": version });
        serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
    }

    fn view(version: &str) -> PvView {
        PvView::from_api(&pv(version))
    }

    /// The version that passes see while the watch shows these one after another.
    fn seen(learnt: &Learnt, watched: &[&str]) -> Vec<Option<String>> {
        let see = |version: &&str| {
            let view = (!version.is_empty()).then(|| ("pv".to_owned(), view(version)));
            let mut views = view.into_iter().collect();
            learnt.lock().complete(&mut views);
            let seen = views.remove("pv");
            seen.map(|view| view.resource_version)
        };
        watched.iter().map(see).collect()
    }

    fn learnt() -> Learnt {
        let (watched, _) = reflector::store();
        let memory = Arc::default();
        Learnt { watched, memory }
    }

    #[test]
    fn our_last_write_counts_until_the_watch_shows_something_else() {
        let all_ours = [Some("3".to_owned()), Some("3".to_owned())];
        let made = learnt();
        made.made(view("2"));
        made.changed("2", view("3"));
        assert_eq!(seen(&made, &["", "2"]), all_ours);
        let changed = learnt();
        changed.changed("1", view("2"));
        changed.changed("2", view("3"));
        assert_eq!(seen(&changed, &["1", "2"]), all_ours);
        assert_eq!(
            seen(&changed, &["4", "1"]),
            ["4", "1"].map(|v| Some(v.into()))
        );
    }

    #[test]
    fn a_pv_whose_end_was_told_is_not_believed_to_be_there() {
        for answer_first in [false, true] {
            let learnt = learnt();
            if answer_first {
                learnt.made(view("2"));
            }
            learnt.deleted(&pv("2"));
            if !answer_first {
                learnt.made(view("2"));
            }
            assert_eq!(seen(&learnt, &[""]), [None], "{answer_first}");
        }
    }
}
