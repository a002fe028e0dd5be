//! The effective values of a configuration, as texts.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// The keys of a [`Config`](super::Config) without its classes, or of a [`Class`](super::Class), with the effective values as texts;
/// `-` where there is none.
pub fn rows(keys: &impl Serialize) -> BTreeMap<String, String> {
    let text = |value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    match serde_json::to_value(keys) {
        Ok(Value::Object(rows)) => rows.into_iter().map(|(key, it)| (key, text(it))).collect(),
        _ => BTreeMap::new(),
    }
}
