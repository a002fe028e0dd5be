//! Waiting for the cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::Value;

use super::Stage;
use crate::cluster::Cluster;
use crate::passes::{TwoPasses, is_at_rest, wake};
use crate::polling::{Seen, until};
use crate::program::Program;

/// The limit that ends what hangs. It is no statement about speed: the machine may be busy, and the binder of
/// a cluster that is not scripts/cluster's looks at pending claims every 15 s.
pub(super) fn timeout() -> Duration {
    Duration::from_secs(if Cluster::is_real() { 90 } else { 30 })
}

impl Stage {
    /// How long anything may take that ought to happen at once.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Allows for a provisioner that runs on a slower machine than this.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The limit for something quick that takes `limit` in the embedded control plane when the machine
    /// is busy. A real one needs more of the machine.
    pub fn at_most(&self, limit: Duration) -> Duration {
        match self.cluster {
            Cluster::Embedded(_) => limit,
            Cluster::Real(_) => 4 * limit,
        }
    }

    /// The pause between two polls.
    fn nap(&self) -> Duration {
        match self.cluster {
            Cluster::Embedded(_) => Duration::from_millis(5),
            Cluster::Real(_) => Duration::from_millis(20),
        }
    }

    pub fn eventually<S: Seen>(&self, what: &str, is_so: impl FnMut() -> S) -> S::Found {
        self.wait(self.timeout(), what, is_so)
    }

    pub fn within<S: Seen>(
        &self,
        limit: Duration,
        what: &str,
        is_so: impl FnMut() -> S,
    ) -> S::Found {
        self.wait(self.at_most(limit), what, is_so)
    }

    fn wait<S: Seen>(&self, limit: Duration, what: &str, is_so: impl FnMut() -> S) -> S::Found {
        until(limit, self.nap(), is_so).unwrap_or_else(|| panic!("not within {limit:?}: {what}"))
    }

    /// Asserts that something is so after the provisioner has made two whole passes over all that is there now, this
    /// node's PVs included, and no cleanup runs.
    pub fn still(&self, provisioner: &mut Program, what: &str, is_so: impl FnOnce() -> bool) {
        self.passes(|| status(provisioner));
        assert!(is_so(), "no longer so: {what}");
    }

    /// The same while a cleanup runs.
    pub fn still_cleaning(
        &self,
        provisioner: &mut Program,
        what: &str,
        is_so: impl FnOnce() -> bool,
    ) {
        self.two_passes(|| status(provisioner), || self.newest_version(), |_| true);
        assert!(is_so(), "no longer so: {what}");
    }

    /// The same where the test holds the watch of PVs back, so that no pass sees their latest versions.
    pub fn still_unwatched(
        &self,
        provisioner: &mut Program,
        what: &str,
        is_so: impl FnOnce() -> bool,
    ) {
        self.two_passes(|| status(provisioner), || 0, is_at_rest);
        assert!(is_so(), "no longer so: {what}");
    }

    /// Waits for two whole passes over all PVs of a provisioner whose `/status` is read so.
    pub fn passes(&self, status: impl FnMut() -> Option<String>) {
        self.two_passes(status, || self.newest_version(), is_at_rest);
    }

    fn two_passes(
        &self,
        mut status: impl FnMut() -> Option<String>,
        newest: impl Fn() -> u64,
        is_enough: impl Fn(&Value) -> bool,
    ) {
        let mut passes = TwoPasses::default();
        self.eventually("two passes that see all PVs", || {
            self.wake();
            let status = passes.ended(&status()?, &newest)?;
            is_enough(&status).then_some(())
        });
    }

    /// Wakes the provisioner in all discovery directories.
    fn wake(&self) {
        let classes = std::fs::read_dir(self.sandbox.path().join("disks"));
        for class in classes.into_iter().flatten().flatten() {
            wake(&class.path());
        }
    }

    /// The newest resourceVersion of the PVs that the provisioner of this node watches.
    fn newest_version(&self) -> u64 {
        let is_watched = |pv: &PersistentVolume| {
            let hostname = pv.metadata.labels.as_ref()?.get("kubernetes.io/hostname");
            (*hostname? == self.node()).then_some(())
        };
        let pvs = self.pvs();
        let watched = pvs.iter().filter(|pv| is_watched(pv).is_some());
        let versions = watched.filter_map(|pv| pv.metadata.resource_version.as_ref()?.parse().ok());
        versions.max().unwrap_or(0)
    }
}

fn status(provisioner: &mut Program) -> Option<String> {
    Some(provisioner.http_get("/status").ok()?.1)
}
