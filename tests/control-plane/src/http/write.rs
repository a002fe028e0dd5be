//! Which method writes what; `create`, `update` and `patch`.

use std::sync::Arc;

use hyper::{Method, Response, header::USER_AGENT};
use serde_json::{Value, json};

use super::{
    Call, Server, answer, body::Body, delete, fields::Fields, pod_actions, read, route::Target,
};
use crate::{
    admission, event_view, meta,
    patch::{Patch, apply},
    resource::{self, Resource},
    status::{Cause, Status},
    store::{Part, Write},
    validation, view,
};

/// What a PUT makes if it is not there.
static CREATE_ON_UPDATE: [&Resource; 7] = [
    &resource::CLUSTER_ROLES,
    &resource::CLUSTER_ROLE_BINDINGS,
    &resource::EVENTS,
    &resource::LEASES,
    &resource::ROLES,
    &resource::ROLE_BINDINGS,
    &resource::SERVICES,
];

pub(super) fn handle(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let collection = target.name.is_empty();
    let r = view::stored(target.resource);
    match call.method {
        Method::POST if collection => create(server, target, call),
        Method::POST if target.subresource == "binding" => pod_actions::bind(server, target, call),
        Method::POST if target.subresource == "eviction" => {
            pod_actions::evict(server, target, call)
        }
        _ if matches!(&*target.subresource, "binding" | "eviction" | "log") => {
            Err(Status::method_not_allowed())
        }
        Method::PUT if !collection => update(server, target, call),
        Method::PATCH if !collection => patch(server, target, call),
        // All namespaces at once: nobody means that.
        Method::DELETE if collection && r != &resource::NAMESPACES => {
            delete::collection(server, target, call)
        }
        Method::DELETE if !collection && target.subresource.is_empty() => {
            delete::object(server, target, call)
        }
        _ => Err(Status::method_not_allowed()),
    }
}

fn create(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let r = view::stored(target.resource);
    if r.namespaced && target.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    let mut fields = Fields::of(call)?;
    let object = body_of(target, call, &mut fields)?;
    let created = create_object(server, target, object, call.query.dry_run()?)?;
    let mut response = answer::json(201, &read::view(target, call).object(&created))?;
    fields.warn(&mut response);
    Ok(response)
}

/// The whole object that a client sends, without the fields that there are not, as it is stored.
fn body_of(target: &Target, call: &Call, fields: &mut Fields) -> Result<Value, Status> {
    let object = call.object()?;
    fields.look_for_duplicates(&call.body);
    let typed = &object["kind"];
    if !typed.is_null() && *typed != target.resource.kind {
        // Refused for that, not for its fields.
        return from_client(target, object);
    }
    let object = fields.known_of_body(target.resource, object)?;
    from_client(target, object)
}

fn create_object(
    server: &Server,
    target: &Target,
    mut object: Value,
    dry_run: bool,
) -> Result<Arc<Value>, Status> {
    let r = view::stored(target.resource);
    if target.resource == &resource::EVENTS_V1 {
        validation::strict_event(&object)?;
    }
    admission::on_create(&server.store, r, &mut object);
    server
        .store
        .create_with(r, &target.namespace, object, dry_run)
}

fn update(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let mut fields = Fields::of(call)?;
    let object = body_of(target, call, &mut fields)?;
    let manager = manager(call);
    let creates = CREATE_ON_UPDATE.contains(&view::stored(target.resource));
    let new = creates.then(|| object.clone());
    let replace = |old: &Value| {
        // Whoever leads must not be replaced by somebody who has not looked.
        if target.resource == &resource::LEASES && meta::resource_version(&object) == 0 {
            let detail = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), detail);
            return Err(Status::invalid(target.resource, meta::name(old), &[cause]));
        }
        Ok(object)
    };
    let (code, object) = match modify(server, target, call, Some(&manager), replace) {
        Err(status) if status.is_not_found() && target.subresource.is_empty() => {
            let object = new.ok_or(status)?;
            let dry_run = call.query.dry_run()?;
            (201, create_object(server, target, object, dry_run)?)
        }
        updated => (200, updated?),
    };
    let mut response = answer::json(code, &read::view(target, call).object(&object))?;
    fields.warn(&mut response);
    Ok(response)
}

