//! PersistentVolumeClaims.

use serde_json::Value;

use super::{positive, storage};
use crate::status::Cause;

pub(super) fn spec(spec: &Value, causes: &mut Vec<Cause>) {
    storage(spec, "at least 1 access mode is required", causes);
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => causes.push(Cause::required("spec.resources[storage]", "")),
        amount => positive(amount, "spec.resources[storage]", causes),
    }
}

/// The spec of a claim stays as it is, but for the few fields that its life fills in. None grows here.
pub(super) fn change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and \
                             volumeAttributesClassName for bound claims";
    let (before, after) = (&old["spec"], &new["spec"]);
    let mut allowed = before.clone();
    if before["volumeName"].as_str().unwrap_or_default().is_empty() {
        take(&mut allowed, after, "volumeName");
    }
    if before["storageClassName"].is_null() {
        // The default class may come later than the claim.
        take(&mut allowed, after, "storageClassName");
    }
    if allowed != *after {
        causes.push(Cause::forbidden("spec", IMMUTABLE));
    }
    if before["volumeMode"] != after["volumeMode"] {
        let mode = &after["volumeMode"];
        causes.push(Cause::invalid("volumeMode", mode, "field is immutable"));
    }
}

fn take(into: &mut Value, from: &Value, field: &str) {
    if let (Some(into), false) = (into.as_object_mut(), from[field].is_null()) {
        into.insert(field.to_owned(), from[field].clone());
    } else if let Some(into) = into.as_object_mut() {
        into.remove(field);
    }
}
