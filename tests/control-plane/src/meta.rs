//! Reading and stamping `metadata` of untyped objects.

use jiff::{RoundMode, SignedDuration, TimestampRound, Unit};
use serde_json::{Map, Value, json};

use crate::clock;

/// `metadata.name`, or "".
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.namespace`, or "" for a cluster-scoped object.
pub fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// `metadata.uid`, or "".
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// `metadata.resourceVersion` as the number it is here; 0 if there is none.
pub fn resource_version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or_default()
}

/// Whether the object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Now, as `metav1.Time` is written: the fraction of the second is cut off.
pub fn now() -> String {
    in_seconds(0)
}

/// `seconds` from now.
pub(crate) fn in_seconds(seconds: i64) -> String {
    let now = clock::now();
    let then = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let whole = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Trunc);
    then.round(whole).unwrap_or(then).to_string()
}

/// The object's `metadata`, made if missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The object under `key`, made if it is missing or no object.
pub(crate) fn child_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    object_mut(object_mut(value).entry(key).or_insert_with(|| json!({})))
}

/// `value` as an object, replaced by an empty one if it is something else.
pub(crate) fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}
