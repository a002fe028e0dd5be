//! PV versions that the watch does not show yet: the results of our own writes, and newer reads.
//!
//! The newest version wins; versions of PVs compare as numbers. If the watch does not show an expected version
//! within ten to twenty seconds, a read replaces it. PVs without the hostname label, which no watch shows, stay
//! expected and are read every minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::view::{NodeView, PvRef, PvView};

/// How long the watch may take to show a version before the PV is read, and the pause before it is read again if
/// nothing has changed.
const READ_AFTER: Duration = Duration::from_secs(10);
const READ_AGAIN_AFTER: Duration = Duration::from_mins(1);
/// The pauses after a transient error of a write. After a refusal, the pause is the longest.
const WRITE_RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(20),
};
/// The ended offers that are kept. The volumes of more than these may need a consent.
const MAX_ENDED: usize = 10_000;
/// How often a PV may be written within a period before it backs off. A tenancy requires five at most.
const MAX_WRITES: usize = 8;
const WRITES_PERIOD: Duration = Duration::from_mins(1);

/// The expected PV versions, shared by the watch, the writers and the main loop.
#[derive(Clone, Debug)]
pub struct Expectations {
    pub(super) cluster: Cluster,
    /// Our Node, whose hostname label the watch selects.
    pub node: Arc<NodeView>,
    pub(super) watched: watch::Receiver<Option<BTreeMap<String, PvView>>>,
    pub(super) wake: Arc<Notify>,
    /// Notifies of a PV to be read at once.
    pub(super) urgent: Arc<Notify>,
    pub(super) state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// By name.
    expected: BTreeMap<String, Expected>,
    /// By name of a PV or Job: the consecutive failed writes, and until when it backs off.
    failed: BTreeMap<String, (u32, Instant)>,
    /// By UID, when a PV was written.
    writes: BTreeMap<String, Vec<Instant>>,
    /// How many PVs have left the watch.
    departures: u64,
    /// See [`PvCache::ended`](super::PvCache::ended).
    pub(super) ended: BTreeSet<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Expected {
    /// The PV when this was recorded.
    pv: PvRef,
    /// The PV has this version, or a later one; `None`: the PV of this UID is gone.
    view: Option<PvView>,
    /// When the PV is read if the watch does not show this.
    read_at: Instant,
}

impl Expected {
    /// Whether the watch does not show it yet.
    fn is_pending(&self, watched: Option<&PvView>) -> bool {
        match (&self.view, watched) {
            // The PV is new, or was deleted since: a read decides that.
            (Some(_), None) => true,
            (Some(view), Some(watched)) => version(watched) < version(view),
            (None, watched) => watched.is_some_and(|it| it.uid == self.pv.uid),
        }
    }
}

/// The resourceVersion as a number. Kubernetes permits comparing the versions of one resource so.
fn version(view: &PvView) -> u64 {
    view.resource_version.parse().unwrap_or(0)
}

impl Expectations {
    /// Applies pending expectations to the watched PVs, and drops those that the watch shows.
    pub(super) fn apply_to(&self, views: &mut BTreeMap<String, PvView>) {
        let state = &mut *self.state.lock();
        let expected = &mut state.expected;
        expected.retain(|name, expected| expected.is_pending(views.get(name)));
        for (name, expected) in expected {
            match &expected.view {
                Some(view) => views.insert(name.clone(), view.clone()),
                None => views.remove(name),
            };
        }
        // A PV that is seen again was not deleted.
        for pv in views.values() {
            if let Some(offer) = pv.offer.clone() {
                state.ended.remove(&(offer, pv.uid.clone()));
            }
        }
    }

    /// Whether a PV has changed or was deleted since this version.
    pub fn has_changed(&self, pv: &PvRef) -> bool {
        let watched = self.watched(&pv.name);
        let state = self.state.lock();
        let now = match state.expected.get(&pv.name) {
            Some(expected) if expected.is_pending(watched.as_ref()) => expected.view.as_ref(),
            _ => watched.as_ref(),
        };
        now.is_none_or(|now| now.reference() != *pv)
    }

