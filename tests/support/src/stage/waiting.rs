//! Waiting for the cluster, which takes its time.

use std::time::{Duration, Instant};

use super::Stage;
use crate::cluster::Cluster;
use crate::patience::until;

/// The limit that ends what hangs. It is no statement about speed: the machine may be busy, and the binder of
/// a cluster that is not scripts/cluster's looks at pending claims every 15 s.
pub(super) fn patience() -> Duration {
    Duration::from_secs(if Cluster::is_real() { 90 } else { 30 })
}

impl Stage {
    /// How long anything may take that ought to happen at once.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Allows for a provisioner that runs on a slower machine than this.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The limit for something quick that takes `limit` in the embedded control plane when the machine
    /// is busy. A real one needs more of the machine.
    #[must_use]
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

    /// Waits until something is so.
    ///
    /// # Panics
    /// When it is not within [`Stage::patience`].
    pub fn eventually<T>(&self, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        self.wait(self.patience(), what, is_so)
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// When it is not within `limit`, or what that [is](Self::at_most) in this cluster.
    pub fn within<T>(&self, limit: Duration, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        self.wait(self.at_most(limit), what, is_so)
    }

    fn wait<T>(&self, limit: Duration, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        until(limit, self.nap(), is_so).unwrap_or_else(|| panic!("not within {limit:?}: {what}"))
    }

    /// Asserts that something stays so for a while.
    ///
    /// # Panics
    /// As soon as it is not so.
    pub fn stays(&self, lasting: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + lasting;
        while Instant::now() < deadline {
            assert!(is_so(), "no longer so: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
