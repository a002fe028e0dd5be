//! Takes in disks: makes their entries. The plan decides which.

use std::time::Duration;

use tokio::time::timeout;
use tracing::Instrument;

use super::Actor;
use crate::cleanup::{Obstacle, PassFacts, path_owner};
use crate::cluster::ApiError;
use crate::plan::{DiskOrder, Intake};

/// The time limit for the check of a disk and for its entry.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a filesystem: on a large rotating disk, mkfs writes for minutes.
const MAKING_TIMEOUT: Duration = Duration::from_mins(10);

impl Actor {
    /// Makes the entry of a disk that is still unused. The scan that follows finds it.
    pub(super) fn take_in(&self, order: DiskOrder, facts: PassFacts) {
        let Some(guard) = self.enter(&order.link, None) else {
            return;
        };
        let this = self.clone();
        let step = async move {
            // Without a write permit: an unresponsive disk would hold it.
            let made = this.make_entry(&order, &facts).await;
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
            drop(ledger);
            this.write(Some(guard), async { made }, |is_ok| is_ok);
        };
        tokio::spawn(step.in_current_span());
    }

    /// Makes the entry of a disk after the checks of an offer.
    async fn make_entry(&self, order: &DiskOrder, facts: &PassFacts) -> Result<(), Obstacle> {
        let (path, footprint) = (&order.volume.path, &order.volume.candidate.footprint);
        let permit = self.inspection_permits.acquire().await;
        if order.how.is_new(&order.volume.candidate) {
            let owner = path_owner(&self.context, path, footprint, "", facts).await?;
            owner.map_or(Ok(()), |owner| Err(Obstacle::Unknown(owner)))?;
        }
        let unused = facts.ensure_no_host_path(&self.context, path, footprint);
        unused.await?;
        let limit = match order.how {
            Intake::Link | Intake::Mount => TIMEOUT,
            Intake::Make | Intake::Remake => MAKING_TIMEOUT,
        };
        drop(permit);
        let made = timeout(limit, self.context.host.take_in(order, facts)).await;
        let silent = || Obstacle::Unknown(format!("the disk did not answer for {limit:?}"));
        made.unwrap_or_else(|_| Err(silent()))
    }
}
