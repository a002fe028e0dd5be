//! Rules of links that are broken.

use crate::rules::{Rule, rule};

const LINK: &str = "src/plan/link.rs";

pub const RULES: &[Rule] = &[
    rule(
        "a link that is not verified any more is removed",
        LINK,
        ".filter(|token| !stays(token));",
        ".filter(|token| !stays(token) && !BROKEN);",
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
