//! `delete` and `deletecollection`.

use axum::response::Response;
use serde_json::{Value, json};

use super::{Call, Server, answer, read, target::Target};
use crate::{
    deletion, meta,
    resource::{self, Resource},
    status::Status,
    store::DeleteOptions,
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

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn object(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let r = view::stored(target.resource);
    if r == &resource::NAMESPACES && IMMORTAL.contains(&&*target.name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(r, &target.name, why));
    }
    let options = options(call)?;
    let object = server.store.delete(r, &target.namespace, &target.name, &options)?;
    // What stays for a while has a deletionTimestamp, and something that holds it.
    let gone = !meta::is_terminating(&object) || deletion::is_finished(r, &object);
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

pub(super) fn collection(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response, Status> {
    let r = view::stored(target.resource);
    let (selectors, options) = (read::selectors(target, call)?, options(call)?);
    let mut deleted = Vec::new();
    for stored in server.store.shelf(r, target.list_namespace()).items {
        if !selectors.matches(&stored.value()) {
            continue;
        }
        match server.store.delete(r, &stored.namespace, &stored.name, &options) {
            Ok(object) => deleted.push(object),
            Err(status) if status.is_not_found() => {}
            Err(status) => return Err(status),
        }
    }
    let metadata = json!({"resourceVersion": server.store.revision().to_string()});
    let bytes =
        read::view(target, call).list(deleted.into_iter(), &metadata).map_err(Status::internal)?;
    Ok(answer::bytes_of_json(200, bytes))
}

fn options(call: &Call) -> Result<DeleteOptions, Status> {
    let body: Value = if call.body.is_empty() { Value::Null } else { call.object()? };
    let text = |value: &Value| value.as_str().filter(|v| !v.is_empty()).map(str::to_owned);
    if !body["dryRun"].is_null() {
        return Err(Status::no_dry_runs());
    }
    let kind = &body["kind"];
    if !kind.is_null() && *kind != "DeleteOptions" {
        return Err(Status::bad_request(format!(
            "the body of a DELETE is DeleteOptions, not {kind}"
        )));
    }
    Ok(DeleteOptions {
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        propagation_policy: text(&body["propagationPolicy"]),
        grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
    })
}

fn deleted(r: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": meta::name(object),
        "kind": r.plural,
        "uid": meta::uid(object),
    });
    if !r.group.is_empty() {
        details["group"] = r.group.into();
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}
