//! How a rule is broken.

use crate::cleaning::RULES as CLEANING;
use crate::intake::RULES as INTAKE;
use crate::linking::RULES as LINKING;
use crate::offering::RULES as OFFERING;

/// A rule of the program, and how it is broken.
#[derive(Debug)]
pub struct Rule {
    /// What no longer holds.
    pub name: &'static str,
    pub file: &'static str,
    /// The text of the rule, which is there once.
    pub text: &'static str,
    /// What replaces it. `BROKEN` is true while this rule is broken.
    pub broken: &'static str,
    /// The rules that stand behind this one, and are broken with it.
    pub behind: &'static [&'static str],
    pub is_hidden: bool,
}

impl Rule {
    /// With the rules that would stop what this one stops.
    pub const fn and(self, behind: &'static [&'static str]) -> Self {
        Self { behind, ..self }
    }

    /// It only stands behind others.
    pub const fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }
}

pub const fn rule(
    name: &'static str,
    file: &'static str,
    text: &'static str,
    broken: &'static str,
) -> Rule {
    Rule { name, file, text, broken, behind: &[], is_hidden: false }
}

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    CLEANING.iter().chain(OFFERING).chain(LINKING).chain(INTAKE)
}
