//! Waiting for the cluster, which takes its time.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::Value;

use super::Stage;
use crate::cluster::Cluster;
use crate::patience::until;
use crate::program::Program;

/// The limit that ends what hangs. It is no statement about speed: the machine may be busy, and the binder of
/// a cluster that is not scripts/cluster's looks at pending claims every 15 s.
pub(super) fn patience() -> Duration {
    Duration::from_secs(if Cluster::is_real() { 90 } else { 30 })
}

impl Stage {
    /// How long anything may take that ought to happen at once.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Allows for a provisioner that runs on a slower machine than this.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The limit for something quick that takes `limit` in the embedded control plane when the machine
    /// is busy. A real one needs more of the machine.
    pub fn at_most(&self, limit: Duration) -> Duration {
        match self.cluster {
            Cluster::Embedded(_) => limit,
            Cluster::Real(_) => 4 * limit,
        }
    }

    /// How long to wait before the next look at something that is not yet so.
    fn nap(&self) -> Duration {
        match self.cluster {
            Cluster::Embedded(_) => Duration::from_millis(5),
            Cluster::Real(_) => Duration::from_millis(20),
        }
    }

    pub fn eventually<T>(&self, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        self.wait(self.patience(), what, is_so)
    }

    pub fn within<T>(&self, limit: Duration, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        self.wait(self.at_most(limit), what, is_so)
    }

    fn wait<T>(&self, limit: Duration, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        until(limit, self.nap(), is_so).unwrap_or_else(|| panic!("not within {limit:?}: {what}"))
    }

    /// Asserts that something is so after the provisioner has made two whole passes over all that is there now, this
    /// node's PVs included, and no cleanup is at work.
    pub fn still(&self, provisioner: &mut Program, what: &str, is_so: impl FnOnce() -> bool) {
        self.two_passes(provisioner, || self.newest_version(), true);
        assert!(is_so(), "no longer so: {what}");
    }

    /// The same while a cleanup is at work.
    ///
    /// # Panics
    /// As [`Stage::still`].
    pub fn still_cleaning(
        &self,
        provisioner: &mut Program,
        what: &str,
        is_so: impl FnOnce() -> bool,
    ) {
        self.two_passes(provisioner, || self.newest_version(), false);
        assert!(is_so(), "no longer so: {what}");
    }

    /// The same where the test holds the watch of PVs back, so that no pass sees their latest versions.
    pub fn still_unwatched(
        &self,
        provisioner: &mut Program,
        what: &str,
        is_so: impl FnOnce() -> bool,
    ) {
        self.two_passes(provisioner, || 0, true);
        assert!(is_so(), "no longer so: {what}");
    }

    /// Waits for two whole passes over all PVs of a provisioner whose `/status` is read so.
    pub fn passes(&self, status: impl FnMut() -> Option<String>) {
        self.until_two_passes(status, || self.newest_version(), true);
    }

    fn two_passes(&self, provisioner: &mut Program, newest: impl Fn() -> u64, at_rest: bool) {
        let status = || Some(provisioner.http_get("/status").ok()?.1);
        self.until_two_passes(status, newest, at_rest);
    }

    fn until_two_passes(
        &self,
        mut status: impl FnMut() -> Option<String>,
        newest: impl Fn() -> u64,
        at_rest: bool,
    ) {
        let mut first = None;
        self.eventually("two passes that see all PVs", || {
            self.wake();
            let status: Value = serde_json::from_str(&status()?).ok()?;
            let number = status["pass"]["number"].as_u64()?;
            let seen: u64 = status["pass"]["resourceVersion"].as_str()?.parse().ok()?;
            let classes = status["classes"].as_array()?.iter();
            let mut volumes = classes
                .filter_map(|class| class["volumes"].as_array())
                .flatten();
            // The pass under way may have looked before.
            let enough = number >= *first.get_or_insert(number) + 2 && seen >= newest();
            // A cleanup that has only begun has not looked at anything yet.
            let is_at_work = |volume: &Value| {
                volume["state"] == "Cleaning" || volume["cleanup"]["waitingFor"] == "for a permit"
            };
            (enough && !(at_rest && volumes.any(is_at_work))).then_some(())
        });
    }

    /// Wakes the provisioner by a file in each discovery directory that is gone before it looks.
    fn wake(&self) {
        let classes = std::fs::read_dir(self.sandbox.path().join("disks"));
        for class in classes.into_iter().flatten().flatten() {
            let entry = class.path().join(".wake-up");
            if std::fs::File::create(&entry).is_ok() {
                let _ = std::fs::remove_file(&entry);
            }
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
