//! ConfigMaps and Secrets: their keys, and what `immutable` holds fast.

use serde_json::Value;

use crate::status::Cause;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
    'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

pub(super) fn keys(object: &Value, causes: &mut Vec<Cause>) {
    for field in ["data", "binaryData"] {
        for key in object[field]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
        {
            let (path, value) = (format!("{field}[{key}]"), Value::from(key.as_str()));
            if let Some(fault) = key_fault(key) {
                causes.push(Cause::invalid(&*path, &value, fault));
            }
            if field == "data" && !object["binaryData"][key].is_null() {
                let detail = "duplicate of key present in binaryData";
                causes.push(Cause::invalid(path, &value, detail));
            }
        }
    }
}

fn key_fault(key: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match key {
        _ if key.len() > 253 => Some("must be no more than 253 characters"),
        _ if key.is_empty() || !key.chars().all(plain) => Some(KEY),
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if key.starts_with("..") => Some("must not start with '..'"),
        _ => None,
    }
}

/// Once immutable, always immutable.
pub(super) fn change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        causes.push(Cause::forbidden("immutable", DETAIL));
    }
    for field in ["data", "binaryData"] {
        if old[field] != new[field] {
            causes.push(Cause::forbidden(field, DETAIL));
        }
    }
}
