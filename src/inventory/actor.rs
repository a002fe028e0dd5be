//! The actor of one class: scans its directory, and publishes what it holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Scanner;
use super::classes::{ClassInventory, Taken};

/// The delay between an event and the scan, so that one scan serves several events.
const COALESCE: Duration = Duration::from_millis(20);

/// The actor's state.
pub(super) struct Actor {
    pub(super) scanner: Box<dyn Scanner>,
    /// The longest time between two scans.
    pub(super) period: Duration,
    pub(super) taken: watch::Receiver<Taken>,
    pub(super) published: watch::Sender<Option<Arc<ClassInventory>>>,
    /// Notified when the main loop should look at what was published.
    pub(super) wake: Arc<Notify>,
}

impl Actor {
    /// Scans at once, then after each event, and every period. Ends when the inventory is dropped.
    pub(super) async fn run(mut self) {
        let mut has_event = true;
        loop {
            let begun = Instant::now();
            let taken = self.taken.borrow_and_update().clone();
            let observation = self.scanner.scan(&taken).await;
            let inventory = Arc::new(ClassInventory { observation, begun });
            let before = self.published.send_replace(Some(Arc::clone(&inventory)));
            if has_event || before.is_none_or(|it| it.observation != inventory.observation) {
                self.wake.notify_one();
            }
            let took = begun.elapsed();
            let Some(event) = self.event().await else {
                return;
            };
            has_event = event;
            if has_event {
                // A slow scan is followed by a pause of the same length.
                tokio::time::sleep(COALESCE.max(took)).await;
            }
        }
    }

    /// Waits for the next scan. Returns whether an event is the cause and not the period; `None` when the main loop
    /// has ended.
    async fn event(&mut self) -> Option<bool> {
        tokio::select! {
            biased;
            taken = self.taken.changed() => taken.ok().map(|()| true),
            () = self.scanner.changed() => Some(true),
            () = tokio::time::sleep(self.period) => Some(false),
        }
    }
}
