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
        let replaced: BTreeSet<_> = now.iter().map(|it| (&it.about, it.reason)).collect();
        let stays = |old: &&Notice| in_doubt(old) && !replaced.contains(&(&old.about, old.reason));
        let staying: Vec<_> = self.reported.iter().filter(stays).cloned().collect();
        now.extend(staying);
        let fresh: Vec<_> = now.difference(&self.reported).cloned().collect();
        for Notice {
            about,
            reason,
            message,
        } in &fresh
        {
            match about {
                About::Pv(pv, _) => tracing::warn!(pv, reason, "{message}"),
                About::Pod => tracing::warn!(reason, "{message}"),
            }
            reporter.warning(about, reason, "Check", message);
        }
        for Notice { about, reason, .. } in self.reported.difference(&now) {
            if let About::Pv(pv, _) = about {
                tracing::info!(pv, reason, "no longer the case");
            }
        }
        self.reported = now;
        fresh
    }

    /// The PVs with a problem, and the reasons.
    pub fn about_pvs(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.reported
            .iter()
            .filter_map(|notice| match &notice.about {
                About::Pv(pv, _) => Some((pv.as_str(), notice.reason)),
                About::Pod => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;
    use prometheus::IntCounter;
    use tokio::sync::mpsc;

    use super::*;

    fn notice(pv: &str, message: &str) -> Notice {
        Notice {
            about: About::Pv(pv.into(), format!("uid of {pv}")),
            reason: "Reason",
            message: message.into(),
        }
    }

    #[test]
    fn only_a_notice_in_doubt_stays_and_is_not_reported_again() {
        let reporter = Reporter {
            send: mpsc::channel(1).0,
            failed: IntCounter::new("failed", "Failed.").unwrap(),
            instance: String::new(),
            pod: ObjectReference::default(),
        };
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
}
