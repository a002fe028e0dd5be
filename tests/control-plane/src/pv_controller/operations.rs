//! Operations that take time: under one name runs one at a time, and after an error the next one
//! has to wait, twice as long with each further error.
//!
//! Nothing starts by itself when that wait is over: whoever looks at the object the next time asks
//! again. Time is an argument, as in the work queues.

use std::{
    collections::HashMap,
    fmt,
    time::{Duration, Instant},
};

use crate::controllers::object::Volume;

/// The wait after the first error.
const FIRST_BACK_OFF: Duration = Duration::from_millis(500);
/// The longest wait, kube-controller-manager's.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(122);

/// What is done to which object. A volume that is made again under the same name is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn new(verb: &str, volume: &Volume) -> Self {
        Self(format!("{verb}-{}[{}]", volume.name(), volume.uid()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The operations that run, and those that have to wait.
#[derive(Debug, Default)]
pub(crate) struct Operations(HashMap<Name, Operation>);

#[derive(Debug)]
enum Operation {
    /// With the wait before it, if the one before it failed.
    Runs(Option<Duration>),
    Waits {
        wait: Duration,
        until: Instant,
    },
}

impl Operations {
    /// Whether the operation may start now; it then runs until [`Operations::end`].
    #[must_use]
    pub(crate) fn start(&mut self, name: &Name, now: Instant) -> bool {
        let before = match self.0.get(name) {
            Some(Operation::Runs(_)) => return false,
            Some(Operation::Waits { until, .. }) if now < *until => return false,
            Some(Operation::Waits { wait, .. }) => Some(*wait),
            None => None,
        };
        self.0.insert(name.clone(), Operation::Runs(before));
        true
    }

    /// Ends an operation. A success forgets the errors before it.
    pub(crate) fn end(&mut self, name: &Name, succeeded: bool, now: Instant) {
        let Some(Operation::Runs(before)) = self.0.remove(name) else {
            return;
        };
        if !succeeded {
            let wait = before.map_or(FIRST_BACK_OFF, |wait| (wait * 2).min(LONGEST_BACK_OFF));
            let until = now + wait;
            self.0
                .insert(name.clone(), Operation::Waits { wait, until });
        }
    }

    /// Forgets the errors of an operation of which no more will come. One that runs goes on.
    pub(crate) fn forget(&mut self, name: &Name) {
        if let Some(Operation::Waits { .. }) = self.0.get(name) {
            self.0.remove(name);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn any_runs(&self) -> bool {
        let mut all = self.0.values();
        all.any(|operation| matches!(operation, Operation::Runs(_)))
    }

    /// Ends every wait after an error.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.0
            .retain(|_, operation| matches!(operation, Operation::Runs(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let (mut operations, now) = (Operations::default(), Instant::now());
        let [a, b] = ["a", "b"].map(|name| Name(name.into()));
        assert!(operations.start(&a, now));
        assert!(!operations.start(&a, now));
        assert!(operations.start(&b, now), "others do not wait");
        operations.end(&a, true, now);
        assert!(operations.start(&a, now));
    }

    #[test]
    fn errors_back_off_and_a_success_forgets_them() {
        let (mut operations, mut now) = (Operations::default(), Instant::now());
        let name = Name("a".into());
        for millis in [
            500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 122_000, 122_000,
        ] {
            let wait = Duration::from_millis(millis);
            assert!(operations.start(&name, now), "{millis}");
            operations.end(&name, false, now);
            let almost = now + wait.saturating_sub(Duration::from_nanos(1));
            assert!(!operations.start(&name, almost), "{millis}");
            now += wait;
        }
        assert!(operations.start(&name, now));
        operations.end(&name, true, now);
        assert!(operations.start(&name, now));
        operations.end(&name, false, now);
        assert!(operations.start(&name, now + Duration::from_millis(500)));
    }
}
