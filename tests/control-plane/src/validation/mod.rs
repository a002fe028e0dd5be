//! What the API server refuses, as far as a storage controller and its users can get it wrong.
//! Every fault of an object is reported at once, in the real one's words.

mod claim;
mod event;
mod metadata;
mod volume;
mod workload;

use serde_json::Value;

pub(crate) use metadata::{metadata, qualified_name};

use crate::{
    quantity::Quantity,
    resource::{self, Resource},
    status::{Cause, Status},
};

/// What would not even decode: 400 rather than 422.
pub(crate) fn types(r: &'static Resource, object: &Value) -> Result<(), Status> {
    let refuse = |why: String| {
        Err(Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {why}",
            kind = r.kind,
            version = r.version,
        )))
    };
    if let Some(field) = metadata::mistyped(object) {
        return refuse(format!("metadata.{field} has the wrong JSON type"));
    }
    let spec = &object["spec"];
    for (field, value) in
        [("spec", spec), ("status", &object["status"]), ("spec.capacity", &spec["capacity"])]
    {
        if !value.is_null() && !value.is_object() {
            return refuse(format!("{field} has the wrong JSON type"));
        }
    }
    let resources = &spec["resources"];
    for map in [&spec["capacity"], &resources["requests"], &resources["limits"]] {
        for (name, amount) in map.as_object().into_iter().flatten() {
            let parsed = match amount {
                Value::String(text) => text.parse::<Quantity>(),
                Value::Number(number) => number.to_string().parse(),
                _ => return refuse(format!("{name} is not a quantity: {amount}")),
            };
            if let Err(error) = parsed {
                return refuse(format!("{name}: {amount}: {error}"));
            }
        }
    }
    Ok(())
}

/// What events.k8s.io insists on beyond what holds for all events.
pub(crate) fn strict_event(event: &Value) -> Result<(), Status> {
    let causes = event::strict(event);
    if causes.is_empty() {
        return Ok(());
    }
    let name = crate::meta::name(event);
    Err(Status::invalid(&resource::EVENTS_V1, name, &causes))
}

/// The rules for a new object.
pub(crate) fn create(r: &'static Resource, object: &Value, causes: &mut Vec<Cause>) {
    if r == &resource::PERSISTENT_VOLUMES {
        volume::spec(&object["spec"], causes);
    } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
        claim::spec(&object["spec"], causes);
    } else if r == &resource::PODS {
        workload::pod_spec(&object["spec"], "spec", causes);
    } else if r == &resource::JOBS {
        workload::job(&object["spec"], causes);
    } else if r == &resource::STORAGE_CLASSES {
        class(object, causes);
    } else if r == &resource::EVENTS {
        event::event(object, causes);
    } else if r == &resource::LEASES {
        lease(&object["spec"], causes);
    }
}

/// The rules for a new state of an object, and for the way there.
pub(crate) fn update(r: &'static Resource, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if r == &resource::PERSISTENT_VOLUMES {
        volume::spec(&new["spec"], causes);
        volume::change(&old["spec"], &new["spec"], causes);
    } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
        claim::spec(&new["spec"], causes);
        claim::change(old, new, causes);
    } else if r == &resource::JOBS {
        workload::job_change(&old["spec"], &new["spec"], causes);
    } else if r == &resource::STORAGE_CLASSES {
        class(new, causes);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if old[field] != new[field] {
                // The API server omits the value from this error.
                causes.push(Cause::immutable(field, &Value::Null));
            }
        }
    } else if r == &resource::EVENTS {
        event::event(new, causes);
    } else if r == &resource::LEASES {
        lease(&new["spec"], causes);
    }
}

fn lease(spec: &Value, causes: &mut Vec<Cause>) {
    for (field, least, detail) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if spec[field].as_i64().is_some_and(|n| n < least) {
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], detail));
        }
    }
}

fn class(object: &Value, causes: &mut Vec<Cause>) {
    let provisioner = object["provisioner"].as_str().unwrap_or_default();
    if provisioner.is_empty() {
        causes.push(Cause::required("provisioner", ""));
    } else if let Some(fault) = qualified_name(&provisioner.to_lowercase()) {
        causes.push(Cause::invalid("provisioner", &object["provisioner"], fault));
    }
    one_of(object, "volumeBindingMode", "", &["Immediate", "WaitForFirstConsumer"], causes);
    one_of(object, "reclaimPolicy", "", &["Delete", "Retain"], causes);
}

/// `holder[field]` must be one of `allowed`; a missing one is left to its default.
fn one_of(holder: &Value, field: &str, path: &str, allowed: &[&str], causes: &mut Vec<Cause>) {
    let value = &holder[field];
    if !value.is_null() && !value.as_str().is_some_and(|v| allowed.contains(&v)) {
        causes.push(Cause::not_supported(format!("{path}{field}"), value, allowed));
    }
}

/// What PVs and claims have in common.
fn storage(spec: &Value, required: &str, causes: &mut Vec<Cause>) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = spec["accessModes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if modes.is_empty() {
        causes.push(Cause::required("spec.accessModes", required));
    }
    for mode in modes {
        if !mode.as_str().is_some_and(|m| MODES.contains(&m)) {
            causes.push(Cause::not_supported("spec.accessModes", mode, &MODES));
        }
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        causes.push(Cause::forbidden(
            "spec.accessModes",
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
    one_of(spec, "volumeMode", "spec.", &["Block", "Filesystem"], causes);
    let class = &spec["storageClassName"];
    if let Some(name) = class.as_str().filter(|name| !name.is_empty())
        && let Some(fault) = metadata::subdomain(name)
    {
        causes.push(Cause::invalid("spec.storageClassName", class, fault));
    }
}

/// A quantity that must be there and positive.
fn positive(amount: &Value, field: &str, causes: &mut Vec<Cause>) {
    let parsed = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
    if parsed.is_none_or(|quantity| quantity.value() <= 0) {
        causes.push(Cause::invalid(field, amount, "must be greater than zero"));
    }
}
