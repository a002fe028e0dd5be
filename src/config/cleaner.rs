//! How the block devices of a class are cleaned: `cleanMethod` or `blockCleanerCommand`.

use std::fmt;
use std::str::FromStr;

use super::class::spelling;
use super::fault::Problem;
use super::raw::Node;
use super::section::{Section, text, word};

/// The program that cleans devices where a class says nothing.
pub const DEFAULT_CLEANER: &str = "/scripts/quick_reset.sh";

/// What a class says about the cleaning of its block devices. A class says it in one way only: with
/// two there would be one that is in force and one that somebody believes to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaner {
    /// `cleanMethod`: one of our own cleaners.
    Method(CleanMethod),
    /// `blockCleanerCommand` (default `[/scripts/quick_reset.sh]`): program and arguments that clean
    /// a released device, which is named by the variable `LOCAL_PV_BLKDEVICE`. Never empty.
    Command(Vec<String>),
}

/// Our own cleaners of devices, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanMethod {
    /// `quick`: the contents dropped where the device can, and all signatures overwritten.
    Quick,
    /// `zero`: every byte zero.
    Zero,
    /// `overwrite`: random bytes over everything, and then zeros.
    Overwrite,
    /// `discard`: the contents dropped and looked for; every byte zero where that does not do.
    Discard,
    /// `auto`: the cheapest of them after which every byte is certainly zero.
    Auto,
}

const CLEAN_METHODS: [(&str, CleanMethod); 5] = [
    ("quick", CleanMethod::Quick),
    ("zero", CleanMethod::Zero),
    ("overwrite", CleanMethod::Overwrite),
    ("discard", CleanMethod::Discard),
    ("auto", CleanMethod::Auto),
];

impl Default for Cleaner {
    fn default() -> Self {
        Self::Command(vec![DEFAULT_CLEANER.into()])
    }
}

impl fmt::Display for CleanMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(spelling(&CLEAN_METHODS, *self))
    }
}

/// The word of the configuration.
impl FromStr for CleanMethod {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = CLEAN_METHODS.iter().find(|(known, _)| *known == word);
        let words = CLEAN_METHODS.map(|(known, _)| known).join(", ");
        found
            .map(|(_, method)| *method)
            .ok_or_else(|| format!("it is none of {words}"))
    }
}

/// One text: the value of the metrics' `cleanup_command` label.
impl fmt::Display for Cleaner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => method.fmt(f),
            Self::Command(words) => f.write_str(&words.join(" ")),
        }
    }
}

pub(super) fn read(section: &mut Section<'_>) -> Cleaner {
    let command = section.value("blockCleanerCommand", |node| command(node).map(Some));
    let method = section.value("cleanMethod", |node| {
        let method = word(node, &CLEAN_METHODS)?;
        match command {
            Some(_) => Err(Problem::SaidTwice("blockCleanerCommand")),
            None => Ok(Some(method)),
        }
    });
    method
        .map(Cleaner::Method)
        .or(command.map(Cleaner::Command))
        .unwrap_or_default()
}

fn command(node: &Node) -> Result<Vec<String>, Problem> {
    let Node::List(items) = node else {
        return Err(Problem::Shape {
            found: node.shape(),
            wanted: "a list",
        });
    };
    let words: Vec<String> = items
        .iter()
        .map(|item| text(item).map(str::to_owned))
        .collect::<Result<_, _>>()?;
    match words.first() {
        Some(program) if !program.trim().is_empty() => Ok(words),
        _ => Err(Problem::Command),
    }
}
