//! Since when a PV's node is gone: written on the PV itself, so that no restart begins to count anew.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How far ahead of ours another leader's clock may be.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(30);

/// What the time is counted for. Another claim gets all of its time.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The nodes that are gone.
    pub hosts: &'a [String],
    /// The claim's UID, if the PV names one.
    pub claim: Option<&'a str>,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.hosts.join(","), self.claim.unwrap_or("-"))
    }
}

/// The value of the annotation: `<RFC 3339 time> <node>[,<node>...] <claim's UID>`.
#[must_use]
pub fn written(since: Timestamp, subject: Subject<'_>) -> String {
    // Whole seconds are what people read. Rounded up, as nobody's time may be cut.
    let seconds = since.as_second() + i64::from(since.subsec_nanosecond() > 0);
    format!(
        "{} {subject}",
        Timestamp::from_second(seconds).unwrap_or(since)
    )
}

/// When the time is up. `None` if the annotation cannot be read, is of something else, or from the
/// future: then it counts from the beginning.
#[must_use]
pub fn due(
    annotation: &str,
    subject: Subject<'_>,
    now: Timestamp,
    delay: Duration,
) -> Option<Timestamp> {
    let (since, of) = annotation.split_once(' ')?;
    let since: Timestamp = since.parse().ok()?;
    if of != subject.to_string() || since > now.checked_add(CLOCKS_DIFFER).ok()? {
        return None;
    }
    Some(since.checked_add(delay).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_mins(1);

    #[test]
    fn a_timer_counts_for_what_it_was_started_for() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let hosts = ["host-1".to_owned()];
        let subject = Subject {
            hosts: &hosts,
            claim: Some("c-uid"),
        };
        let text = written(now, subject);
        assert_eq!(text, "2026-01-01T12:00:00Z host-1 c-uid");
        let end = now + SignedDuration::from_secs(60);
        assert_eq!(due(&text, subject, now, DELAY), Some(end));
        let other = ["host-2".to_owned()];
        for subject in [
            Subject {
                claim: None,
                ..subject
            },
            Subject {
                claim: Some("another"),
                ..subject
            },
            Subject {
                hosts: &other,
                ..subject
            },
        ] {
            assert_eq!(due(&text, subject, now, DELAY), None, "{subject}");
        }
        for garbage in ["", "soon", "soon host-1 c-uid", "2026-01-01T12:00:00Z"] {
            assert_eq!(due(garbage, subject, now, DELAY), None, "{garbage:?}");
        }
        // A clock that was an hour ahead.
        let hour = now - SignedDuration::from_hours(1);
        assert_eq!(due(&text, subject, hour, DELAY), None);
        let half_a_second = now + SignedDuration::from_millis(500);
        let text = written(half_a_second, subject);
        assert!(text.starts_with("2026-01-01T12:00:01Z "), "{text}");
    }
}