    fn watched(&self, name: &str) -> Option<PvView> {
        self.watched.borrow().as_ref()?.get(name).cloned()
    }

    /// Records the PV that a write or a read has returned.
    pub fn expect(&self, view: PvView) {
        let pause = match self.expected(&view.name) {
            Some(before) if before.view.as_ref() == Some(&view) => READ_AGAIN_AFTER,
            _ => READ_AFTER,
        };
        self.record(&view.reference(), Some(view), pause);
    }

    fn record(&self, pv: &PvRef, view: Option<PvView>, pause: Duration) {
        let (pv, read_at) = (pv.clone(), Instant::now() + pause);
        let name = pv.name.clone();
        let expected = Expected { pv, view, read_at };
        self.state.lock().expected.insert(name, expected);
    }

    /// Records a PV that has left the watch. One that was not seen Terminating is read: it was deleted, or has lost the
    /// hostname label. Only the others are known to be deleted, so that their offers have ended.
    pub(super) fn left(&self, pv: PvView) {
        self.state.lock().departures += 1;
        if !pv.deleting {
            let is_bound_to_disk = pv.link.is_some();
            self.record(&pv.reference(), Some(pv), Duration::ZERO);
            // Another node may have taken it over.
            if is_bound_to_disk {
                self.urgent.notify_one();
            }
            return;
        }
        let mut state = self.state.lock();
        let offer = pv.offer.clone().filter(|_| pv.had_no_tenant());
        if state.ended.len() < MAX_ENDED {
            let ended = offer.map(|offer| (offer, pv.uid.clone()));
            state.ended.extend(ended);
        }
        state.expected.retain(|_, it| it.pv.uid != pv.uid);
    }

    fn expected(&self, name: &str) -> Option<Expected> {
        self.state.lock().expected.get(name).cloned()
    }

