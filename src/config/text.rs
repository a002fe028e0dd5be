//! Reads single values from their texts, for `#[serde(deserialize_with = "...")]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A boolean in the words of YAML 1.1, also if it is quoted.
pub(super) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" => Ok(false),
        _ => Err(D::Error::custom("not a switch")),
    }
}

/// The same, for a key without a default.
pub(super) fn optional_flag<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    flag(from).map(Some)
}
