//! When the controllers are done with a scenario.

use std::sync::atomic::Ordering;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use crate::{pulse, run::Runner};

impl Runner {
    /// Waits until nothing of a scope has changed for a while, with the controllers past it.
    pub(crate) async fn settle(&self, scope: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let last = self
                .activity
                .last(scope)
                .map_or(begun, |last| last.max(begun));
            if last.elapsed() >= self.pace.quiet && self.pulse.is_past(last) {
                return Ok(());
            }
            if begun.elapsed() > self.pace.patience {
                let patience = self.pace.patience;
                bail!("it did not settle within {patience:?}: something changes all the time");
            }
            sleep(self.pace.quiet / 20).await;
        }
    }

    /// Waits until the controllers have looked at everything again, and all has settled.
    ///
    /// No clock tells when that is: they may be slow. But a volume that comes later than a claim
    /// wakes nobody, so a claim that waited and is bound has been looked at again.
    pub(crate) async fn resync(&self, scope: &str) -> anyhow::Result<()> {
        let number = self.resyncs.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{}-pulse", self.id);
        let name = format!("{namespace}-resync-{number}");
        let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
        let volumes = "/api/v1/persistentvolumes";
        self.make(&claims, &pulse::claim(&name)).await?;
        self.settle(scope).await?;
        self.make(volumes, &pulse::volume(&name)).await?;
        let begun = Instant::now();
        let (claim, volume) = (format!("{claims}/{name}"), format!("{volumes}/{name}"));
        while self
            .api
            .get(&claim)
            .await?
            .is_none_or(|claim| claim["status"]["phase"] != "Bound")
        {
            if begun.elapsed() > self.pace.patience {
                let patience = self.pace.patience;
                bail!("the controllers did not look at everything again within {patience:?}");
            }
            sleep(self.pace.quiet / 5).await;
        }
        self.settle(scope).await?;
        self.remove(&claim).await?;
        self.remove(&volume).await
    }
}
