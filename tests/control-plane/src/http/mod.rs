//! The API over HTTP/1.1: axum finds the way, hyper serves. Before every answer, from the store or from
//! another API server behind, stands a gate: it records the request, and does to it what the faults say.

mod answer;
mod delete;
mod discovery;
mod gate;
mod logs;
mod openapi;
mod proxy;
mod query;
mod read;
mod relay;
mod review;
mod target;
pub(crate) mod upstream;
mod watching;
mod write;

use std::{convert::Infallible, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::State,
    response::Response,
    routing::{MethodRouter, any, post},
};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::net::{TcpListener, TcpStream};

use self::gate::Call;
pub(crate) use self::gate::Gate;
pub use self::gate::{Reset, Service};
use crate::{requests::Verb, resource, status::Status, store::Store};

/// What answers from the store.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) store: Store,
    /// How often a quiet watch gets a bookmark.
    pub(crate) bookmarks: Duration,
    /// Where the logs of pods that run as processes are.
    pub(crate) pod_logs: Option<PathBuf>,
}

/// The API of a store behind a gate.
pub(crate) fn service(server: Server, gate: Gate) -> Service {
    let server = (Arc::new(server), gate.faults.clone());
    let routes = resources(&any(respond))
        .route(review::PATH, post(review::create))
        .merge(discovery::routes());
    let routes = routes
        .fallback(|| async { Status::no_such_path() })
        .method_not_allowed_fallback(|| async { Status::method_not_allowed() });
    gate.before(routes.with_state(server))
}

/// Where resources are: in namespaces or not, collections, objects and subresources.
fn resources<S: Clone + Send + Sync + 'static>(answer: &MethodRouter<S>) -> Router<S> {
    let mut routes = Router::new();
    // What a proxy is asked for follows the subresource.
    let proxied = "/api/{version}/namespaces/{namespace}/{plural}/{name}/{subresource}/";
    for path in [proxied, &format!("{proxied}{{*path}}")] {
        routes = routes.route(path, answer.clone());
    }
    for root in ["/api/{version}", "/apis/{group}/{version}"] {
        for place in ["", "/namespaces/{namespace}"] {
            for path in ["/{plural}", "/{plural}/{name}", "/{plural}/{name}/{subresource}"] {
                routes = routes.route(&format!("{root}{place}{path}"), answer.clone());
            }
        }
    }
    routes
}

type Answering = (Arc<Server>, crate::Faults);

async fn respond(
    State((server, faults)): State<Answering>,
    Extension(call): Extension<Arc<Call>>,
) -> Result<Response, Status> {
    let target = call.target.as_ref().ok_or_else(Status::no_such_path)?;
    if !call.query.get("dryRun").is_empty() {
        return Err(Status::no_dry_runs());
    }
    let one = !target.name.is_empty();
    match (call.verb, &*target.subresource) {
        (Verb::Watch, _) => watching::watch(&server, &faults, target, &call),
        (Verb::List, _) => read::list(&server, &faults, target, &call),
        (Verb::Get, "log") => logs::log(&server, target, &call),
        (Verb::Get, "proxy") => proxy::proxy(&server, target, &call).await,
        (Verb::Get, _) => read::get(&server, target, &call),
        (_, "log" | "proxy") => Err(Status::method_not_allowed()),
        (Verb::Create, _) if !one => write::create(&server, target, &call),
        (Verb::Update, _) if one => write::update(&server, target, &call),
        (Verb::Patch, _) if one => write::patch(&server, target, &call),
        (Verb::Delete, "") => delete::object(&server, target, &call),
        // All namespaces at once: that is not meant.
        (Verb::DeleteCollection, _) if target.resource != &resource::NAMESPACES => {
            delete::collection(&server, target, &call)
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// Accepts connections until it is dropped.
pub(crate) async fn serve(listener: TcpListener, service: Service) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, service.clone()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: leave running connections time to end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, service: Service) {
    // Answers are small and clients wait for them.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(service);
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = Pin::new(&mut connection).await {
        tracing::trace!(%error, "connection ended");
        // Closing with a zero linger time sends RST instead of FIN.
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}
