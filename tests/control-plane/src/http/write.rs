//! `create`, `update`, `patch`, `delete` and `deletecollection`.

use std::sync::Arc;

use hyper::{Method, Response, header::USER_AGENT};
use serde_json::{Value, json};

use super::{Call, Server, answer, body::Body, read, route::Target};
use crate::{
    admission, event_view, meta,
    patch::{Patch, apply},
    resource::{self, Resource},
    status::Status,
    store::{DeleteOptions, Part, Write},
    view,
};

/// What answers a DELETE with the object rather than with a Status.
static ANSWER_WITH_OBJECT: [&Resource; 6] = [
    &resource::PERSISTENT_VOLUMES,
    &resource::PERSISTENT_VOLUME_CLAIMS,
    &resource::PODS,
    &resource::SERVICES,
    &resource::SERVICE_ACCOUNTS,
    &resource::STORAGE_CLASSES,
];

/// Namespaces that nobody can delete.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn handle(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let collection = target.name.is_empty();
    match call.method {
        Method::POST if collection => create(server, target, call),
        _ if target.subresource == "log" => Err(Status::method_not_allowed()),
        Method::PUT if !collection => update(server, target, call),
        Method::PATCH if !collection => patch(server, target, call),
        Method::DELETE if collection => delete_collection(server, target, call),
        Method::DELETE if target.subresource.is_empty() => delete(server, target, call),
        _ => Err(Status::method_not_allowed()),
    }
}

fn create(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let r = view::stored(target.resource);
    if r.namespaced && target.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    let object = from_client(target, call.object()?)?;
    let created = create_object(server, target, object, call.query.dry_run()?)?;
    answer::json(201, &read::view(target, call).object(&created))
}

fn create_object(
    server: &Server,
    target: &Target,
    mut object: Value,
    dry_run: bool,
) -> Result<Arc<Value>, Status> {
    let r = view::stored(target.resource);
    admission::on_create(&server.store, r, &mut object);
    server
        .store
        .create_with(r, &target.namespace, object, dry_run)
}

fn update(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let object = from_client(target, call.object()?)?;
    let manager = manager(call);
    let updated = modify(server, target, call, Some(&manager), |_| Ok(object))?;
    answer::json(200, &read::view(target, call).object(&updated))
}

fn patch(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let r = view::stored(target.resource);
    let (code, object) = match call.content_type() {
        "application/apply-patch+yaml" => server_side_apply(server, target, call)?,
        kind => {
            let patch = match kind {
                "application/json-patch+json" => Patch::Json(call.json()?),
                "application/merge-patch+json" => Patch::Merge(body_object(target, call)?),
                "application/strategic-merge-patch+json" => {
                    Patch::Strategic(body_object(target, call)?)
                }
                other => return Err(Status::unsupported_media_type(other)),
            };
            let manager = manager(call);
            let change = |old: &Value| patch.apply(r, old);
            (200, modify(server, target, call, Some(&manager), change)?)
        }
    };
    answer::json(code, &read::view(target, call).object(&object))
}

/// Creates or merges.
fn server_side_apply(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<(u16, Arc<Value>), Status> {
    let r = view::stored(target.resource);
    let name = call.query.get("fieldManager");
    if name.is_empty() {
        return Err(Status::bad_request(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required \
             for apply patch",
        ));
    }
    let manager = apply::Manager {
        name: name.to_owned(),
        force: call.query.flag("force"),
    };
    let mut config = from_client(target, call.object()?)?;
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
    server
        .store
        .modify_as(r, &target.namespace, &target.name, &write, |old| {
            let mut new = change(old)?;
            if r == &resource::NAMESPACES && !finalize {
                // Only the finalize subresource lets go of a namespace.
                new["spec"] = old["spec"].clone();
            }
            admission::on_update(&expandable, r, old, &new)?;
            Ok(new)
        })
}

fn delete(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    let r = view::stored(target.resource);
    if r == &resource::NAMESPACES && IMMORTAL.contains(&&*target.name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(r, &target.name, why));
    }
    let options = delete_options(call)?;
    let object = server
        .store
        .delete(r, &target.namespace, &target.name, &options)?;
    let gone = server
        .store
        .get(r, &target.namespace, &target.name)
        .map_or(true, |now| meta::uid(&now) != meta::uid(&object));
    let mut response = if gone && !ANSWER_WITH_OBJECT.contains(&r) {
        answer::json(200, &deleted(r, &object))?
    } else {
        answer::json(200, &read::view(target, call).object(&object))?
    };
    if r == &resource::JOBS && options.propagation_policy.is_none() {
        answer::warn(
            &mut response,
            "child pods are preserved by default when jobs are deleted; set \
             propagationPolicy=Background to remove them or set propagationPolicy=Orphan to \
             suppress this warning",
        );
    }
    Ok(response)
}

fn delete_collection(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let r = view::stored(target.resource);
    let (selectors, options) = (read::selectors(target, call)?, delete_options(call)?);
    let mut deleted = Vec::new();
    for stored in server.store.shelf(r, target.list_namespace()).items {
        if !selectors.matches(&stored.value()) {
            continue;
        }
        match server
            .store
            .delete(r, &stored.namespace, &stored.name, &options)
        {
            Ok(object) => deleted.push(object),
            Err(status) if status.is_not_found() => {}
            Err(status) => return Err(status),
        }
    }
    let metadata = json!({"resourceVersion": server.store.revision().to_string()});
    let bytes = read::view(target, call)
        .list(deleted.into_iter(), &metadata)
        .map_err(|error| Status::new(500, "InternalError", error.to_string()))?;
    Ok(answer::bytes_of_json(200, bytes))
}

fn delete_options(call: &Call) -> Result<DeleteOptions, Status> {
    let body: Value = if call.body.is_empty() {
        Value::Null
    } else {
        call.object()?
    };
    let text = |value: &Value| value.as_str().filter(|v| !v.is_empty()).map(str::to_owned);
    let query = |key: &str| {
        Some(call.query.get(key))
            .filter(|v| !v.is_empty())
            .map(str::to_owned)
    };
    let orphan = match body["orphanDependents"].as_bool() {
        Some(true) => Some("Orphan".to_owned()),
        Some(false) => Some("Background".to_owned()),
        None => None,
    };
    let dry_run = body["dryRun"]
        .as_array()
        .is_some_and(|d| d.iter().any(|v| v == "All"));
    Ok(DeleteOptions {
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        propagation_policy: text(&body["propagationPolicy"])
            .or_else(|| query("propagationPolicy"))
            .or(orphan),
        grace_period_seconds: match body["gracePeriodSeconds"].as_i64() {
            Some(seconds) => Some(seconds),
            None => call.query.number("gracePeriodSeconds")?,
        },
        dry_run: dry_run || call.query.dry_run()?,
    })
}

fn deleted(r: &Resource, object: &Value) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": meta::name(object),
            "group": r.group,
            "kind": r.plural,
            "uid": meta::uid(object),
        },
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
