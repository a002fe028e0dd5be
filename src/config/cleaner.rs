//! How the block devices of a class are cleaned: `cleanMethod` or `blockCleanerCommand`.

use std::fmt;

use clap::ValueEnum;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The program that cleans devices where a class configures nothing.
pub const DEFAULT_CLEANER: &str = "/scripts/quick_reset.sh";

/// The cleaner of a class's block devices. Both keys together are refused: one would be ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cleaner {
    /// `cleanMethod`: one of our own cleaners.
    #[serde(rename = "cleanMethod")]
    Method(CleanMethod),
    /// `blockCleanerCommand` (default `[/scripts/quick_reset.sh]`): program and arguments that clean
    /// a released device, which is named by the variable `LOCAL_PV_BLKDEVICE`. Never empty.
    #[serde(rename = "blockCleanerCommand", deserialize_with = "command")]
    Command(Vec<String>),
}

/// Our own cleaners of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CleanMethod {
    /// Discard if the device supports it, and overwrite all signatures.
    Quick,
    /// Write zeros to every byte.
    Zero,
    /// Write random bytes to every byte, then zeros.
    Overwrite,
    /// Discard and verify; if the device does not discard to zeros, write zeros.
    Discard,
    /// The cheapest method that guarantees zeros on every byte.
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

/// Reads a command, which names a program.
fn command<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    if words.first().is_none_or(|it| it.trim().is_empty()) {
        return Err(D::Error::custom("no program"));
    }
    Ok(words)
}
