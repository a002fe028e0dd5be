//! Reads single values from their texts and writes them, for `#[serde(with = "...")]`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// By `FromStr`. The error has to name what to write instead.
pub(super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(from)?;
    text.parse().map_err(D::Error::custom)
}

/// By `Display`.
pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// A boolean as YAML 1.1 has them, quoted or not, in any case.
pub(super) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" => Ok(false),
        _ => Err(D::Error::custom("not a boolean; write true or false")),
    }
}

/// A whole number from 1 up.
pub(super) fn count<'de, T: FromStr, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let number = String::deserialize(from)?.trim().parse();
    number.map_err(|_| D::Error::custom("not a whole number from 1 to 65535; write one, such as 4"))
}
