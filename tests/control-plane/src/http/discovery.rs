//! Paths that are no resources: discovery, version, health, OpenAPI.

use axum::{
    Router,
    routing::{MethodRouter, get},
};
use serde_json::{Value, json};

use super::{answer, openapi};
use crate::{
    MINOR_VERSION,
    resource::{self, Resource},
};

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let ok = || get(|| async { "ok" });
    let core = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []});
    let all: Vec<_> = groups().into_iter().map(group).collect();
    let all = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all});
    let mut routes = Router::new()
        .route("/healthz", ok())
        .route("/livez", ok())
        .route("/readyz", ok())
        .route("/version", always(version()))
        .route("/api", always(core))
        .route("/apis", always(all));
    for name in groups() {
        let mut group = group(name);
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
        routes = routes.route(&format!("/apis/{name}"), always(group));
    }
    for (group, version) in versions() {
        let list = always(resource_list(group, version));
        routes = routes.route(&root(group, version), list);
    }
    routes.merge(openapi::routes())
}

/// A path that answers the same to all.
pub(super) fn always<S: Clone + Send + Sync + 'static>(document: Value) -> MethodRouter<S> {
    get(move || async move { answer::json(200, &document) })
}

/// Group and version pairs, each once.
pub(super) fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut all: Vec<_> = resource::all().iter().map(|r| (r.group, r.version)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// `/api/v1` or `/apis/<group>/<version>`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

pub(super) fn resources_of(group: &str, version: &str) -> Vec<&'static Resource> {
    let all = resource::all().iter().copied();
    all.filter(|r| r.group == group && r.version == version).collect()
}

fn groups() -> Vec<&'static str> {
    versions().map(|(group, _)| group).filter(|group| !group.is_empty()).collect()
}

fn group(name: &str) -> Value {
    let versions = versions().filter(|(group, _)| *group == name);
    let versions: Vec<_> = versions
        .map(|(group, v)| json!({"groupVersion": format!("{group}/{v}"), "version": v}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn resource_list(group: &str, version: &str) -> Value {
    let resources = resources_of(group, version).into_iter();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": root(group, version).split('/').skip(2).collect::<Vec<_>>().join("/"),
        "resources": resources.flat_map(entries).collect::<Vec<_>>(),
    })
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
    if matches!(r.plural, "pods" | "services" | "daemonsets" | "deployments" | "jobs") {
        main["categories"] = json!(["all"]);
    }
    let mut entries = vec![main];
    let mut subresource = |name: &str, kind: &str, verbs: &[&str]| {
        entries.push(json!({
            "name": format!("{}/{name}", r.plural),
            "singularName": "",
            "namespaced": r.namespaced,
            "kind": kind,
            "verbs": verbs,
        }));
    };
    if r == &resource::NAMESPACES {
        subresource("finalize", r.kind, &["update"]);
    }
    if r == &resource::PODS {
        subresource("log", r.kind, &["get"]);
        subresource("proxy", "PodProxyOptions", &["get"]);
    }
    if r.status {
        subresource("status", r.kind, &["get", "patch", "update"]);
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
