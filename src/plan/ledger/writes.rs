//! The back-off of objects whose writes fail, or which are written too often.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::retry;
use crate::view::PvRef;

/// How often a PV may be written within a period before it backs off. A tenancy requires five at most.
const MAX_WRITES: usize = 8;
const PERIOD: Duration = Duration::from_mins(1);

/// The failed writes, and the latest ones.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// By a name as in [`super::Ledger::writing`]: the consecutive failed writes, and until when it backs off.
    failed: BTreeMap<String, (u32, Duration)>,
    /// By UID, when a PV was written.
    written: BTreeMap<String, Vec<Duration>>,
}

impl Writes {
    /// Counts a write to this PV. Returns whether the PV backs off now, since there were too many: another writer
    /// reverts them.
    pub fn count(&mut self, pv: &PvRef, now: Duration) -> bool {
        let writes = self.written.entry(pv.uid.clone()).or_default();
        writes.retain(|at| now < *at + PERIOD);
        writes.push(now);
        let is_excessive = writes.len() > MAX_WRITES;
        if is_excessive {
            self.fail(&pv.name, false, now);
        }
        is_excessive
    }

    /// Records that a write to this object failed: with a transient error, or for a longer time. Returns whether it is the
    /// first one to be tried again.
    pub fn fail(&mut self, name: &str, is_transient: bool, now: Duration) -> bool {
        let failures = self.failed.get(name).map_or(0, |(failures, _)| *failures);
        let pause = if is_transient { retry::WRITE.pause(failures) } else { retry::WRITE.longest };
        let until = now + pause;
        self.failed.insert(name.to_owned(), (failures + 1, until));
        self.waiting(now).all(|(_, other)| other >= until)
    }

    /// Ends all back-offs.
    pub(super) fn end_pauses(&mut self) {
        self.failed.clear();
    }

    /// Drops what is outdated.
    pub(super) fn prune(&mut self, now: Duration) {
        let is_recent = |at: &Duration| now < *at + PERIOD;
        self.written.retain(|_, writes| writes.last().is_some_and(is_recent));
        // A write that fails later is the first one to fail again.
        self.failed.retain(|_, (_, until)| now < *until + retry::WRITE.longest);
    }

    /// The objects that back off, each with the end of its pause.
    pub(super) fn waiting(&self, now: Duration) -> impl Iterator<Item = (&String, Duration)> {
        let failed = self.failed.iter().map(|(name, (_, until))| (name, *until));
        failed.filter(move |(_, until)| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_writes_back_off_for_a_time_that_grows() {
        let (mut writes, now) = (Writes::default(), Duration::from_secs(100));
        assert_eq!(writes.waiting(now).count(), 0);
        for (is_transient, pause) in [(true, 1), (true, 2), (true, 4), (false, 20)] {
            assert!(writes.fail("pv", is_transient, now));
            let end = now + Duration::from_secs(pause);
            let waiting: Vec<_> = writes.waiting(now).collect();
            assert_eq!(waiting, [(&"pv".to_owned(), end)]);
            assert_eq!(writes.waiting(end).count(), 0);
        }
        assert!(!writes.fail("later", false, now + Duration::from_secs(1)));
        assert!(writes.fail("again", true, now + Duration::from_secs(20)), "the others are due");
        writes.prune(now + Duration::from_secs(40));
        assert!(!writes.failed.contains_key("pv") && writes.failed.contains_key("later"));
    }

    #[test]
    fn pv_that_another_writer_reverts_backs_off() {
        let pv = PvRef { name: "pv".into(), uid: "u".into(), resource_version: "7".into() };
        let mut writes = Writes::default();
        let count = |writes: &mut Writes, seconds| {
            let now = Duration::from_secs(seconds);
            // As before each plan.
            writes.prune(now);
            writes.count(&pv, now)
        };
        assert!((0..8).all(|second| !count(&mut writes, second)));
        assert!(!count(&mut writes, 60), "the first ones are a minute old");
        assert!(count(&mut writes, 60));
        writes.prune(Duration::from_secs(121));
        assert!(writes.written.is_empty());
    }
}