    /// Reads the PVs that the watch does not show as expected, until it is dropped.
    pub(super) async fn read_due(self) {
        loop {
            tokio::select! {
                () = sleep(READ_AFTER) => {}
                () = self.urgent.notified() => {}
            }
            for pv in self.due(Instant::now()) {
                self.read(&pv).await;
                self.wake.notify_one();
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<PvRef> {
        let state = self.state.lock();
        let is_due = |(name, it): &(&String, &Expected)| {
            it.read_at <= now && it.is_pending(self.watched(name).as_ref())
        };
        let due = state.expected.iter().filter(is_due);
        due.map(|(_, it)| it.pv.clone()).collect()
    }

    /// Reads a PV whose known version is outdated, and records the result, unless a write is recorded meanwhile.
    pub async fn read(&self, pv: &PvRef) {
        // The watch may overtake the answer with a deletion, which no later event would correct.
        let known = || (self.expected(&pv.name), self.state.lock().departures);
        let before = known();
        match self.cluster.pv(&pv.name).await {
            Ok(_) if known() != before => {}
            Ok(Some(found)) if !self.is_elsewhere(&found) => self.expect(found),
            Ok(_) => self.record(pv, None, READ_AFTER),
            Err(error) => tracing::debug!(pv = pv.name, %error, "reading the PV failed"),
        }
    }

    /// Whether another node has the disk of a PV by now. The affinity of other PVs still names this one.
    fn is_elsewhere(&self, pv: &PvView) -> bool {
        let label = pv.hostname_label.as_ref();
        let is_other = label.is_some_and(|label| *label != self.node.hostname);
        is_other && pv.link.is_some() && !pv.is_kept_by(&self.node)
    }

    /// Counts a write to this PV. Returns whether the PV backs off now, since there were too many: another writer
    /// reverts them.
    pub fn wrote(&self, pv: &PvRef) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let writes = state.writes.entry(pv.uid.clone()).or_default();
        writes.retain(|at| now.duration_since(*at) < WRITES_PERIOD);
        writes.push(now);
        let is_excessive = writes.len() > MAX_WRITES;
        drop(state);
        if is_excessive {
            let _ = self.back_off(&pv.name, false);
        }
        is_excessive
    }

    /// Records that a write to this PV or Job failed: with a transient error, or for a longer time. Returns whether it is
    /// the first one to be tried again.
    pub fn back_off(&self, name: &str, is_passing: bool) -> bool {
        let mut state = self.state.lock();
        let failures = state.failed.get(name).map_or(0, |(failures, _)| *failures);
        let passing = is_passing.then(|| WRITE_RETRY.pause(failures));
        let until = Instant::now() + passing.unwrap_or(WRITE_RETRY.longest);
        state.failed.insert(name.to_owned(), (failures + 1, until));
        state.failed.values().all(|(_, other)| *other >= until)
    }

    /// The PVs and Jobs that back off after a failed write, and how long the first of them still does.
    pub fn backing_off(&self) -> (BTreeSet<String>, Option<Duration>) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let is_recent = |at: &Instant| now.duration_since(*at) < WRITES_PERIOD;
        state
            .writes
            .retain(|_, writes| writes.last().is_some_and(is_recent));
        // A write that fails later is the first one to fail again.
        let kept_for = WRITE_RETRY.longest;
        state.failed.retain(|_, (_, until)| now < *until + kept_for);
        let waiting = state.failed.iter().filter(|(_, (_, until))| *until > now);
        let first = waiting.clone().map(|(_, (_, until))| *until - now).min();
        (waiting.map(|(name, _)| name.clone()).collect(), first)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use kube::Client;
    use serde_json::{Value, json};

    use crate::metrics::Metrics;
    use crate::names::LABEL_HOSTNAME;

    use super::*;

    fn pv(uid: &str, version: &str) -> Value {
        let metadata = json!({ "name": "pv", "uid": uid, "resourceVersion": version });
        json!({ "metadata": metadata, "spec": {} })
    }

    fn view(version: &str) -> PvView {
        PvView::from_api(&serde_json::from_value(pv("uid", version)).unwrap())
    }

    fn node() -> NodeView {
        let metadata = json!({ "name": "n1", "labels": { LABEL_HOSTNAME: "host-1" } });
        NodeView::from_metadata(&serde_json::from_value(metadata).unwrap()).unwrap()
    }

    /// Expectations whose API server returns `answer` to each read.
    fn expectations(answer: Option<&Value>) -> Expectations {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "gone", "reason": "NotFound", "code": 404,
        });
        let answer = answer.map_or((StatusCode::NOT_FOUND, status.to_string()), |pv| {
            (StatusCode::OK, pv.to_string())
        });
        expectations_of(Router::new().fallback(move || std::future::ready(answer.clone())))
    }

    fn expectations_of(server: Router) -> Expectations {
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let (_, watched) = watch::channel(None);
        Expectations {
            cluster,
            watched,
            node: Arc::new(node()),
            wake: Arc::default(),
            urgent: Arc::default(),
            state: Arc::default(),
        }
    }

    /// The version that a pass sees while the watch shows `watched`.
    fn seen(expectations: &Expectations, watched: Option<PvView>) -> Option<String> {
        let watched = watched.map(|view| ("pv".to_owned(), view));
        let mut views = watched.into_iter().collect();
        expectations.apply_to(&mut views);
        views.remove("pv").map(|view| view.resource_version)
    }

