//! Paths that are no resources: discovery, version, health, OpenAPI.

use hyper::{Method, Response};
use serde_json::{Value, json};

use super::{Call, answer, body::Body, openapi};
use crate::{
    MINOR_VERSION,
    resource::{self, Resource},
    status::Status,
};

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

pub(super) fn respond(path: &str, call: &Call) -> Result<Response<Body>, Status> {
    if call.method != Method::GET {
        return Err(Status::no_such_path());
    }
    let segments: Vec<_> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(answer::text("ok")),
        ["version"] => answer::json(200, &version()),
        ["api"] => answer::json(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
        ["apis"] => {
            let groups: Vec<_> = groups().into_iter().map(group).collect();
            answer::json(
                200,
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
            )
        }
        ["apis", name] if groups().contains(name) => {
            let mut group = group(name);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            answer::json(200, &group)
        }
        ["api", version] => resource_list("", version),
        ["apis", group, version] => resource_list(group, version),
        ["openapi", "v2"] => Ok(openapi::empty_v2()),
        ["openapi", "v3"] => answer::json(200, &openapi::index()),
        ["openapi", "v3", "api", version] => openapi::document("", version),
        ["openapi", "v3", "apis", group, version] => openapi::document(group, version),
        [] => {
            let paths: Vec<_> = versions().map(|(group, v)| root(group, v)).collect();
            answer::json(200, &json!({"paths": paths}))
        }
        _ => Err(Status::no_such_path()),
    }
}

/// Group and version pairs, each once.
pub(super) fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut all: Vec<_> = resource::all()
        .iter()
        .map(|r| (r.group, r.version))
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// `/api/v1` or `/apis/<group>/<version>`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

pub(super) fn resources_of(group: &str, version: &str) -> Vec<&'static Resource> {
    let all = resource::all().iter().copied();
    all.filter(|r| r.group == group && r.version == version)
        .collect()
}

fn groups() -> Vec<&'static str> {
    versions()
        .map(|(group, _)| group)
        .filter(|group| !group.is_empty())
        .collect()
}

fn group(name: &str) -> Value {
    let versions = versions().filter(|(group, _)| *group == name);
    let versions: Vec<_> = versions
        .map(|(group, v)| json!({"groupVersion": format!("{group}/{v}"), "version": v}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn resource_list(group: &str, version: &str) -> Result<Response<Body>, Status> {
    let resources = resources_of(group, version);
    let Some(first) = resources.first() else {
        return Err(Status::no_such_path());
    };
    let entries: Vec<_> = resources.iter().flat_map(|r| entries(r)).collect();
    answer::json(
        200,
        &json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": first.api_version(),
            "resources": entries,
        }),
    )
}

fn entries(r: &'static Resource) -> Vec<Value> {
    let mut main = json!({
        "name": r.plural,
        "singularName": r.singular,
        "namespaced": r.namespaced,
        "kind": r.kind,
        "verbs": VERBS,
    });
    if !r.short_names.is_empty() {
        main["shortNames"] = json!(r.short_names);
    }
    // What `kubectl get all` means.
    if matches!(
        r.plural,
        "pods" | "services" | "daemonsets" | "deployments" | "jobs"
    ) {
        main["categories"] = json!(["all"]);
    }
    let mut entries = vec![main];
    let mut subresource = |name: &str, verbs: &[&str]| {
        entries.push(json!({
            "name": format!("{}/{name}", r.plural),
            "singularName": "",
            "namespaced": r.namespaced,
            "kind": r.kind,
            "verbs": verbs,
        }));
    };
    if r == &resource::NAMESPACES {
        subresource("finalize", &["update"]);
    }
    if r == &resource::PODS {
        subresource("log", &["get"]);
    }
    if r.status {
        subresource("status", &["get", "patch", "update"]);
    }
    entries
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR_VERSION,
        "gitVersion": crate::version(),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
