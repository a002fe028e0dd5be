//! What every request passes before it is answered: it is read, recorded, and judged by the faults.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use axum::{
    RequestExt, Router,
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::{RawPathParams, State},
    http::{
        HeaderMap, Method,
        header::{AsHeaderName, CONTENT_TYPE, USER_AGENT},
        request::Parts,
    },
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::{ServiceExt, util::MapResult};

use super::{query::Query, target::Target, watching};
use crate::{
    faults::{Faults, Outcome, Verdict},
    meta,
    requests::{Request, Requests, Verb},
    status::Status,
};

/// etcd's limit on an object is 1.5 MiB; the API server reads twice that.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// What answers requests, over a connection or in this process.
pub type Service = MapResult<Router, fn(Result<Response, Infallible>) -> Result<Response, Reset>>;

/// The connection is reset: there is no answer.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the connection is reset")]
pub struct Reset;

impl From<Infallible> for Reset {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Marks an answer that [`Service`] turns into [`Reset`].
pub(super) fn reset() -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(Reset);
    response
}

fn is_reset(response: &Response) -> bool {
    response.extensions().get::<Reset>().is_some()
}

/// What happens to requests, and what is written down of them.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) faults: Faults,
    pub(crate) requests: Requests,
    /// Whose requests are neither disturbed nor recorded, by their `User-Agent`.
    pub(crate) bystander: Option<String>,
}

/// A request with its body read.
pub(crate) struct Call {
    pub(super) verb: Verb,
    /// `None` if no resource is meant.
    pub(super) target: Option<Target>,
    pub(super) method: Method,
    /// As they were sent.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) query: Query,
    pub(super) body: Bytes,
    /// How often the watches of its resource had been cut when it came.
    pub(super) cuts: u64,
}

impl Call {
    pub(super) fn header(&self, name: impl AsHeaderName) -> &str {
        let value = self.headers.get(name).and_then(|v| v.to_str().ok());
        value.unwrap_or_default()
    }

    /// The media type of the body without its parameters.
    pub(super) fn content_type(&self) -> &str {
        let whole = self.header(CONTENT_TYPE);
        whole.split(';').next().unwrap_or_default().trim()
    }

    /// The object in the body, in whatever format the client says it is.
    pub(super) fn object(&self) -> Result<Value, Status> {
        let object: Value = match self.content_type() {
            "" | "application/json" | "*/*" => self.json()?,
            "application/yaml" => serde_saphyr::from_slice(&self.body).map_err(|error| {
                Status::bad_request(format!("the body of the request is no valid YAML: {error}"))
            })?,
            other => return Err(Status::unsupported_media_type(other)),
        };
        if object.is_object() {
            Ok(object)
        } else {
            let why = "the body of the request is no JSON object";
            Err(Status::bad_request(why))
        }
    }

    pub(super) fn json(&self) -> Result<Value, Status> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Status::bad_request(format!("the body of the request is no valid JSON: {error}"))
        })
    }
}

impl Gate {
    pub(super) fn before(self, routes: Router) -> Service {
        let routes = routes.layer(from_fn_with_state(self, pass));
        ServiceExt::<axum::extract::Request>::map_result(routes, |answer| match answer {
            Ok(answer) if is_reset(&answer) => Err(Reset),
            Ok(answer) => Ok(answer),
            Err(never) => match never {},
        })
    }

    fn judge(&self, asked: &Request, call: &Call) -> Verdict {
        let created = (asked.verb == Verb::Create)
            .then(|| call.object().map(|object| meta::name(&object).to_owned()));
        let created = created.map(Result::unwrap_or_default);
        self.faults.judge(asked, created.as_deref())
    }
}

async fn pass(
    State(gate): State<Gate>,
    mut request: axum::extract::Request,
    next: Next,
) -> Response {
    let params = request.extract_parts::<RawPathParams>().await;
    let target = params.ok().and_then(|params| Target::of(&params, request.uri().path()));
    let (head, body) = request.into_parts();
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let asked = record(&head, target.as_ref(), &query);
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return reset();
    };
    let call = Call {
        verb: asked.verb,
        target,
        method: head.method.clone(),
        path: asked.path.clone(),
        headers: head.headers.clone(),
        query,
        body,
        // Once a request is seen in the log, a cut concerns it.
        cuts: gate.faults.stream_of(&asked.resource).cuts,
    };
    let (verdict, recorded) = if gate.bystander.as_ref() == Some(&asked.user_agent) {
        (Verdict::default(), Arc::new(asked))
    } else {
        let verdict = gate.judge(&asked, &call);
        // Once a request is seen in the log, its fault is taken: the next one cannot get it.
        (verdict, gate.requests.record(asked))
    };
    verdict.wait().await;
    let response = match &verdict.outcome {
        Some(Outcome::ResetBefore) => return reset(),
        Some(Outcome::Answer(status)) => status.clone().into_response(),
        Some(Outcome::Forbid) => forbidden(&recorded).into_response(),
        Some(Outcome::WatchGone) => watching::expired(),
        _ => {
            let mut request = axum::extract::Request::from_parts(head, Body::empty());
            request.extensions_mut().insert(Arc::new(call));
            next.run(request).await
        }
    };
    verdict.wait_to_answer().await;
    if matches!(verdict.outcome, Some(Outcome::ResetAfter)) || is_reset(&response) {
        return reset();
    }
    let code = response.status().as_u16();
    recorded.status.store(code, Ordering::Relaxed);
    tracing::debug!(verb = %recorded.verb, path = recorded.path, status = code);
    response.map(|body| counted(body, Arc::clone(&recorded.bytes)))
}

/// A body that tells how much of it has gone out.
fn counted(body: Body, bytes: Arc<AtomicU64>) -> Body {
    if let Some(whole) = body.size_hint().exact() {
        bytes.store(whole, Ordering::Relaxed);
        return body;
    }
    Body::new(body.map_frame(move |frame| {
        let length = frame.data_ref().map_or(0, Bytes::len);
        bytes.fetch_add(length as u64, Ordering::Relaxed);
        frame
    }))
}

fn record(head: &Parts, target: Option<&Target>, query: &Query) -> Request {
    let collection = target.is_some_and(|target| target.name.is_empty());
    let verb = match head.method {
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if collection => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        // One object is not watched by its path; the real one answers with the object.
        _ if collection && query.flag("watch") => Verb::Watch,
        _ if collection => Verb::List,
        _ => Verb::Get,
    };
    let text = |of: fn(&Target) -> &str| target.map(of).unwrap_or_default().to_owned();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let header = |name: &str| {
        let value = head.headers.get(name).and_then(|v| v.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    Request {
        verb,
        resource: text(|target| target.resource.plural),
        subresource: text(|target| &target.subresource),
        namespace: text(|target| &target.namespace),
        name: text(|target| &target.name),
        path: path.to_owned(),
        user_agent: header(USER_AGENT.as_str()),
        user: header("impersonate-user"),
        at: Instant::now(),
        status: 0.into(),
        bytes: Arc::default(),
    }
}

/// What RBAC says of who may not do this.
fn forbidden(asked: &Request) -> Status {
    let Request { verb, resource, .. } = asked;
    let what = match &*asked.subresource {
        "" => resource.clone(),
        subresource => format!("{resource}/{subresource}"),
    };
    let group = asked.path.strip_prefix("/apis/").unwrap_or_default();
    let group = group.split('/').next().unwrap_or_default();
    let place = match &*asked.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let message = format!(
        "{resource} is forbidden: User \"injected\" cannot {verb} resource \"{what}\" in API group \"{group}\" {place}"
    );
    Status::new(403, "Forbidden", message)
}
