//! What the watch of PVs does not show yet: our own writes, and reads that are newer.
//!
//! Versions of PVs compare as numbers. A read always wins over what was expected, and settles what the watch
//! has not shown for ten seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::view::{PvRef, PvView};

/// How long the watch may take to show a write before the PV is read.
const SETTLE_AFTER: Duration = Duration::from_secs(10);
/// How long a PV is left alone after the API server refused to change it.
const REFUSAL_PAUSE: Duration = Duration::from_secs(20);

/// What is known of PVs beyond the watch.
#[derive(Clone, Debug)]
pub struct Expectations {
    cluster: Cluster,
    watched: Store<PersistentVolume>,
    wake: Arc<Notify>,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    /// By name.
    expected: BTreeMap<String, Expected>,
    /// PVs without our label, which no watch shows, by UID.
    unlabelled: BTreeMap<String, PvView>,
    /// Until when which PVs are left alone.
    refused: BTreeMap<String, Instant>,
}

#[derive(Clone, Debug, PartialEq)]
enum Expected {
    /// The PV has this version, or a later one.
    There(Box<PvView>),
    /// The PV of this UID is gone.
    Gone(String),
}

impl Expected {
    /// Whether the watch does not show it yet.
    fn is_open(&self, watched: Option<&PvView>) -> bool {
        match (self, watched) {
            // It is new, or deleted since: a read settles that.
            (Self::There(_), None) => true,
            (Self::There(view), Some(watched)) => version(watched) < version(view),
            (Self::Gone(uid), watched) => watched.is_some_and(|it| it.uid == *uid),
        }
    }

    fn view(&self) -> Option<&PvView> {
        match self {
            Self::There(view) => Some(view),
            Self::Gone(_) => None,
        }
    }
}

/// Kubernetes lets clients compare the versions of one type as numbers.
fn version(view: &PvView) -> u64 {
    view.resource_version.parse().unwrap_or(0)
}

impl Memory {
    /// Adds what the watch does not show, and forgets what it has caught up with.
    fn complete(&mut self, views: &mut BTreeMap<String, PvView>) {
        let is_shown = |pv: &PvView| views.get(&pv.name).is_some_and(|it| it.uid == pv.uid);
        self.unlabelled.retain(|_, pv| !is_shown(pv));
        self.expected
            .retain(|name, expected| expected.is_open(views.get(name)));
        for (name, expected) in &self.expected {
            match expected {
                Expected::There(view) => views.insert(name.clone(), (**view).clone()),
                Expected::Gone(_) => views.remove(name),
            };
        }
        for pv in self.unlabelled.values() {
            views.entry(pv.name.clone()).or_insert_with(|| pv.clone());
        }
    }
}

