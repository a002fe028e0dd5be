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
        RENAMED
            .iter()
            .find(|(core, _)| *core == field)
            .map(|(_, new)| *new)
    })
}

/// An event (or a patch of one) in events.k8s.io's shape, as it is stored.
pub(crate) fn to_core(event: &Value) -> Value {
    renamed(event, "v1", |field| {
        RENAMED
            .iter()
            .find(|(_, new)| *new == field)
            .map(|(core, _)| *core)
    })
}

fn renamed(event: &Value, api_version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Some(fields) = event.as_object() else {
        return event.clone();
    };
    let mut result: Map<_, _> = fields
        .iter()
        .map(|(key, value)| {
            (
                name(key).map_or_else(|| key.clone(), str::to_owned),
                value.clone(),
            )
        })
        .collect();
    if let Some(version) = result.get_mut("apiVersion") {
        *version = api_version.into();
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "message": "m", "reason": "R",
            "reportingComponent": "c", "count": 3, "source": {"component": "s"},
        });
        let new = from_core(&core);
        assert_eq!(new["apiVersion"], "events.k8s.io/v1");
        assert_eq!(new["regarding"]["kind"], "Pod");
        assert_eq!(new["note"], "m");
        assert_eq!(new["reportingController"], "c");
        assert_eq!(to_core(&new), core);
    }
}
