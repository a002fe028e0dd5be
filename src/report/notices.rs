//! The notices of the last plan, so that each is reported once.

use std::collections::BTreeSet;

use crate::plan::{About, Notice};

use super::Reporter;

/// Tells people what is new in each plan's notices, once: in the log and as an event.
#[derive(Debug, Default)]
pub struct Notices {
    told: BTreeSet<Notice>,
}

impl Notices {
    /// Tells what was not true the last time; returns it.
    ///
    /// What is not among `now` but `in_doubt` may well still be true: it stays, and is not told again
    /// afterwards.
    pub fn tell(
        &mut self,
        mut now: BTreeSet<Notice>,
        in_doubt: impl Fn(&Notice) -> bool,
        reporter: &Reporter,
    ) -> Vec<Notice> {
        // Of a PV and a reason one text at a time, or those with figures in them would pile up.
        let anew: BTreeSet<_> = now.iter().map(|it| (&it.about, it.reason)).collect();
        let stays = |old: &&Notice| in_doubt(old) && !anew.contains(&(&old.about, old.reason));
        let staying: Vec<_> = self.told.iter().filter(stays).cloned().collect();
        now.extend(staying);
        let fresh: Vec<_> = now.difference(&self.told).cloned().collect();
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
        for Notice { about, reason, .. } in self.told.difference(&now) {
            if let About::Pv(pv, _) = about {
                tracing::info!(pv, reason, "no longer the case");
            }
        }
        self.told = now;
        fresh
    }

    /// The PVs that something is the matter with now, and the reasons.
    pub fn about_pvs(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.told.iter().filter_map(|notice| match &notice.about {
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
    fn only_what_is_in_doubt_stays_without_being_said_again() {
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
        assert_eq!(notices.tell(both.clone(), doubtful, &reporter).len(), 2);

        assert_eq!(notices.tell(BTreeSet::new(), doubtful, &reporter), []);
        let about: Vec<_> = notices.about_pvs().collect();
        assert_eq!(about, [("hidden", "Reason")], "the other one was mended");
        assert_eq!(notices.tell(both, doubtful, &reporter), [seen]);

        let other = notice("hidden", "broken twice");
        let now = BTreeSet::from([other.clone()]);
        assert_eq!(notices.tell(now, doubtful, &reporter), [other]);
        assert_eq!(notices.about_pvs().count(), 1, "in place of the first text");
    }
}
