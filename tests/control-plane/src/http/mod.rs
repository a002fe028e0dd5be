//! The HTTP/1.1 server: one task per connection; every request is recorded, judged by the
//! injected faults, and then answered: from the store, or by another API server behind it.

mod answer;
mod body;
mod delete;
mod discovery;
mod logs;
mod openapi;
mod query;
mod read;
mod relay;
mod route;
pub(crate) mod upstream;
mod watching;
mod write;

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use http_body_util::{BodyExt, Limited};
use hyper::{
    Method, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderMap, USER_AGENT},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use self::{body::Body, query::Query, route::Route};
use crate::{
    faults::{Faults, Outcome, Verdict},
    requests::{Request, Requests, Verb},
    status::Status,
    store::Store,
};

/// etcd's limit on an object is 1.5 MiB; the API server reads twice that.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Who answers the requests that no fault has hit.
pub(crate) trait Answers: Send + Sync + 'static {
    fn faults(&self) -> &Faults;

    fn requests(&self) -> &Requests;

    /// Whose requests are neither disturbed nor recorded.
    fn bystander(&self) -> Option<&str> {
        None
    }

    /// An error makes hyper drop the connection without an answer, and `reset` with an RST.
    fn answer(
        self: &Arc<Self>,
        reset: &Arc<AtomicBool>,
        asked: &Request,
        route: &Route,
        call: Call,
    ) -> impl Future<Output = io::Result<Response<Body>>> + Send;
}

/// Answers from the store.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pub(crate) requests: Requests,
    /// How often a quiet watch gets a bookmark.
    pub(crate) bookmarks: std::time::Duration,
    pub(crate) bystander: Option<String>,
    /// Where the logs of pods that run as processes are.
    pub(crate) pod_logs: Option<std::path::PathBuf>,
}

/// A request with its body read.
pub(crate) struct Call {
    method: Method,
    headers: HeaderMap,
    query: Query,
    body: Bytes,
    /// How often the watches of its resource had been cut when it came.
    cuts: u64,
}

impl Call {
    fn header(&self, name: impl hyper::header::AsHeaderName) -> &str {
        self.headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    }

    /// The media type of the body without its parameters.
    fn content_type(&self) -> &str {
        let whole = self.header(CONTENT_TYPE);
        whole.split(';').next().unwrap_or_default().trim()
    }

    /// The object in the body, in whatever format the client says it is.
    fn object(&self) -> Result<Value, Status> {
        let object: Value = match self.content_type() {
            "" | "application/json" | "*/*" => self.json()?,
            "application/yaml" => self.yaml()?,
            other => return Err(Status::unsupported_media_type(other)),
        };
        if object.is_object() {
            Ok(object)
        } else {
            Err(Status::bad_request(
                "the body of the request is no JSON object",
            ))
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Status> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Status::bad_request(format!("the body of the request is no valid JSON: {error}"))
        })
    }

    fn yaml(&self) -> Result<Value, Status> {
        // JSON is YAML too, and most clients send that.
        serde_json::from_slice(&self.body).or_else(|_| {
            serde_saphyr::from_slice(&self.body).map_err(|error| {
                Status::bad_request(format!("the body of the request is no valid YAML: {error}"))
            })
        })
    }
}

