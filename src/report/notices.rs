//! Deduplicates the notices of plans: each is reported once, and one that comes and goes at most once a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::{About, Notice, consents_in};

use super::Reporter;

/// How soon a problem that ended or changed is told again.
const FLAP_PERIOD: Duration = Duration::from_mins(1);

/// Reports each new notice of a plan once: in the log and as an event.
#[derive(Debug, Default)]
pub struct Notices {
    /// Those of the last plan, and those in doubt.
    current: BTreeSet<Notice>,
    reported: BTreeSet<Notice>,
    recent: Vec<(Notice, Instant)>,
}

/// Lets each line pass once a minute.
#[derive(Debug, Default)]
pub struct Damper(BTreeMap<String, Instant>);

impl Damper {
    /// Whether a line may be logged now.
    pub fn permits(&mut self, line: &str) -> bool {
        self.0.retain(|_, at| at.elapsed() < FLAP_PERIOD);
        let is_new = !self.0.contains_key(line);
        if is_new {
            self.0.insert(line.to_owned(), Instant::now());
        }
        is_new
    }
}

// One notice per object and reason: messages with changing numbers would accumulate.
fn key(notice: &Notice) -> (&About, &'static str) {
    (&notice.about, notice.reason)
}

impl Notices {
    /// Those that the last plan did not have.
    pub fn new_in<'a>(&'a self, now: &'a BTreeSet<Notice>) -> impl Iterator<Item = &'a Notice> {
        now.difference(&self.current)
    }

    /// Reports the new notices and returns the reported ones.
    ///
    /// An old notice that is missing from `now` is kept while it is `in_doubt`, so that it is not reported again
    /// later.
    pub fn report(
        &mut self,
        mut now: BTreeSet<Notice>,
        in_doubt: impl Fn(&Notice) -> bool,
        reporter: &Reporter,
    ) -> Vec<Notice> {
        self.recent.retain(|(_, at)| at.elapsed() < FLAP_PERIOD);
        let fresh = now.difference(&self.reported);
        let (fresh, early): (BTreeSet<_>, BTreeSet<_>) =
            fresh.cloned().partition(|it| self.is_news(it, &now));
        let keys = |notices: &BTreeSet<Notice>| -> BTreeSet<_> {
            notices.iter().map(|it| (it.about.clone(), it.reason)).collect()
        };
        let (repeated, withheld) = (keys(&now), keys(&early));
        let mut told: BTreeSet<_> = now.difference(&early).cloned().collect();
        for old in std::mem::take(&mut self.reported) {
            let key = (old.about.clone(), old.reason);
            if withheld.contains(&key) {
                // It stands for what it became.
                told.insert(old);
            } else if repeated.contains(&key) {
                // Its text has changed.
            } else if in_doubt(&old) {
                now.insert(old.clone());
                told.insert(old);
            } else if let Some(pv) = pv_of(&old) {
                tracing::info!(pv, reason = old.reason, "the problem is resolved");
            }
        }
        self.current = now;
        self.reported = told;
        for notice in &fresh {
            self.recent.push((notice.clone(), Instant::now()));
            let (reason, message) = (notice.reason, &notice.message);
            tracing::warn!(pv = pv_of(notice), reason, "{message}");
            reporter.warning(&notice.about, reason, "Check", message);
        }
        fresh.into_iter().collect()
    }

    /// Whether a notice is told now: nothing of its object and reason was told within a minute that has ended or changed
    /// since, or it names another consent to give.
    fn is_news(&self, notice: &Notice, now: &BTreeSet<Notice>) -> bool {
        let recent = self.recent.iter().map(|(recent, _)| recent);
        let similar: Vec<_> = recent.filter(|it| key(it) == key(notice)).collect();
        let is_told = |consent| similar.iter().any(|it| it.message.contains(consent));
        similar.iter().all(|it| now.contains(it) && *it != notice)
            || consents_in(&notice.message).any(|consent| !is_told(consent))
    }

    /// The PVs with a problem, and the reasons.
    pub fn about_pvs(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let current = self.current.iter();
        current.filter_map(|notice| Some((pv_of(notice)?, notice.reason)))
    }
}

