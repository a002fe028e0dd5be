//! The work of the controllers.

use tokio::time::Instant;

use super::{object::Key, queue::WorkQueue};
use crate::garbage;

/// One queue per rule that looks at a key.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) claims: WorkQueue<Key>,
    pub(crate) volumes: WorkQueue<Key>,
    pub(crate) claim_protection: WorkQueue<Key>,
    pub(crate) volume_protection: WorkQueue<Key>,
    /// Pods that empty a volume.
    pub(crate) recyclers: WorkQueue<Key>,
    /// Pods without a node.
    pub(crate) unscheduled: WorkQueue<Key>,
    /// Pods on a node.
    pub(crate) scheduled: WorkQueue<Key>,
    pub(crate) jobs: WorkQueue<Key>,
    pub(crate) garbage: WorkQueue<garbage::Target>,
    pub(crate) namespaces: WorkQueue<Key>,
}

impl Queues {
    /// Makes everything due that waits for a time.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        for keys in [
            &mut self.claims,
            &mut self.volumes,
            &mut self.claim_protection,
            &mut self.volume_protection,
            &mut self.recyclers,
            &mut self.unscheduled,
            &mut self.scheduled,
            &mut self.jobs,
            &mut self.namespaces,
        ] {
            keys.hurry();
        }
        self.garbage.hurry();
    }

    /// When the next of the keys that wait for a time is due, if any does.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let keys = [
            &self.claims,
            &self.volumes,
            &self.claim_protection,
            &self.volume_protection,
            &self.recyclers,
            &self.unscheduled,
            &self.scheduled,
            &self.jobs,
            &self.namespaces,
        ];
        let due = keys.into_iter().map(WorkQueue::next_due).chain([self.garbage.next_due()]);
        due.flatten().min().map(Instant::from_std)
    }
}
