//! Answers that another API server gives.

use std::{io, sync::Arc};

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{
        Request, Response, StatusCode,
        header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
    },
    routing::any,
};
use http_body_util::BodyExt;

use super::{Call, Gate, Service, answer, gate, relay, resources};
use crate::{faults::Faults, front::Upstream, requests::Verb};

type Forwarding = (Arc<dyn Upstream>, Faults);

/// The API of another server behind a gate.
pub(crate) fn service(upstream: Arc<dyn Upstream>, gate: Gate) -> Service {
    let forwarding = (upstream, gate.faults.clone());
    let routes = resources(&any(forward)).fallback(forward);
    gate.before(routes.with_state(forwarding))
}

async fn forward(
    State((upstream, faults)): State<Forwarding>,
    Extension(call): Extension<Arc<Call>>,
) -> Response<Body> {
    let answered = ask(&*upstream, &faults, &call).await;
    answered.unwrap_or_else(|error| {
        tracing::debug!(%error, path = call.path, "the API server does not answer");
        gate::reset()
    })
}

async fn ask(upstream: &dyn Upstream, faults: &Faults, call: &Call) -> io::Result<Response<Body>> {
    // Not Accept-Encoding: watches are read line by line on their way.
    let passed_on = [ACCEPT, CONTENT_TYPE, USER_AGENT];
    let mut request = Request::new(call.body.clone());
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.path.parse().map_err(io::Error::other)?;
    for name in passed_on {
        if let Some(value) = call.headers.get(&name) {
            request.headers_mut().insert(name, value.clone());
        }
    }
    let (head, content) = upstream.ask(request).await?.into_parts();
    let body = match &call.target {
        Some(target) if call.verb == Verb::Watch && head.status == StatusCode::OK => {
            relay::pass_on(Body::new(content), call, target, faults)
        }
        _ => content.collect().await?.to_bytes().into(),
    };
    Ok(answer::passed_on(Response::from_parts(head, body)))
}
