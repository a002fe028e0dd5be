//! What has been said already.

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
    /// While only a part of the disks could be looked at (`partial`), what is not among `now` may well
    /// still be true, and is not told again afterwards.
    pub fn tell(
        &mut self,
        mut now: BTreeSet<Notice>,
        partial: bool,
        reporter: &Reporter,
    ) -> Vec<Notice> {
        if partial {
            now.extend(self.told.iter().cloned());
        }
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
