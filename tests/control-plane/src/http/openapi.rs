//! Just enough OpenAPI v3 for `kubectl`: it looks there whether a type exists and whether the
//! server validates fields itself (it does not complain about unknown ones).

use hyper::Response;
use serde_json::{Map, Value, json};

use super::{answer, body::Body, discovery};
use crate::{resource::Resource, status::Status};

/// What `kubectl explain` shows.
const UNDESCRIBED: &str = "This control plane knows its types, but does not describe their fields. A \
    real API server does, and https://kubernetes.io/docs/reference/kubernetes-api.";

/// A document that knows no type, in the only encoding in which `kubectl` asks for version 2. It
/// does so for a `List` and for what it does not find in version 3, and skips its own validation of what
/// is not in there.
pub(super) fn empty_v2() -> Response<Body> {
    // Field 1, the version of Swagger, of three letters.
    const DOCUMENT: &[u8] = b"\x0a\x032.0";
    answer::protobuf(
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        DOCUMENT,
    )
}

pub(super) fn index() -> Value {
    let paths: Map<_, _> = discovery::versions()
        .map(|(group, version)| {
            let root = discovery::root(group, version);
            let url = format!("/openapi/v3{root}");
            (
                root.trim_start_matches('/').to_owned(),
                json!({"serverRelativeURL": url}),
            )
        })
        .collect();
    json!({"paths": paths})
}

pub(super) fn document(group: &str, version: &str) -> Result<Response<Body>, Status> {
    let resources = discovery::resources_of(group, version);
    if resources.is_empty() {
        return Err(Status::no_such_path());
    }
    let root = discovery::root(group, version);
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for r in resources {
        let scope = if r.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let collection = format!("{root}{scope}/{}", r.plural);
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({
                "get": operation(r, "get"),
                "put": operation(r, "put"),
                "patch": operation(r, "patch"),
                "delete": operation(r, "delete"),
            }),
        );
        let post = json!({"get": operation(r, "list"), "post": operation(r, "post")});
        paths.insert(collection, post);
        let schema = json!({
            "type": "object",
            "description": UNDESCRIBED,
            "x-kubernetes-group-version-kind": [kind(r)],
        });
        schemas.insert(format!("{group}.{version}.{}", r.kind), schema);
    }
    answer::json(
        200,
        &json!({
            "openapi": "3.0.0",
            "info": {"title": "control-plane", "version": version},
            "paths": paths,
            "components": {"schemas": schemas},
        }),
    )
}

fn kind(r: &Resource) -> Value {
    json!({"group": r.group, "version": r.version, "kind": r.kind})
}

fn operation(r: &Resource, action: &str) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["dryRun", "fieldManager", "fieldValidation"].map(parameter);
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind(r),
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
    })
}