    #[tokio::test]
    async fn pv_that_another_node_has_taken_over_is_gone() {
        let link = "/run/local-volume-provisioner/0123456789abcdef0123456789abcdef";
        for (path, hostname, by, is_gone) in [
            (link, "host-2", "n2", true),
            (link, "host-1", "n2", false),
            // After a change of our hostname.
            (link, "host-2", "n1", false),
            ("/mnt/fast/a", "host-2", "n2", false),
        ] {
            let mut found = pv("uid", "9");
            let by = format!("local-volume-provisioner-{by}");
            found["metadata"]["labels"] = json!({ LABEL_HOSTNAME: hostname });
            found["metadata"]["annotations"] = json!({ "pv.kubernetes.io/provisioned-by": by });
            found["spec"]["local"] = json!({ "path": path });
            let expectations = expectations(Some(&found));
            expectations.left(view("8"));
            assert!(seen(&expectations, None).is_some());
            expectations.read(&view("8").reference()).await;
            let seen = seen(&expectations, None);
            assert_eq!(seen.is_none(), is_gone, "{path} {hostname} {by}");
        }
    }

    #[tokio::test]
    async fn answer_that_the_deletion_of_an_unused_pv_has_overtaken_does_not_count() {
        let offered = || PvView {
            offer: Some("token".into()),
            deleting: true,
            ..view("8")
        };
        let known = Arc::<Mutex<Option<Expectations>>>::default();
        let shared = Arc::clone(&known);
        let server = Router::new().fallback(move || {
            let expectations = known.lock().clone();
            expectations.unwrap().left(offered());
            std::future::ready(pv("uid", "8").to_string())
        });
        let expectations = expectations_of(server);
        *shared.lock() = Some(expectations.clone());
        expectations.read(&offered().reference()).await;
        assert_eq!(seen(&expectations, None), None);
        assert_eq!(expectations.state.lock().ended.len(), 1);
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
        assert!(expectations.state.lock().expected.is_empty());
    }

    #[tokio::test]
    async fn deleted_pv_is_no_longer_expected() {
        let expectations = expectations(None);
        expectations.expect(view("2"));
        for (uid, expected) in [("another", Some("2")), ("uid", None)] {
            let mut deleted = view("3");
            (deleted.uid, deleted.deleting) = (uid.to_owned(), true);
            expectations.left(deleted);
            assert_eq!(seen(&expectations, None).as_deref(), expected);
        }
    }

    #[tokio::test]
    async fn read_settles_what_the_watch_does_not_show() {
        for (found, expected) in [(None, None), (Some(pv("uid", "1")), Some("1"))] {
            let expectations = expectations(found.as_ref());
            expectations.expect(view("2"));
            assert_eq!(seen(&expectations, None).as_deref(), Some("2"));
            let now = Instant::now();
            assert_eq!(expectations.due(now), []);
            let [due] = &expectations.due(now + READ_AFTER)[..] else {
                panic!("it is not read");
            };
            expectations.read(due).await;
            assert_eq!(seen(&expectations, None).as_deref(), expected);
            assert_eq!(expectations.due(now + READ_AFTER), []);
        }
    }

    #[tokio::test]
    async fn pv_that_no_watch_shows_is_read_every_minute() {
        let expectations = expectations(Some(&pv("uid", "2")));
        expectations.expect(view("2"));
        let due = |pause| expectations.due(Instant::now() + pause).len();
        assert_eq!(due(READ_AFTER), 1);
        expectations.read(&view("2").reference()).await;
        assert_eq!((due(READ_AFTER), due(READ_AGAIN_AFTER)), (0, 1));
        assert_eq!(seen(&expectations, None).as_deref(), Some("2"));
    }

    #[tokio::test]
    async fn failed_writes_back_off_for_a_time_that_grows() {
        let expectations = expectations(None);
        assert_eq!(expectations.backing_off(), (BTreeSet::new(), None));
        let names = BTreeSet::from(["pv".to_owned()]);
        for (is_passing, milliseconds) in
            [(true, 1000), (true, 2000), (true, 4000), (false, 20_000)]
        {
            let _ = expectations.back_off("pv", is_passing);
            let (waiting, left) = expectations.backing_off();
            let left = left.unwrap().as_millis();
            assert_eq!(waiting, names);
            assert!(left <= milliseconds && left > milliseconds / 2, "{left}");
        }
    }
}
