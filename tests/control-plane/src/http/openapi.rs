//! Just enough OpenAPI for `kubectl apply`, which looks there whether the server validates fields itself.
//! It says so, and does not: a field that there is not is kept.

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use serde_json::{Map, Value, json};

use super::discovery;
use crate::resource::Resource;

/// A document of version 2 that knows no type, in the only encoding in which `kubectl` asks for it: field 1,
/// the version of Swagger, of three letters. It skips its own validation of what is not in there.
const EMPTY_V2: &[u8] = b"\x0a\x032.0";

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let v2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let mut routes = Router::new();
    let mut index = Map::new();
    for (group, version) in discovery::versions() {
        let root = discovery::root(group, version);
        let url = format!("/openapi/v3{root}");
        routes = routes.route(&url, discovery::always(document(group, version)));
        let path = root.trim_start_matches('/').to_owned();
        index.insert(path, json!({"serverRelativeURL": url}));
    }
    routes
        .route("/openapi/v2", get(move || async move { ([(CONTENT_TYPE, v2)], EMPTY_V2) }))
        .route("/openapi/v3", discovery::always(json!({"paths": index})))
}

fn document(group: &str, version: &str) -> Value {
    let root = discovery::root(group, version);
    let mut paths = Map::new();
    for r in discovery::resources_of(group, version) {
        let scope = if r.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = format!("{root}{scope}/{}/{{name}}", r.plural);
        paths.insert(path, json!({"patch": patch(r)}));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "control-plane", "version": version},
        "paths": paths,
    })
}

fn patch(r: &Resource) -> Value {
    json!({
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": r.group, "version": r.version, "kind": r.kind},
        "parameters": [
            {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
        ],
        "responses": {"200": {"description": "OK"}},
    })
}
