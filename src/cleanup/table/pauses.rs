//! The pauses between the attempts of a cleanup, and when a use of a volume is reported.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::cleanup::NotifyAfter;

/// Between the attempts of a failing cleanup.
pub(super) const FAILURE: Backoff = Backoff {
    first: Duration::from_secs(10),
    longest: Duration::from_mins(5),
};
/// Between the attempts of a failing release.
pub(super) const RELEASE: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(30),
};
const FIRST_BLOCKED_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_BLOCKED_PAUSE: Duration = Duration::from_mins(5);
/// How long udev and similar programs probe a disk.
const SHORT_USE: Duration = Duration::from_secs(3);
/// How long uses last that normally end without intervention.
const LONG_USE: Duration = Duration::from_mins(1);

impl NotifyAfter {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Zero => Duration::ZERO,
            Self::ShortUse => SHORT_USE,
            Self::LongUse => LONG_USE,
        }
    }
}

/// The pause before a volume in use is checked again.
pub(super) fn blocked_pause(lasted: Duration) -> Duration {
    if lasted < LONG_USE {
        FIRST_BLOCKED_PAUSE
    } else {
        (lasted / 6).min(LONGEST_BLOCKED_PAUSE)
    }
}