fn patch(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let r = view::stored(target.resource);
    let mut fields = Fields::of(call)?;
    let (code, object) = match call.content_type() {
        "application/apply-patch+yaml" => server_side_apply(server, target, call, &mut fields)?,
        kind => {
            if !call.query.get("force").is_empty() {
                let why = "force: Forbidden: may not be specified for non-apply patch";
                return Err(Status::invalid_options("PatchOptions", why));
            }
            let patch = match kind {
                "application/json-patch+json" => Patch::json(call.json()?)?,
                "application/merge-patch+json" => Patch::Merge(body_object(target, call)?),
                "application/strategic-merge-patch+json" => {
                    Patch::Strategic(body_object(target, call)?)
                }
                _ => return Err(Status::unsupported_patch()),
            };
            let manager = manager(call);
            let change = |old: &Value| {
                let new = fields.known_of_patched(r, patch.apply(r, old)?)?;
                let uid = meta::uid(&new);
                let is_current = meta::resource_version(&new) == meta::resource_version(old);
                if !uid.is_empty() && uid != meta::uid(old) && is_current {
                    let cause = Cause::immutable("metadata.uid", &new["metadata"]["uid"]);
                    return Err(Status::invalid(r, meta::name(old), &[cause]));
                }
                Ok(new)
            };
            (200, modify(server, target, call, Some(&manager), change)?)
        }
    };
    let mut response = answer::json(code, &read::view(target, call).object(&object))?;
    fields.warn(&mut response);
    Ok(response)
}

/// Creates or merges.
fn server_side_apply(
    server: &Server,
    target: &Target,
    call: &Call,
    fields: &mut Fields,
) -> Result<(u16, Arc<Value>), Status> {
    let r = view::stored(target.resource);
    let name = call.query.get("fieldManager");
    if name.is_empty() {
        let why = "fieldManager: Required value: is required for apply patch";
        return Err(Status::invalid_options("PatchOptions", why));
    }
    let manager = apply::Manager {
        name: name.to_owned(),
        subresource: target.subresource.clone(),
        force: call.query.flag("force"),
    };
    let config = call.object()?;
    if config["kind"].is_null() || config["apiVersion"].is_null() {
        return Err(Status::bad_request(
            "Object 'Kind' or 'apiVersion' is missing",
        ));
    }
    let mut config = from_client(target, fields.known_of_apply(target.resource, config)?)?;
    let given = meta::name(&config);
    if !given.is_empty() && given != target.name {
        return Err(Status::bad_request(format!(
            "metadata.name {given:?} does not match {:?} of the request",
            target.name
        )));
    }
    if config["metadata"]["managedFields"]
        .as_array()
        .is_some_and(|m| !m.is_empty())
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    meta::metadata_mut(&mut config).insert("name".into(), json!(target.name));
    let change = |old: &Value| apply::apply(r, old, &config, &manager);
    match modify(server, target, call, None, change) {
        Err(status) if status.is_not_found() && target.subresource.is_empty() => {
            let object = apply::create(r, &config, &manager);
            Ok((
                201,
                create_object(server, target, object, call.query.dry_run()?)?,
            ))
        }
        other => Ok((200, other?)),
    }
}

/// One write of an existing object, with the admission checks. `manager` owns what changed;
/// `None` if `change` has settled that itself.
fn modify(
    server: &Server,
    target: &Target,
    call: &Call,
    manager: Option<&str>,
    change: impl FnOnce(&Value) -> Result<Value, Status>,
) -> Result<Arc<Value>, Status> {
    let r = view::stored(target.resource);
    let part = if target.subresource == "status" {
        Part::Status
    } else {
        Part::Main
    };
    let finalize = target.subresource == "finalize";
    let expandable = if r == &resource::PERSISTENT_VOLUME_CLAIMS && part == Part::Main {
        admission::expandable_classes(&server.store)
    } else {
        Vec::new()
    };
    let write = Write {
        part,
        dry_run: call.query.dry_run()?,
        manager,
    };
    let bound_by_hand = r == &resource::PODS && part == Part::Main;
    server
        .store
        .modify_as(r, &target.namespace, &target.name, &write, |old| {
            let mut new = change(old)?;
            if r == &resource::NAMESPACES && !finalize {
                // Only the finalize subresource lets go of a namespace.
                new["spec"] = old["spec"].clone();
            }
            admission::on_update(&expandable, r, old, &new)?;
            if bound_by_hand && old["spec"]["nodeName"] != new["spec"]["nodeName"] {
                return Err(validation::pod_is_fixed(old));
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
    let patch: Value = call.json()?;
    if !patch.is_object() {
        return Err(Status::bad_request("a merge patch must be a JSON object"));
    }
    from_client(target, patch)
}

/// Who is writing: as it says itself, else the program's name, as the API server derives it.
fn manager(call: &Call) -> String {
    match call.query.get("fieldManager") {
        "" => call
            .header(USER_AGENT)
            .split('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        name => name.to_owned(),
    }
}
