//! Reads single values from their texts and writes them, for `#[serde(with = "...")]`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// A boolean in the words of YAML 1.1, also if it is quoted.
pub(super) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?.to_ascii_lowercase().as_str() {
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

/// [`deserialize`], for a key without a default.
pub(super) fn some<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    deserialize(from).map(Some)
}

/// [`serialize`], for a key without a default.
#[allow(clippy::ref_option, reason = "the signature that serde requires")]
pub(super) fn optional<T, S>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error>
where
    T: Display,
    S: Serializer,
{
    value.as_ref().map(ToString::to_string).serialize(to)
}
