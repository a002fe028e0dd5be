//! Deduplicates the notices of plans: each is reported once.

use std::collections::BTreeSet;

use crate::plan::{About, Notice};

use super::Reporter;

/// Reports each new notice of a plan once: in the log and as an event.
#[derive(Debug, Default)]
pub struct Notices {
    reported: BTreeSet<Notice>,
}

impl Notices {
    /// Reports the new notices and returns them.
    ///
    /// An old notice that is missing from `now` is kept while it is `in_doubt`, so that it is not reported again
    /// later.
    pub fn report(
        &mut self,
        mut now: BTreeSet<Notice>,
        in_doubt: impl Fn(&Notice) -> bool,
        reporter: &Reporter,
    ) -> Vec<Notice> {
        // One notice per PV and reason: messages with changing numbers would accumulate.
        let key = |notice: &Notice| (notice.about.clone(), notice.reason);
        let repeated: BTreeSet<_> = now.iter().map(key).collect();
        let fresh: Vec<_> = now.difference(&self.reported).cloned().collect();
        for old in std::mem::take(&mut self.reported) {
            if repeated.contains(&key(&old)) {
                continue;
            }
            if in_doubt(&old) {
                now.insert(old);
            } else if let Some(pv) = pv_of(&old) {
                tracing::info!(pv, reason = old.reason, "no longer the case");
            }
        }
        for notice in &fresh {
            let (reason, message) = (notice.reason, &notice.message);
            tracing::warn!(pv = pv_of(notice), reason, "{message}");
            reporter.warning(&notice.about, reason, "Check", message);
        }
        self.reported = now;
        fresh
    }

    /// The PVs with a problem, and the reasons.
    pub fn about_pvs(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let reported = self.reported.iter();
        reported.filter_map(|notice| Some((pv_of(notice)?, notice.reason)))
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

    #[tokio::test]
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
        assert_eq!(notices.report(both, doubtful, &reporter), [seen]);

        let other = notice("hidden", "broken twice");
        let now = BTreeSet::from([other.clone()]);
        assert_eq!(notices.report(now, doubtful, &reporter), [other]);
        assert_eq!(notices.about_pvs().count(), 1, "in place of the first text");
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
        assert!(!buffer.text().contains("no longer the case"));
        notices.report(BTreeSet::new(), |_| false, &reporter);
        assert!(buffer.text().contains("no longer the case"));
    }
}
