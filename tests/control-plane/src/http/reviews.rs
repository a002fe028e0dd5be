//! Questions about who one is and what one may do: here everybody is nobody, and may do everything.

use hyper::Response;
use serde_json::{Value, json};

use super::{answer, body::Body};
use crate::status::Status;

/// Answers `kubectl auth can-i`, `kubectl auth whoami`, and whoever asks on behalf of others. What is
/// asked does not matter for the answer, so the question is not even read.
pub(super) fn respond(path: &str) -> Result<Response<Body>, Status> {
    let segments: Vec<_> = path.split('/').filter(|s| !s.is_empty()).collect();
    let (group, kind, status) = match segments.as_slice() {
        ["apis", group @ "authorization.k8s.io", "v1", plural] => match *plural {
            "selfsubjectaccessreviews" => (group, "SelfSubjectAccessReview", allowed()),
            "subjectaccessreviews" => (group, "SubjectAccessReview", allowed()),
            "selfsubjectrulesreviews" => (group, "SelfSubjectRulesReview", rules()),
            _ => return Err(Status::no_such_path()),
        },
        [
            "apis",
            group @ "authorization.k8s.io",
            "v1",
            "namespaces",
            _,
            "localsubjectaccessreviews",
        ] => (group, "LocalSubjectAccessReview", allowed()),
        [
            "apis",
            group @ "authentication.k8s.io",
            "v1",
            "selfsubjectreviews",
        ] => (group, "SelfSubjectReview", anonymous()),
        _ => return Err(Status::no_such_path()),
    };
    answer::json(
        201,
        &json!({
            "kind": kind,
            "apiVersion": format!("{group}/v1"),
            "metadata": {},
            "spec": {},
            "status": status,
        }),
    )
}

fn allowed() -> Value {
    json!({"allowed": true})
}

fn rules() -> Value {
    json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn anonymous() -> Value {
    json!({"userInfo": {
        "username": "system:anonymous",
        "groups": ["system:unauthenticated"],
    }})
}
