//! How the block devices of a class are cleaned: `cleanMethod` or `blockCleanerCommand`.

use std::fmt;

use clap::ValueEnum;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The program that cleans devices where a class configures nothing.
pub const DEFAULT_CLEANER: &str = "/scripts/quick_reset.sh";

/// The cleaner of a class's block devices. Both keys together are refused: one would be ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Cleaner {
    /// `cleanMethod`: one of our own cleaners.
    #[serde(rename = "cleanMethod")]
    Method(CleanMethod),
    /// `blockCleanerCommand` (default `[/scripts/quick_reset.sh]`): program and arguments that clean
    /// a released device, which is named by the variable `LOCAL_PV_BLKDEVICE`. Never empty.
    #[serde(rename = "blockCleanerCommand")]
    Command(Vec<String>),
}

/// Our own cleaners of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CleanMethod {
    /// `quick`: discard where the device supports it, and overwrite all signatures.
    Quick,
    /// `zero`: write zeros to every byte.
    Zero,
    /// `overwrite`: write random bytes to every byte, and then zeros.
    Overwrite,
    /// `discard`: discard and verify; write zeros where that does not suffice.
    Discard,
    /// `auto`: the cheapest of them that guarantees zeros.
    Auto,
}

impl Default for Cleaner {
    fn default() -> Self {
        Self::Command(vec![DEFAULT_CLEANER.into()])
    }
}

/// The spelling of the configuration.
impl fmt::Display for CleanMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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

/// Reads the two keys of a class. An error names the key, since its path has only the class.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cleaner, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Keys {
        clean_method: Option<CleanMethod>,
        block_cleaner_command: Option<Vec<String>>,
    }
    let in_keys = |error| D::Error::custom(format!("cleanMethod or blockCleanerCommand: {error}"));
    let Keys {
        clean_method,
        block_cleaner_command,
    } = Keys::deserialize(from).map_err(in_keys)?;
    match (clean_method, block_cleaner_command) {
        (None, None) => Ok(Cleaner::default()),
        (Some(_), Some(_)) => Err(D::Error::custom(
            "cleanMethod and blockCleanerCommand are both given; keep one of them",
        )),
        (Some(method), None) => Ok(Cleaner::Method(method)),
        (None, Some(words)) => match words.first() {
            Some(program) if !program.trim().is_empty() => Ok(Cleaner::Command(words)),
            _ => Err(D::Error::custom(format!(
                "blockCleanerCommand {words:?}: names no program; list the program and its \
                 arguments, or leave the key out for the default"
            ))),
        },
    }
}
