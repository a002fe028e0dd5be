//! When the controllers are done with a scenario.

use std::sync::atomic::Ordering;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use crate::{heartbeat, run::Runner};

impl Runner {
    /// Waits until nothing of a scope has changed for a while, with the controllers past it.
    pub(crate) async fn settle(&self, scope: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let last = self.activity.last(scope).map_or(begun, |last| last.max(begun));
            if last.elapsed() >= self.pace.quiet && self.heartbeat.is_past(last) {
                return Ok(());
            }
            if begun.elapsed() > self.pace.timeout {
                let timeout = self.pace.timeout;
                bail!("it did not settle within {timeout:?}: something changes all the time");
            }
            sleep(self.pace.quiet / 20).await;
        }
    }

    /// Waits until the controllers have reconciled everything again, and all has settled.
    ///
    /// No clock tells when that is: they may be slow. But a volume that comes later than a claim
    /// wakes no controller, so a claim that waited and is bound has been reconciled again.
    pub(crate) async fn resync(&self, scope: &str) -> anyhow::Result<()> {
        let number = self.resyncs.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{}-heartbeat", self.id);
        let name = format!("{namespace}-resync-{number}");
        let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
        let volumes = "/api/v1/persistentvolumes";
        self.make(&claims, &heartbeat::claim(&name)).await?;
        self.settle(scope).await?;
        self.make(volumes, &heartbeat::volume(&name)).await?;
        let begun = Instant::now();
        let (claim, volume) = (format!("{claims}/{name}"), format!("{volumes}/{name}"));
        while self.api.get(&claim).await?.is_none_or(|claim| claim["status"]["phase"] != "Bound") {
            if begun.elapsed() > self.pace.timeout {
                let timeout = self.pace.timeout;
                bail!("the controllers did not reconcile everything again within {timeout:?}");
            }
            sleep(self.pace.quiet / 5).await;
        }
        self.settle(scope).await?;
        self.remove(&claim).await?;
        self.remove(&volume).await
    }
}
