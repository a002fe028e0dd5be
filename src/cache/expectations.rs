//! PV versions that the watch does not show yet: the results of our own writes, and newer reads.
//!
//! The newest version wins; versions of PVs compare as numbers. If the watch does not show an expected version
//! within ten to twenty seconds, a read replaces it. PVs without the hostname label, which no watch shows, stay
//! expected and are read every minute.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::retry::{UNSEEN_READ, UNSEEN_WRITE};
use crate::view::{NodeView, PvRef, PvView};

/// The ended offers that are kept. The volumes of more than these may need a consent.
const MAX_ENDED: usize = 10_000;

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
            Some(before) if before.view.as_ref() == Some(&view) => UNSEEN_READ,
            _ => UNSEEN_WRITE,
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
                () = sleep(UNSEEN_WRITE) => {}
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
            Ok(_) => self.record(pv, None, UNSEEN_WRITE),
            Err(error) => tracing::debug!(pv = pv.name, %error, "reading the PV failed"),
        }
    }

    /// Whether another node has the disk of a PV by now. The affinity of other PVs still names this one.
    fn is_elsewhere(&self, pv: &PvView) -> bool {
        let label = pv.hostname_label.as_ref();
        let is_other = label.is_some_and(|label| *label != self.node.hostname);
        is_other && pv.link.is_some() && !pv.is_kept_by(&self.node)
    }
}
