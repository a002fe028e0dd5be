//! What the API server does to an object between the request and the store: system fields,
//! the split between main part and status, defaults, validation.

use serde_json::{Value, json};
use uuid::Builder;

use crate::{
    defaults, meta,
    resource::{self, Resource},
    status::{Cause, Status},
    store::Part,
    validation,
};

const STALE: &str = "the object has been modified; please apply your changes to the latest \
                     version and try again";

/// Fields of `metadata` that only the server writes.
const SYSTEM_FIELDS: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

pub(crate) fn prepare_for_create(
    r: &'static Resource,
    ns: &str,
    object: &mut Value,
) -> Result<(), Status> {
    check_shape(r, object)?;
    let metadata = meta::metadata_mut(object);
    let given_ns = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if r.namespaced && !given_ns.is_empty() && given_ns != ns {
        return Err(Status::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request: \
             {given_ns:?} is not {ns:?}"
        )));
    }
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|v| !v.is_empty()) {
        // So says the real one: it does not take this for the client's fault.
        return Err(Status::unexpected(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    // Where nothing counts generations, whatever the client says stays.
    for field in SYSTEM_FIELDS.into_iter().filter(|f| *f != "generation") {
        metadata.remove(field);
    }
    metadata.remove("selfLink");
    drop_empty(metadata);
    if r.namespaced {
        metadata.insert("namespace".into(), json!(ns));
    } else {
        metadata.remove("namespace");
    }
    metadata.insert(
        "uid".into(),
        json!(Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid().to_string()),
    );
    metadata.insert("creationTimestamp".into(), json!(meta::now()));
    if r.generation {
        metadata.insert("generation".into(), json!(1));
    }
    defaults::initial_status(r, object);
    defaults::apply(r, object);
    Ok(())
}

/// Sets a generated name; some defaults depend on it.
pub(crate) fn set_name(r: &'static Resource, object: &mut Value, name: &str) {
    meta::metadata_mut(object).insert("name".into(), json!(name));
    defaults::apply(r, object);
}

pub(crate) fn validate_create(r: &'static Resource, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    validation::metadata(r, object, &mut causes);
    validation::create(r, object, &mut causes);
    refuse(r, object, &causes)
}

pub(crate) fn prepare_for_update(
    r: &'static Resource,
    old: &Value,
    new: &mut Value,
    part: Part,
) -> Result<(), Status> {
    check_shape(r, new)?;
    check_identity(r, old, new)?;
    let metadata = meta::metadata_mut(new);
    for field in SYSTEM_FIELDS.into_iter().chain(["namespace", "generateName"]) {
        match &old["metadata"][field] {
            Value::Null => metadata.remove(field),
            kept => metadata.insert(field.into(), kept.clone()),
        };
    }
    drop_empty(metadata);
    match part {
        Part::Status => {
            let (metadata, status) = (new["metadata"].take(), new["status"].take());
            *new = old.clone();
            new["metadata"] = metadata;
            if !status.is_null() {
                new["status"] = status;
            }
        }
        Part::Main if r.status => {
            match &old["status"] {
                Value::Null => meta::object_mut(new).remove("status"),
                kept => meta::object_mut(new).insert("status".into(), kept.clone()),
            };
        }
        Part::Main => {}
    }
    defaults::apply(r, new);
    stamp_phase_change(r, old, new);
    if r.generation && spec_changed(r, &old["spec"], &new["spec"]) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::metadata_mut(new).insert("generation".into(), json!(generation + 1));
    }
    Ok(())
}

pub(crate) fn validate_update(
    r: &'static Resource,
    old: &Value,
    new: &Value,
) -> Result<(), Status> {
    let mut causes = Vec::new();
    validation::metadata(r, new, &mut causes);
    if meta::is_terminating(old) {
        let known: Vec<_> = meta::finalizers(old).collect();
        let added: Vec<_> = meta::finalizers(new).filter(|f| !known.contains(f)).collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    validation::update(r, old, new, &mut causes);
    refuse(r, new, &causes)
}

/// Putting a pod on a node is no change of what was asked for.
fn spec_changed(r: &'static Resource, old: &Value, new: &Value) -> bool {
    let mut old = old.clone();
    if r == &resource::PODS && old["nodeName"].is_null() && !new["nodeName"].is_null() {
        old["nodeName"] = new["nodeName"].clone();
    }
    old != *new
}

fn refuse(r: &'static Resource, object: &Value, causes: &[Cause]) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(r, meta::name(object), causes)) }
}

/// The body is an object of this kind, or says nothing about its kind.
fn check_shape(r: &'static Resource, object: &mut Value) -> Result<(), Status> {
    if !object.is_object() {
        return Err(Status::bad_request("the body of the request is not a JSON object"));
    }
    for (field, wanted) in [("apiVersion", r.api_version()), ("kind", r.kind.to_owned())] {
        match &object[field] {
            Value::Null => object[field] = json!(wanted),
            Value::String(given) if *given == wanted => {}
            given => {
                return Err(Status::bad_request(format!(
                    "{field} in the data ({given}) does not match the expected {field} ({wanted})"
                )));
            }
        }
    }
    validation::types(r, object)
}

fn check_identity(r: &'static Resource, old: &Value, new: &Value) -> Result<(), Status> {
    let name = meta::name(old);
    let given = meta::name(new);
    if given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let ns = meta::namespace(new);
    if r.namespaced && !ns.is_empty() && ns != meta::namespace(old) {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({ns}) does not match the namespace on the URL ({})",
            meta::namespace(old)
        )));
    }
    let uid = meta::uid(new);
    if !uid.is_empty() && uid != meta::uid(old) {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta::uid(old)
        );
        return Err(Status::conflict(r, name, &why));
    }
    let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && Some(version) != old["metadata"]["resourceVersion"].as_str() {
        return Err(Status::conflict(r, name, STALE));
    }
    Ok(())
}

/// Go omits empty maps and lists when it writes metadata; objects must not differ by that alone.
fn drop_empty(metadata: &mut serde_json::Map<String, Value>) {
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    });
}

/// A volume's status says when its phase last changed.
fn stamp_phase_change(r: &'static Resource, old: &Value, new: &mut Value) {
    if r == &resource::PERSISTENT_VOLUMES && old["status"]["phase"] != new["status"]["phase"] {
        new["status"]["lastPhaseTransitionTime"] = json!(meta::now());
    }
}
