//! The `proxy` subresource of pods: the request is sent on to the pod, as plain HTTP.
//!
//! Pods have no network here, so loopback addresses are allowed, which a real API server refuses.

use std::net::{IpAddr, SocketAddr};

use axum::{
    BoxError,
    body::Body,
    http::{
        HeaderValue, Request, StatusCode,
        header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, LOCATION, TRANSFER_ENCODING},
    },
    response::{IntoResponse, Response},
};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{Call, Server, answer, target::Target};
use crate::{
    controllers::object::{items, text},
    status::Status,
};

/// The port of a pod whose containers have none.
const DEFAULT_PORT: u16 = 80;

pub(super) async fn proxy(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response, Status> {
    let address = address(server, target)?;
    let path = path_in_pod(&call.path).ok_or_else(Status::no_such_path)?;
    if !path.starts_with('/') {
        // Relative links of the pod's pages require the slash.
        let whole = call.path.strip_suffix(path).unwrap_or_default();
        let location = [(LOCATION, format!("{whole}/{path}"))];
        return Ok((StatusCode::MOVED_PERMANENTLY, location).into_response());
    }
    let response = send(address, path, call).await.map_err(|error| {
        let message = format!("error trying to reach service: {error}");
        Status::new(503, "ServiceUnavailable", message)
    })?;
    Ok(answer::passed_on(response))
}

/// The path and query after `/api/v1/namespaces/<namespace>/pods/<name>/proxy`, as they were sent.
fn path_in_pod(path: &str) -> Option<&str> {
    path.splitn(8, '/').nth(7)?.strip_prefix("proxy")
}

/// The address that `name`, `name:port` or `scheme:name:port` means.
fn address(server: &Server, target: &Target) -> Result<SocketAddr, Status> {
    let invalid = || Status::bad_request(format!("invalid pod request {:?}", target.name));
    let parts: Vec<_> = target.name.split(':').collect();
    let (name, port) = match parts[..] {
        [name] => (name, ""),
        [name, port] | ["" | "http", name, port] => (name, port),
        _ => return Err(invalid()),
    };
    let pod = server.store.get(target.resource, &target.namespace, name)?;
    let port = match port {
        "" => first_port(&pod).unwrap_or(DEFAULT_PORT),
        given => given.parse().map_err(|_| invalid())?,
    };
    let ip = text(&pod["status"]["podIP"]).parse::<IpAddr>().ok();
    let ip = ip.filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
    let ip = ip.ok_or_else(|| Status::bad_request("address not allowed"))?;
    Ok(SocketAddr::new(ip, port))
}

/// The first port of the first container that has one.
fn first_port(pod: &Value) -> Option<u16> {
    let port = items(&pod["spec"]["containers"])
        .find_map(|container| container["ports"][0]["containerPort"].as_u64());
    port?.try_into().ok()
}

/// Sends the request on, on a connection of its own.
async fn send(address: SocketAddr, path: &str, call: &Call) -> Result<Response, BoxError> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| format!("dial tcp {address}: connect: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer's body, which has its errors.
    tokio::spawn(connection);
    let mut request = Request::new(Body::from(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = path.parse()?;
    let headers = request.headers_mut();
    headers.clone_from(&call.headers);
    // The client's credentials are the API server's alone; the rest concerns the client's connection.
    for name in [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers.insert(HOST, HeaderValue::from_str(&address.to_string())?);
    Ok(sender.send_request(request).await?.map(Body::new))
}
