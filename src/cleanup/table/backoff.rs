//! The pauses between the attempts of a cleanup, and when a use of a volume is reported.

use std::time::Duration;

use crate::cleanup::NotifyAfter;

const FIRST_FAILURE_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_FAILURE_PAUSE: Duration = Duration::from_mins(5);
const FIRST_RELEASE_PAUSE: Duration = Duration::from_millis(200);
pub(super) const LONGEST_RELEASE_PAUSE: Duration = Duration::from_secs(30);
const FIRST_BLOCKED_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_BLOCKED_PAUSE: Duration = Duration::from_mins(5);
/// How long udev and similar programs probe a disk.
const SHORT_USE: Duration = Duration::from_secs(3);
/// How long uses last that normally end without intervention.
const LONG_USE: Duration = Duration::from_mins(1);

/// How the pauses between the attempts of a failing cleanup grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Each pause is twice as long as the previous one, up to the longest.
    Growing,
    /// Each pause is as short as the first.
    Constant,
    /// Each pause is the longest: an operator must act first.
    Longest,
}

impl Backoff {
    /// The pause after an attempt that followed this number of consecutive failures.
    pub(super) fn pause(self, failures: u32) -> Duration {
        match self {
            Self::Growing => double(FIRST_FAILURE_PAUSE, LONGEST_FAILURE_PAUSE, failures),
            Self::Constant => FIRST_FAILURE_PAUSE,
            Self::Longest => LONGEST_FAILURE_PAUSE,
        }
    }
}

impl NotifyAfter {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Zero => Duration::ZERO,
            Self::ShortUse => SHORT_USE,
            Self::LongUse => LONG_USE,
        }
    }
}

/// The pause after a failed release that followed this number of failures.
pub(super) fn release_pause(failures: u32) -> Duration {
    double(FIRST_RELEASE_PAUSE, LONGEST_RELEASE_PAUSE, failures)
}

/// The pause before a volume in use is checked again.
pub(super) fn blocked_pause(lasted: Duration) -> Duration {
    if lasted < LONG_USE {
        FIRST_BLOCKED_PAUSE
    } else {
        (lasted / 6).min(LONGEST_BLOCKED_PAUSE)
    }
}

fn double(first: Duration, longest: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(longest)
}
