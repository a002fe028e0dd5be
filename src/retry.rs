//! The pauses before failed or refused operations are tried again.
//!
//! Time limits of single operations are where the operations are, and so are polls within them.

use std::time::Duration;

/// Pauses that double from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Backoff {
    const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after a failure that followed this number of consecutive failures.
    pub fn pause(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn mins(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

// The API server.

/// A write of the main loop failed with a transient error. After a refusal, the pause is the longest.
pub const WRITE: Backoff = Backoff::new(secs(1), secs(20));
/// The shortest time between two passes that try failed writes again: many back-offs end one after the other. Passes are as
/// far apart while another cluster answers.
pub const WRITE_PASS: Duration = secs(1);
/// The list of the PVs without a hostname label failed.
pub const PV_LIST: Backoff = Backoff::new(secs(1), secs(30));
/// The watch does not show a version of a PV that was written: the PV is read.
pub const UNSEEN_WRITE: Duration = secs(10);
/// Likewise, if the last read has shown no change.
pub const UNSEEN_READ: Duration = mins(1);
/// The watch does not show the labels that were written to the Node.
pub const UNSEEN_LABELS: Duration = secs(10);
/// An event could not be written.
pub const EVENT: Backoff = Backoff::new(millis(500), secs(10));
/// The startup taint could not be removed. The first pauses are short: another writer of the Node causes conflicts.
pub const TAINT: Backoff = Backoff::new(millis(20), secs(30));
/// The UID of the cluster could not be read.
pub const CLUSTER_UID: Duration = secs(30);
/// The first requests of the process failed.
pub const START: Duration = secs(2);
/// The API server is unreachable: the shortest pause before a probe, and the jitter on top. The provisioners of a cluster
/// probe once a second on average, and not in step.
pub const OUTAGE: Duration = millis(500);
/// The random addition to [`OUTAGE`].
pub const OUTAGE_JITTER: Duration = secs(1);
/// The API server answered with 429, 503 or 504 without `Retry-After`. The default policy of the client pauses for up to
/// 1000 s, and a watch waits for it without a limit.
pub const UNAVAILABLE: Backoff = Backoff::new(millis(5), secs(30));
/// A step for a PV whose node is gone failed. Another version of the PV starts again.
pub const NODE_CLEANUP: Backoff = Backoff::new(secs(2), mins(5));

// Cleanups.

/// An attempt failed.
pub const CLEANUP: Backoff = Backoff::new(secs(10), mins(5));
/// The finalizer of a clean volume could not be removed.
pub const RELEASE: Backoff = Backoff::new(millis(200), secs(30));
/// A volume is in use. From [`LONG_USE`] on, the pause is a sixth of the time that the use has lasted, up to
/// [`LONGEST_IN_USE`].
pub const IN_USE: Duration = secs(1);
/// See [`IN_USE`].
pub const LONGEST_IN_USE: Duration = mins(5);
/// When a use is reported: how long udev and similar programs probe a disk. A longer use is reported.
pub const SHORT_USE: Duration = secs(3);
/// When a use is reported that normally ends without intervention.
pub const LONG_USE: Duration = mins(1);

// Offers.

/// The inspection refuses a volume. The pause is shorter than the period of idle passes, so that each of these inspects again.
pub const INSPECTION: Duration = secs(5);
/// A Pod uses the path of a volume: each check lists the Pods.
pub const POD: Duration = secs(15);
/// Another PV owns the volume: each check reads that PV.
pub const OWNED_PATH: Duration = mins(1);
/// Another PV names the claim of an adoption: each check lists all PVs.
pub const CLAIM: Duration = secs(30);
/// The mark of the volume could not be written.
pub const MARK: Duration = secs(10);
/// A PV of another node has the disk.
pub const OWNED_DISK: Duration = mins(5);
/// The first list for a new PV has shown no other owner. Another node may create a PV right after that
/// list, whose age in seconds is the same.
pub const NEW_DISK: Duration = secs(5);
/// Later lists have shown none. A node that creates a PV later finds ours, but PVs of earlier versions have no label until
/// the provisioner of their node is upgraded.
pub const FREE_DISK: Duration = Duration::from_hours(1);
/// A PV whose disk was moved here cannot be taken over yet.
pub const TAKEOVER: Duration = secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::new(secs(2), secs(7));
        let pauses = [0, 1, 2, 3, 40].map(|failures| backoff.pause(failures).as_secs());
        assert_eq!(pauses, [2, 4, 7, 7, 7]);
    }
}
