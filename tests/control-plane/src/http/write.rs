//! `create`, `update` and `patch`.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Value, json};

use super::{Call, Server, answer, read, target::Target};
use crate::{
    admission, event_view, meta,
    patch::Patch,
    resource::{self, Resource},
    status::{Cause, Status},
    store::Part,
    validation, view,
};

/// What a PUT makes if it is not there.
static CREATE_ON_UPDATE: [&Resource; 2] = [&resource::EVENTS, &resource::LEASES];

pub(super) fn create(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let r = view::stored(target.resource);
    if r.namespaced && target.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    let object = from_client(target, call.object()?)?;
    let created = create_object(server, target, object)?;
    answer::json(201, &read::view(target, call).object(&created))
}

fn create_object(
    server: &Server,
    target: &Target,
    mut object: Value,
) -> Result<Arc<Value>, Status> {
    let r = view::stored(target.resource);
    if target.resource == &resource::EVENTS_V1 {
        validation::strict_event(&object)?;
    }
    admission::on_create(&server.store, r, &mut object);
    server.store.create(r, &target.namespace, object)
}

pub(super) fn update(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let object = from_client(target, call.object()?)?;
    let creates = CREATE_ON_UPDATE.contains(&view::stored(target.resource));
    let new = creates.then(|| object.clone());
    let replace = |old: &Value| {
        // A leader must not be replaced by a client that has not read the Lease.
        if target.resource == &resource::LEASES && meta::resource_version(&object) == 0 {
            let detail = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), detail);
            return Err(Status::invalid(target.resource, meta::name(old), &[cause]));
        }
        Ok(object)
    };
    let (code, object) = match modify(server, target, replace) {
        Err(status) if status.is_not_found() && target.subresource.is_empty() => {
            let object = new.ok_or(status)?;
            (201, create_object(server, target, object)?)
        }
        updated => (200, updated?),
    };
    answer::json(code, &read::view(target, call).object(&object))
}

pub(super) fn patch(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let r = view::stored(target.resource);
    let patch = match call.content_type() {
        "application/json-patch+json" => Patch::json(call.json()?)?,
        "application/merge-patch+json" => Patch::Merge(body_object(target, call)?),
        "application/strategic-merge-patch+json" => Patch::Strategic(body_object(target, call)?),
        _ => return Err(Status::unsupported_patch()),
    };
    let change = |old: &Value| {
        let new = patch.apply(r, old)?;
        let uid = meta::uid(&new);
        let is_current = meta::resource_version(&new) == meta::resource_version(old);
        if !uid.is_empty() && uid != meta::uid(old) && is_current {
            let cause = Cause::immutable("metadata.uid", &new["metadata"]["uid"]);
            return Err(Status::invalid(r, meta::name(old), &[cause]));
        }
        Ok(new)
    };
    let object = modify(server, target, change)?;
    answer::json(200, &read::view(target, call).object(&object))
}

/// One write of an existing object.
fn modify(
    server: &Server,
    target: &Target,
    change: impl FnOnce(&Value) -> Result<Value, Status>,
) -> Result<Arc<Value>, Status> {
    let r = view::stored(target.resource);
    let part = match &*target.subresource {
        "status" => Part::Status,
        _ => Part::Main,
    };
    let finalize = target.subresource == "finalize";
    let (ns, name) = (&target.namespace, &target.name);
    server.store.modify(r, ns, name, part, |old| {
        let mut new = change(old)?;
        if r == &resource::NAMESPACES && !finalize {
            // Only the finalize subresource removes the finalizer of a namespace.
            new["spec"] = old["spec"].clone();
        }
        Ok(new)
    })
}

/// An object as a client of this group writes it, in the shape that is stored.
fn from_client(target: &Target, object: Value) -> Result<Value, Status> {
    if target.resource != &resource::EVENTS_V1 {
        return Ok(object);
    }
    let given = &object["apiVersion"];
    if !given.is_null() && *given != target.resource.api_version() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({})",
            target.resource.api_version()
        )));
    }
    Ok(event_view::to_core(&object))
}

fn body_object(target: &Target, call: &Call) -> Result<Value, Status> {
    let patch = call.json()?;
    if !patch.is_object() {
        return Err(Status::bad_request("a merge patch must be a JSON object"));
    }
    from_client(target, patch)
}
