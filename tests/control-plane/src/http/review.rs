//! `SelfSubjectAccessReview`: whether the client may do something. Nothing is stored.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use serde_json::json;

use super::{Answering, answer, gate::Call};
use crate::{requests::Verb, status::Status};

pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Everything is allowed but what a fault forbids by its verb and resource. To ask hits the fault.
pub(super) async fn create(
    State((_, faults)): State<Answering>,
    Extension(call): Extension<Arc<Call>>,
) -> Result<Response, Status> {
    let mut review = call.object()?;
    let attributes = &review["spec"]["resourceAttributes"];
    let (verb, resource) = (&attributes["verb"], &attributes["resource"]);
    if *verb != Verb::Create.to_string() {
        return Err(Status::bad_request("only reviews of create are here"));
    }
    let resource = resource.as_str().unwrap_or_default();
    review["status"] = json!({ "allowed": !faults.forbids_creation(resource) });
    answer::json(201, &review)
}
