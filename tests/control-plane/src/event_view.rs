//! Events have two shapes, core/v1 and events.k8s.io/v1, for one stored object (the core one).

use serde_json::{Map, Value};

/// Core name, events.k8s.io name.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A stored event as events.k8s.io shows it.
pub(crate) fn from_core(event: &Value) -> Value {
    renamed(event, "events.k8s.io/v1", |field| {
        RENAMED.iter().find(|(core, _)| *core == field).map(|(_, new)| *new)
    })
}

/// An event (or a patch of one) in events.k8s.io's shape, as it is stored.
pub(crate) fn to_core(event: &Value) -> Value {
    renamed(event, "v1", |field| {
        RENAMED.iter().find(|(_, new)| *new == field).map(|(core, _)| *core)
    })
}

fn renamed(event: &Value, api_version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Some(fields) = event.as_object() else {
        return event.clone();
    };
    let mut result: Map<_, _> = fields
        .iter()
        .map(|(key, value)| (name(key).map_or_else(|| key.clone(), str::to_owned), value.clone()))
        .collect();
    if let Some(version) = result.get_mut("apiVersion") {
        *version = api_version.into();
    }
    Value::Object(result)
}
