//! PersistentVolumeClaims.

use serde_json::Value;

use super::{positive, storage};
use crate::{quantity::Quantity, status::Cause};

pub(super) fn spec(spec: &Value, causes: &mut Vec<Cause>) {
    storage(spec, "at least 1 access mode is required", causes);
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => causes.push(Cause::required("spec.resources[storage]", "")),
        amount => positive(amount, "spec.resources[storage]", causes),
    }
    selector(&spec["selector"], "spec.selector", causes);
}

fn selector(selector: &Value, path: &str, causes: &mut Vec<Cause>) {
    let requirements = selector["matchExpressions"].as_array();
    for (i, requirement) in requirements.into_iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let operator = &requirement["operator"];
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        match operator.as_str().unwrap_or_default() {
            "In" | "NotIn" if values == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(format!("{path}.values"), detail));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(format!("{path}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let detail = "not a valid selector operator";
                causes.push(Cause::invalid(format!("{path}.operator"), operator, detail));
            }
        }
    }
}

/// The spec of a claim stays as it is, but for the few fields that its life fills in.
pub(super) fn change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and \
                             volumeAttributesClassName for bound claims";
    let (before, after) = (&old["spec"], &new["spec"]);
    let bound = old["status"]["phase"] == "Bound";
    let mut allowed = before.clone();
    if before["volumeName"].as_str().unwrap_or_default().is_empty() {
        take(&mut allowed, after, "volumeName");
    }
    if before["storageClassName"].is_null() {
        // The default class may come later than the claim.
        take(&mut allowed, after, "storageClassName");
    }
    if bound {
        take(&mut allowed, after, "volumeAttributesClassName");
        let wanted = &after["resources"]["requests"]["storage"];
        if !wanted.is_null() {
            allowed["resources"]["requests"]["storage"] = wanted.clone();
        }
        let shrinks = amount(wanted) < amount(&before["resources"]["requests"]["storage"]);
        if shrinks && amount(wanted) <= amount(&old["status"]["capacity"]["storage"]) {
            causes.push(Cause::forbidden(
                "spec.resources.requests.storage",
                "field can not be less than status.capacity",
            ));
        }
    }
    if allowed != *after {
        causes.push(Cause::forbidden("spec", IMMUTABLE));
    }
    if before["volumeMode"] != after["volumeMode"] {
        let mode = &after["volumeMode"];
        causes.push(Cause::invalid("volumeMode", mode, "field is immutable"));
    }
    attributes_class(old, after, causes);
}

/// Once a volume has a VolumeAttributesClass, it keeps having one.
fn attributes_class(old: &Value, after: &Value, causes: &mut Vec<Cause>) {
    const FIELD: &str = "volumeAttributesClassName";
    let (before, after) = (&old["spec"][FIELD], &after[FIELD]);
    if old["status"]["currentVolumeAttributesClassName"].is_null() || before == after {
        return;
    }
    let emptied = match after.as_str() {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let detail = format!(
        "update to {emptied} is forbidden when status.currentVolumeAttributesClassName is not nil"
    );
    causes.push(Cause::forbidden(format!("spec.{FIELD}"), &detail));
}

fn take(into: &mut Value, from: &Value, field: &str) {
    if let (Some(into), false) = (into.as_object_mut(), from[field].is_null()) {
        into.insert(field.to_owned(), from[field].clone());
    } else if let Some(into) = into.as_object_mut() {
        into.remove(field);
    }
}

fn amount(value: &Value) -> Option<Quantity> {
    value.as_str()?.parse().ok()
}

/// Whether the new state asks for more space than the old one.
pub(crate) fn grows(old: &Value, new: &Value) -> bool {
    let asked = |claim: &Value| amount(&claim["spec"]["resources"]["requests"]["storage"]);
    asked(new) > asked(old)
}
