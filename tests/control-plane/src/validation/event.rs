//! Events: who may say what about whom. The older API asks for little, events.k8s.io for all.

use serde_json::Value;

use crate::{meta, status::Cause};

/// What both APIs insist on. The newer kind of events has an `eventTime`.
pub(super) fn event(event: &Value, causes: &mut Vec<Cause>) {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let namespace = meta::namespace(event);
    let old = text("eventTime").is_empty();
    let fits = match (about, old) {
        ("", true) => namespace == "default",
        ("", false) => matches!(namespace, "default" | "kube-system"),
        (about, true) => about == namespace,
        (_, false) => true,
    };
    if !fits {
        let (field, detail) = ("involvedObject.namespace", "does not match event.namespace");
        causes.push(Cause::invalid(field, &about.into(), detail));
    }
    if old {
        return;
    }
    for (field, limit) in [
        ("reportingComponent", usize::MAX),
        ("reportingInstance", 128),
        ("action", 128),
        ("reason", 128),
        ("message", 1024),
    ] {
        let length = text(field).len();
        if length == 0 && field != "message" {
            causes.push(Cause::required(field, ""));
        }
        if length > limit {
            let detail = format!("can have at most {limit} characters");
            causes.push(Cause::invalid(field, &"".into(), &detail));
        }
    }
}

/// What events.k8s.io insists on beyond that for a new event, which comes in the shape that is stored.
pub(crate) fn strict(event: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let series = &event["series"];
    if series.is_object() {
        if series["count"].as_i64().unwrap_or_default() < 2 {
            let detail = "should be at least 2";
            causes.push(Cause::invalid("series.count", &"".into(), detail));
        }
        if text(&series["lastObservedTime"]).is_empty() {
            causes.push(Cause::required("series.lastObservedTime", ""));
        }
    }
    if text(&event["eventTime"]).is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(&event["type"]);
    if !matches!(kind.as_str(), "Normal" | "Warning") {
        let detail = format!("has invalid value: {kind}");
        causes.push(Cause::invalid("type", &"".into(), &detail));
    }
    let set = |value: &Value| !matches!(value, Value::Null) && *value != 0 && *value != "";
    for (field, value) in [
        ("firstTimestamp", &event["firstTimestamp"]),
        ("lastTimestamp", &event["lastTimestamp"]),
        ("count", &event["count"]),
        ("source", &event["source"]["component"]),
    ] {
        if set(value) {
            causes.push(Cause::invalid(field, &"".into(), "needs to be unset"));
        }
    }
    causes
}