impl Expectations {
    pub(super) fn new(
        cluster: Cluster,
        watched: Store<PersistentVolume>,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            cluster,
            watched,
            wake,
            memory: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn complete(&self, views: &mut BTreeMap<String, PvView>) {
        self.lock().complete(views);
    }

    /// Whether a PV has changed, or is gone, since this version.
    #[must_use]
    pub fn has_changed(&self, pv: &PvRef) -> bool {
        let watched = self.watched(&pv.name);
        let memory = self.lock();
        let now = match memory.expected.get(&pv.name) {
            Some(expected) if expected.is_open(watched.as_ref()) => expected.view(),
            _ => watched.as_ref().or_else(|| memory.unlabelled.get(&pv.uid)),
        };
        now.is_none_or(|now| now.uid != pv.uid || now.resource_version != pv.resource_version)
    }

    fn watched(&self, name: &str) -> Option<PvView> {
        let watched = self.watched.get(&ObjectRef::new(name));
        watched.map(|pv| PvView::from_api(&pv))
    }

    /// The API server answered with this PV: to a write of ours, or to a read.
    pub fn expect(&self, view: PvView) {
        let mut memory = self.lock();
        if let Some(unlabelled) = memory.unlabelled.get_mut(&view.uid) {
            *unlabelled = view;
            return;
        }
        let expected = Expected::There(Box::new(view.clone()));
        memory.expected.insert(view.name.clone(), expected);
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE_AFTER).await;
            while !this.is_settled(&view).await {
                tokio::time::sleep(SETTLE_AFTER).await;
            }
        });
    }

    /// Reads a PV that the watch does not show as expected, and expects what was read. False if that failed.
    async fn is_settled(&self, view: &PvView) -> bool {
        let expected = Expected::There(Box::new(view.clone()));
        let is_open = expected.is_open(self.watched(&view.name).as_ref());
        let is_it = || self.lock().expected.get(&view.name) == Some(&expected);
        if !is_open || !is_it() {
            return true;
        }
        let found = self.cluster.pv(&view.name).await;
        if is_it() {
            match found {
                Ok(Some(found)) => self.expect(found),
                Ok(None) => self.gone(&view.name, &view.uid),
                Err(_) => return false,
            }
            self.wake.notify_one();
        }
        true
    }

    /// What we know of a PV has proved to be old.
    pub async fn read(&self, pv: &PvRef) {
        match self.cluster.pv(&pv.name).await {
            Ok(Some(found)) => {
                if found.uid != pv.uid {
                    self.forget_unlabelled(&pv.uid);
                }
                self.expect(found);
            }
            Ok(None) => self.gone(&pv.name, &pv.uid),
            Err(error) => tracing::debug!(pv = pv.name, %error, "reading the PV failed"),
        }
    }

    /// The PV is gone, which no watch shows if it has not our label.
    pub fn forget_unlabelled(&self, uid: &str) {
        self.lock().unlabelled.remove(uid);
    }

    fn gone(&self, name: &str, uid: &str) {
        let mut memory = self.lock();
        if memory.unlabelled.remove(uid).is_none() {
            let gone = Expected::Gone(uid.to_owned());
            memory.expected.insert(name.to_owned(), gone);
        }
    }

    /// The watch shows the end of a PV.
    pub(super) fn deleted(&self, pv: &PersistentVolume) {
        let uid = pv.metadata.uid.as_ref();
        let is_it = |expected: &Expected| match expected {
            Expected::There(view) => Some(&view.uid) == uid,
            Expected::Gone(gone) => Some(gone) == uid,
        };
        self.lock().expected.retain(|_, expected| !is_it(expected));
    }

    /// The API server refused to change this PV.
    pub fn refused(&self, name: &str) {
        let until = Instant::now() + REFUSAL_PAUSE;
        self.lock().refused.insert(name.to_owned(), until);
    }

    /// The PVs that are left alone for now.
    #[must_use]
    pub fn backing_off(&self) -> BTreeSet<String> {
        let mut memory = self.lock();
        memory.refused.retain(|_, until| *until > Instant::now());
        memory.refused.keys().cloned().collect()
    }

    /// There are these PVs without our label.
    pub(super) fn set_unlabelled(&self, pvs: Vec<PvView>) {
        let pvs = pvs.into_iter().map(|pv| (pv.uid.clone(), pv));
        self.lock().unlabelled = pvs.collect();
    }

    /// There is also this PV without our label.
    pub fn add_unlabelled(&self, pv: PvView) {
        self.lock().unlabelled.insert(pv.uid.clone(), pv);
    }

    /// The PVs without our label.
    pub(super) fn unlabelled(&self) -> Vec<PvRef> {
        let memory = self.lock();
        memory.unlabelled.values().map(PvView::reference).collect()
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use kube::Client;
    use kube::runtime::reflector;
    use serde_json::json;

    use crate::metrics::Metrics;

    use super::*;

    fn pv(uid: &str, version: &str) -> PersistentVolume {
        let metadata = json!({ "name": "pv", "uid": uid, "resourceVersion": version });
        serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
    }

    fn view(version: &str) -> PvView {
        PvView::from_api(&pv("uid", version))
    }

    /// With an API server that answers each read so.
    fn expectations(answer: Option<&PersistentVolume>) -> Expectations {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "gone", "reason": "NotFound", "code": 404,
        });
        let answer = answer.map_or((StatusCode::NOT_FOUND, status.to_string()), |pv| {
            (StatusCode::OK, json!(pv).to_string())
        });
        let server = Router::new().fallback(move || std::future::ready(answer.clone()));
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let (watched, _) = reflector::store();
        Expectations::new(cluster, watched, Arc::default())
    }

    /// The version that passes see while the watch shows this one.
    fn seen(expectations: &Expectations, watched: Option<PvView>) -> Option<String> {
        let watched = watched.map(|view| ("pv".to_owned(), view));
        let mut views = watched.into_iter().collect();
        expectations.complete(&mut views);
        views.remove("pv").map(|view| view.resource_version)
    }

    #[tokio::test]
    async fn write_counts_until_the_watch_shows_it_or_a_later_version() {
        let expectations = expectations(None);
        for version in ["9", "10"] {
            expectations.expect(view(version));
        }
        for watched in [None, Some(view("8")), Some(view("9"))] {
            assert_eq!(seen(&expectations, watched).as_deref(), Some("10"));
        }
        let later = seen(&expectations, Some(view("11")));
        assert_eq!(later.as_deref(), Some("11"));
        assert!(expectations.lock().expected.is_empty());
    }

    #[tokio::test]
    async fn deleted_pv_is_no_longer_expected() {
        let expectations = expectations(None);
        expectations.expect(view("2"));
        expectations.deleted(&pv("another", "1"));
        assert_eq!(seen(&expectations, None).as_deref(), Some("2"));
        expectations.deleted(&pv("uid", "3"));
        assert_eq!(seen(&expectations, None), None);
    }

    #[tokio::test]
    async fn read_settles_what_the_watch_does_not_show() {
        for (found, expected) in [(None, None), (Some(pv("uid", "1")), Some("1"))] {
            let expectations = expectations(found.as_ref());
            expectations.expect(view("2"));
            assert_eq!(seen(&expectations, None).as_deref(), Some("2"));
            assert!(expectations.is_settled(&view("2")).await, "{expected:?}");
            assert_eq!(seen(&expectations, None).as_deref(), expected);
        }
    }
}