/// Accepts connections until it is dropped.
pub(crate) async fn serve(listener: TcpListener, server: Arc<impl Answers>) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&server)));
            }
            Err(error) => {
                // Out of file descriptors, most likely: leave running connections time to end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, server: Arc<impl Answers>) {
    // Answers are small and clients wait for them.
    let _ = stream.set_nodelay(true);
    let reset = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (server, reset) = (Arc::clone(&server), Arc::clone(&reset));
        async move { handle(&server, &reset, request).await }
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let done = Pin::new(&mut connection).await;
    if let Err(error) = done {
        tracing::trace!(%error, "connection ended");
    }
    if reset.load(Ordering::Relaxed) {
        // Closing with a zero linger time sends RST instead of FIN.
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

/// Answers one request; an error makes hyper drop the connection without an answer.
async fn handle(
    server: &Arc<impl Answers>,
    reset: &Arc<AtomicBool>,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let path_and_query = head
        .uri
        .path_and_query()
        .map_or("/", |p| p.as_str())
        .to_owned();
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let route = route::parse(head.uri.path());
    let user_agent = head.headers.get(USER_AGENT).and_then(|v| v.to_str().ok());
    let asked = record(&head.method, &route, &query, path_and_query, user_agent);
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Err(io::Error::other(error)),
    };
    let call = Call {
        method: head.method,
        headers: head.headers,
        query,
        body,
        // Once a request is seen in the log, a cut concerns it.
        cuts: server.faults().cuts(&asked.resource),
    };

    let (verdict, recorded) = if server.bystander() == Some(&*asked.user_agent) {
        (Verdict::default(), Arc::new(asked))
    } else {
        let verdict = judge(&**server, &asked, &call);
        // Once a request is seen in the log, its fault is taken: the next one cannot get it.
        (verdict, server.requests().record(asked))
    };
    verdict.wait().await;
    let broken = || {
        reset.store(true, Ordering::Relaxed);
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    let mut response = match &verdict.outcome {
        Some(Outcome::ResetBefore) => return broken(),
        Some(Outcome::Answer(status)) => answer::status(status),
        Some(Outcome::Forbid) => answer::status(&forbidden(&recorded)),
        Some(Outcome::WatchGone) => watching::expired(),
        _ => server.answer(reset, &recorded, &route, call).await?,
    };
    verdict.wait_to_answer().await;
    if matches!(verdict.outcome, Some(Outcome::ResetAfter)) {
        return broken();
    }
    recorded
        .status
        .store(response.status().as_u16(), Ordering::Relaxed);
    response.body_mut().count_into(Arc::clone(&recorded.bytes));
    tracing::debug!(verb = %recorded.verb, path = recorded.path, status = recorded.status());
    Ok(response)
}

fn judge(server: &impl Answers, asked: &Request, call: &Call) -> Verdict {
    let faults = server.faults();
    let created = (asked.verb == Verb::Create && faults.wants_names()).then(|| {
        call.object()
            .map(|o| crate::meta::name(&o).to_owned())
            .unwrap_or_default()
    });
    faults.judge(asked, created.as_deref())
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

impl Answers for Server {
    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn bystander(&self) -> Option<&str> {
        self.bystander.as_deref()
    }

    async fn answer(
        self: &Arc<Self>,
        reset: &Arc<AtomicBool>,
        _: &Request,
        route: &Route,
        call: Call,
    ) -> io::Result<Response<Body>> {
        let answered = respond(self, reset, route, &call);
        Ok(answered.unwrap_or_else(|status| answer::status(&status)))
    }
}

fn respond(
    server: &Arc<Server>,
    reset: &Arc<AtomicBool>,
    route: &Route,
    call: &Call,
) -> Result<Response<Body>, Status> {
    match route {
        Route::Resource(target) => match verb(&call.method, route, &call.query) {
            Verb::Watch => watching::watch(server, reset, target, call),
            Verb::List => read::list(server, target, call),
            Verb::Get if target.name.is_empty() => Err(Status::method_not_allowed()),
            Verb::Get if target.subresource == "log" => logs::log(server, target, call),
            Verb::Get => read::get(server, target, call),
            _ => write::handle(server, target, call),
        },
        Route::Other(path) => discovery::respond(path, call),
    }
}

fn verb(method: &Method, route: &Route, query: &Query) -> Verb {
    let collection = matches!(route, Route::Resource(target) if target.name.is_empty());
    match *method {
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if collection => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        // One object is not watched by its path; the real one answers with the object.
        _ if collection && query.flag("watch") => Verb::Watch,
        _ if collection => Verb::List,
        _ => Verb::Get,
    }
}

fn record(
    method: &Method,
    route: &Route,
    query: &Query,
    path: String,
    user_agent: Option<&str>,
) -> Request {
    let mut request = Request {
        verb: verb(method, route, query),
        resource: String::new(),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        path,
        user_agent: user_agent.unwrap_or_default().to_owned(),
        at: Instant::now(),
        status: 0.into(),
        bytes: Arc::default(),
    };
    if let Route::Resource(target) = route {
        target.resource.plural.clone_into(&mut request.resource);
        target.subresource.clone_into(&mut request.subresource);
        target.namespace.clone_into(&mut request.namespace);
        target.name.clone_into(&mut request.name);
    }
    request
}