fn pv_of(notice: &Notice) -> Option<&str> {
    match &notice.about {
        About::Pv(pv, _) => Some(pv),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::tests::reporter;
    use crate::log::tests::Buffer;

    use super::*;

    fn notice(pv: &str, message: &str) -> Notice {
        Notice {
            about: About::Pv(pv.into(), format!("uid of {pv}")),
            reason: "Reason",
            message: message.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_notice_in_doubt_stays_and_is_not_reported_again() {
        let reporter = reporter();
        let mut notices = Notices::default();
        let doubtful =
            |notice: &Notice| matches!(&notice.about, About::Pv(pv, _) if pv == "hidden");
        let [seen, hidden] = ["seen", "hidden"].map(|pv| notice(pv, "broken"));
        let both = BTreeSet::from([seen.clone(), hidden]);
        assert_eq!(notices.report(both.clone(), doubtful, &reporter).len(), 2);

        assert_eq!(notices.report(BTreeSet::new(), doubtful, &reporter), []);
        let about: Vec<_> = notices.about_pvs().collect();
        assert_eq!(about, [("hidden", "Reason")], "the other problem is fixed");
        advance(FLAP_PERIOD).await;
        assert_eq!(notices.report(both, doubtful, &reporter), [seen]);

        let other = notice("hidden", "broken twice");
        let now = BTreeSet::from([other.clone()]);
        advance(FLAP_PERIOD).await;
        assert_eq!(notices.report(now, doubtful, &reporter), [other]);
        assert_eq!(notices.about_pvs().count(), 1, "in place of the first text");
    }

    #[tokio::test(start_paused = true)]
    async fn notice_that_flaps_is_reported_once_a_minute() {
        let reporter = reporter();
        let mut notices = Notices::default();
        let mut told = Vec::new();
        for second in 0..600_u32 {
            for text in ["missing", "another disk"] {
                let now = [notice("pv", text), notice("other", "constant")].into();
                told.extend(notices.report(now, |_| false, &reporter));
                assert_eq!(notices.about_pvs().count(), 2);
                notices.report(BTreeSet::new(), |_| false, &reporter);
            }
            let minutes = usize::try_from(second / 60).unwrap() + 1;
            assert!(told.len() <= 2 * minutes, "{second}: {told:?}");
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(told.len(), 20);
        // What lasts is told in the end.
        notices.report([notice("pv", "missing")].into(), |_| false, &reporter);
        let now = BTreeSet::from([notice("pv", "lasting")]);
        for expected in [0, 1, 0] {
            let told = notices.report(now.clone(), |_| false, &reporter);
            assert_eq!(told.len(), expected);
            advance(FLAP_PERIOD).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_problem_and_another_consent_are_told_at_once() {
        let reporter = reporter();
        let mut notices = Notices::default();
        let first = notice("pv", "one volume: =wipe:-:a:b (deletes)");
        let second = notice("pv", "another volume");
        let changed = notice("pv", "one volume: =wipe:-:a:c (deletes)");
        for (now, told) in [
            (vec![&first], vec![&first]),
            (vec![&first, &second], vec![&second]),
            (vec![&changed, &second], vec![&changed]),
            (vec![&first, &second], vec![]),
        ] {
            let now: BTreeSet<_> = now.into_iter().cloned().collect();
            let found = notices.report(now, |_| false, &reporter);
            assert_eq!(found.iter().collect::<Vec<_>>(), told);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_passes_once_a_minute() {
        let mut damper = Damper::default();
        assert!(damper.permits("a") && damper.permits("b") && !damper.permits("a"));
        advance(FLAP_PERIOD).await;
        assert!(damper.permits("a"));
    }

    #[tokio::test]
    async fn notice_with_another_text_is_not_logged_as_over() {
        let (reporter, buffer) = (reporter(), Buffer::default());
        let out = buffer.clone();
        let log = tracing_subscriber::fmt().with_writer(move || out.clone());
        let _log = tracing::subscriber::set_default(log.finish());
        let mut notices = Notices::default();
        for message in ["broken", "broken twice"] {
            notices.report([notice("pv", message)].into(), |_| false, &reporter);
        }
        assert!(!buffer.text().contains("the problem is resolved"));
        notices.report(BTreeSet::new(), |_| false, &reporter);
        assert!(buffer.text().contains("the problem is resolved"));
    }
}
