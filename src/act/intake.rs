//! Takes in disks: makes their entries. The plan decides which.

use std::sync::Arc;
use std::time::Duration;

use super::Execution;
use crate::cleanup::blocking::{DISK_TIMEOUT, within};
use crate::cleanup::{Obstacle, path_owner};
use crate::cluster::ApiError;
use crate::plan::{DiskOrder, Intake};

/// The time limit for a filesystem: on a large rotating disk, mkfs writes for minutes.
const MAKING_TIMEOUT: Duration = Duration::from_mins(10);

impl Execution {
    /// Makes the entry of a disk that is still unused. The scan that follows finds it.
    pub(super) fn take_in(self: &Arc<Self>, order: DiskOrder) {
        let (this, guard) = (Arc::clone(self), self.enter(&order.link, None));
        // Without a write permit: an unresponsive disk would hold it.
        self.run(guard, async move {
            let made = this.make_entry(&order).await;
            let (class, disk) = (&order.volume.class.name, &order.link);
            let made = made.map_err(|why| {
                ApiError::Disk(format!("class {class:?} cannot take in {disk}: {why}"))
            });
            let path = order.volume.path.clone();
            let mut ledger = this.context.table.facts();
            match &made {
                Ok(()) => {
                    tracing::info!(class, how = ?order.how, "took in a disk");
                    ledger.untaken.remove(&path);
                    ledger.marked.insert(path);
                }
                Err(why) => drop(ledger.untaken.insert(path, why.to_string())),
            }
            made.map(|()| true)
        });
    }

    /// Makes the entry of a disk after the checks of an offer.
    async fn make_entry(&self, order: &DiskOrder) -> Result<(), Obstacle> {
        let (path, footprint) = (&order.volume.path, &order.volume.candidate.footprint);
        let permit = self.inspection_permits.acquire().await;
        if order.how.is_new(&order.volume.candidate) {
            let owner = path_owner(&self.context, path, footprint, "", &self.facts).await?;
            owner.map_or(Ok(()), |owner| Err(Obstacle::Unknown(owner)))?;
        }
        let unused = self.facts.ensure_no_host_path(&self.context, path, footprint);
        unused.await?;
        let limit = match order.how {
            Intake::Link | Intake::Mount => DISK_TIMEOUT,
            Intake::Make | Intake::Remake => MAKING_TIMEOUT,
        };
        drop(permit);
        let made = self.context.host.take_in(order, &self.facts);
        within(limit, "the disk", made).await
    }
}
