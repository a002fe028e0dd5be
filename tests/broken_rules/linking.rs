//! Rules of links that are broken.

use crate::rules::{Rule, rule};

const ACT: &str = "src/act/link.rs";
const LINK: &str = "src/plan/link.rs";
const MARK: &str = "src/plan/mark.rs";
const PLAN: &str = "src/plan/mod.rs";

pub const RULES: &[Rule] = &[
    rule(
        "a link is for the claim whose UID the mark has",
        MARK,
        "MarkState::Used\n                    if pv.phase == Phase::Bound && mark.claim_uid != claim_uid_of(pv) =>",
        "MarkState::Used\n                    if pv.phase == Phase::Bound && !BROKEN && mark.claim_uid != claim_uid_of(pv) =>",
    ),
    rule(
        "a link is made once the mark is used",
        LINK,
        "Agreement::Lags(_) => return Err(Pending),",
        "Agreement::Lags(_) if !BROKEN => return Err(Pending),\n            Agreement::Lags(_) => {}",
    ),
    rule(
        "a link is made only if PV and mark agree",
        LINK,
        "Agreement::Mismatch(why) => return held(why),",
        "Agreement::Mismatch(why) if !BROKEN => return held(why),\n            Agreement::Mismatch(_) => {}",
    ),
    rule(
        "a link that is not verified any more is removed",
        LINK,
        ".filter(|token| !stays(token));",
        ".filter(|token| !stays(token) && !BROKEN);",
    ),
    rule(
        "a link is confirmed again after a doubt about the cluster",
        LINK,
        "&& ledger.linked.get(token) == Some(&Ok(self.snapshot.epoch))",
        "&& (BROKEN || ledger.linked.get(token) == Some(&Ok(self.snapshot.epoch)))",
    ),
    rule(
        "links are removed while the PVs or the Node are not known",
        PLAN,
        "actions: links.cloned().map(Action::Unlink).collect(),",
        "actions: links.filter(|_| !BROKEN).cloned().map(Action::Unlink).collect(),",
    ),
    rule(
        "the PV is read before its link is made",
        ACT,
        "found.is_none_or(|found| found.reference() != pv.reference())",
        "found.is_none_or(|found| found.reference() != pv.reference() && !BROKEN)",
    ),
    rule(
        "a scan from before a write of the mark verifies nothing",
        LINK,
        "if self.snapshot.ledger.creating.contains_key(path) {",
        "if self.snapshot.ledger.creating.contains_key(path) && !BROKEN {",
    ),
    rule(
        "the Node has the labels of all PVs",
        LINK,
        "let missing = wanted\n            .difference(&found)",
        "let missing = wanted\n            .difference(&found)\n            .filter(|_| !BROKEN)",
    ),
    rule(
        "the label of a missing disk stays",
        LINK,
        "let needless: Vec<_> = found.difference(&of_any.collect()).copied().collect();",
        "let needless: Vec<_> = found.difference(&of_any.filter(|_| !BROKEN).collect()).copied().collect();",
    ),
];
