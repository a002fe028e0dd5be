//! Takes in disks: makes their entries. The plan decides which.

use std::time::Duration;

use tokio::time::timeout;

use super::Actor;
use crate::cache::Expectations;
use crate::cleanup::PassFacts;
use crate::cluster::ApiError;
use crate::plan::DiskOrder;

/// The time limit for the check of a disk.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Actor {
    /// Makes the entry of a disk that is still blank and unused. The scan that follows finds it.
    pub(super) fn take_in(&self, order: DiskOrder, facts: PassFacts, expectations: &Expectations) {
        let guard = self.enter(&order.link, None);
        let this = self.clone();
        let work = async move {
            let made = timeout(TIMEOUT, this.context.host.take_in(&order, &facts)).await;
            let made = made.map_err(|_| format!("the disk did not answer for {TIMEOUT:?}"));
            let made = made.and_then(|made| made.map_err(|obstacle| obstacle.to_string()));
            let (class, link) = (&order.class.name, &order.link);
            made.map_err(|why| {
                ApiError::Disk(format!("{link} is not taken in by class {class:?}: {why}"))
            })?;
            tracing::info!(class, disk = link, "took in a blank disk");
            let entry = link.rsplit('/').next().unwrap_or_default();
            let path = order.class.host_dir.join(entry);
            this.ledger.lock().marked.insert(path);
            Ok(())
        };
        self.write(guard, expectations, work, |is_ok| is_ok);
    }
}
