//! Reads single values from their texts, for `#[serde(deserialize_with = "...")]`.

use std::str::FromStr;

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

/// A whole number from 1 up.
pub(super) fn count<'de, T: FromStr, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let number = String::deserialize(from)?.trim().parse();
    number.map_err(|_| D::Error::custom("not a number"))
}
