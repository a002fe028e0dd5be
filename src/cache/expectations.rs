//! PV versions that the watch does not show yet: the results of our own writes, and newer reads.
//!
//! The newest version wins; versions of PVs compare as numbers. If the watch does not show an expected version
//! within ten seconds, a read replaces it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::view::{PvRef, PvView};

/// How long the watch may take to show a write before the PV is read.
const READ_AFTER: Duration = Duration::from_secs(10);
/// How long no write to a PV is attempted after the API server refused one.
const REFUSAL_PAUSE: Duration = Duration::from_secs(20);

/// The expected PV versions, shared by the watch, the writers and the main loop.
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
    /// By UID, PVs without the hostname label, which no watch shows.
    unlabelled: BTreeMap<String, PvView>,
    /// By name, until when a PV backs off.
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
    fn is_pending(&self, watched: Option<&PvView>) -> bool {
        match (self, watched) {
            // The PV is new, or was deleted since: a read decides that.
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

/// The resourceVersion as a number. Kubernetes permits comparing the versions of one resource so.
fn version(view: &PvView) -> u64 {
    view.resource_version.parse().unwrap_or(0)
}

impl Memory {
    /// Applies pending expectations to the watched PVs, and drops those that the watch shows.
    fn apply_to(&mut self, views: &mut BTreeMap<String, PvView>) {
        let is_shown = |pv: &PvView| views.get(&pv.name).is_some_and(|it| it.uid == pv.uid);
        self.unlabelled.retain(|_, pv| !is_shown(pv));
        self.expected
            .retain(|name, expected| expected.is_pending(views.get(name)));
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

    pub(super) fn apply_to(&self, views: &mut BTreeMap<String, PvView>) {
        self.lock().apply_to(views);
    }

    /// Whether a PV has changed or was deleted since this version.
    #[must_use]
    pub fn has_changed(&self, pv: &PvRef) -> bool {
        let watched = self.watched(&pv.name);
        let memory = self.lock();
        let now = match memory.expected.get(&pv.name) {
            Some(expected) if expected.is_pending(watched.as_ref()) => expected.view(),
            _ => watched.as_ref().or_else(|| memory.unlabelled.get(&pv.uid)),
        };
        now.is_none_or(|now| now.uid != pv.uid || now.resource_version != pv.resource_version)
    }

    fn watched(&self, name: &str) -> Option<PvView> {
        let watched = self.watched.get(&ObjectRef::new(name));
        watched.map(|pv| PvView::from_api(&pv))
    }

    /// Records the PV that a write or a read has returned.
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
            tokio::time::sleep(READ_AFTER).await;
            while !this.resolve(&view).await {
                tokio::time::sleep(READ_AFTER).await;
            }
        });
    }

    /// Reads a PV that the watch does not show as expected, and records the result. False if the read failed.
    async fn resolve(&self, view: &PvView) -> bool {
        let expected = Expected::There(Box::new(view.clone()));
        let is_pending = expected.is_pending(self.watched(&view.name).as_ref());
        let is_current = || self.lock().expected.get(&view.name) == Some(&expected);
        if !is_pending || !is_current() {
            return true;
        }
        let found = self.cluster.pv(&view.name).await;
        if is_current() {
            match found {
                Ok(Some(found)) => self.expect(found),
                Ok(None) => self.gone(&view.name, &view.uid),
                Err(_) => return false,
            }
            self.wake.notify_one();
        }
        true
    }

    /// Reads a PV whose cached version is outdated, and records the result.
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

    /// Removes a deleted PV without the hostname label, whose deletion no watch shows.
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

    /// Records that the watch has shown the deletion of a PV.
    pub(super) fn deleted(&self, pv: &PersistentVolume) {
        let uid = pv.metadata.uid.as_ref();
        let is_same = |expected: &Expected| match expected {
            Expected::There(view) => Some(&view.uid) == uid,
            Expected::Gone(gone) => Some(gone) == uid,
        };
        self.lock()
            .expected
            .retain(|_, expected| !is_same(expected));
    }

    /// Records that the API server refused a write to this PV.
    pub fn refused(&self, name: &str) {
        let until = Instant::now() + REFUSAL_PAUSE;
        self.lock().refused.insert(name.to_owned(), until);
    }

    /// The PVs that back off after a refused write.
    #[must_use]
    pub fn backing_off(&self) -> BTreeSet<String> {
        let mut memory = self.lock();
        memory.refused.retain(|_, until| *until > Instant::now());
        memory.refused.keys().cloned().collect()
    }

    /// Replaces the PVs without the hostname label.
    pub(super) fn set_unlabelled(&self, pvs: Vec<PvView>) {
        let pvs = pvs.into_iter().map(|pv| (pv.uid.clone(), pv));
        self.lock().unlabelled = pvs.collect();
    }

    /// Adds a PV without the hostname label.
    pub fn add_unlabelled(&self, pv: PvView) {
        self.lock().unlabelled.insert(pv.uid.clone(), pv);
    }

    /// The PVs without the hostname label.
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

    /// Expectations whose API server returns `answer` to each read.
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

    /// The version that a pass sees while the watch shows `watched`.
    fn seen(expectations: &Expectations, watched: Option<PvView>) -> Option<String> {
        let watched = watched.map(|view| ("pv".to_owned(), view));
        let mut views = watched.into_iter().collect();
        expectations.apply_to(&mut views);
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
            assert!(expectations.resolve(&view("2")).await, "{expected:?}");
            assert_eq!(seen(&expectations, None).as_deref(), expected);
        }
    }
}
