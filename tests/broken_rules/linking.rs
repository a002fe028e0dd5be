//! Rules of links that are broken.

use crate::rules::{Rule, rule};

const LINK: &str = "src/plan/link.rs";
const TAKEOVER: &str = "src/plan/takeover.rs";

pub const RULES: &[Rule] = &[
    rule(
        "a link that is not verified any more is removed",
        LINK,
        "let unlink = wrong.into_iter().cloned()",
        "let unlink = wrong.into_iter().filter(|_| !BROKEN).cloned()",
    ),
    rule(
        "the Node has the labels of all PVs",
        LINK,
        "let missing = wanted.difference(&found)",
        "let missing = wanted.difference(&found).filter(|_| !BROKEN)",
    ),
    rule(
        "the label of a missing disk stays",
        LINK,
        "let needless: Vec<_> = found.difference(&of_any.collect()).copied().collect();",
        "let needless: Vec<_> = found.difference(&of_any.filter(|_| !BROKEN).collect()).copied().collect();",
    ),
    rule(
        "a PV moves only if no pod of its claim is left",
        TAKEOVER,
        "if let Some((pod, on)) = &former.pod {",
        "if let Some((pod, on)) = former.pod.as_ref().filter(|_| !BROKEN) {",
    ),
    rule(
        "a PV moves only if its node is known to be off",
        TAKEOVER,
        "if (is_out && is_marked) ||",
        "if (is_out && is_marked) || BROKEN ||",
    ),
    rule(
        "a PV that has moved to this node is not created again",
        "src/plan/owners.rs",
        "here: here.cloned().collect(),",
        "here: here.filter(|_| !BROKEN).cloned().collect(),",
    ),
];
