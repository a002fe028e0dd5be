//! Making responses.

use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING},
};
use serde::Serialize;

use super::body::Body;
use crate::status::Status;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn json(code: u16, value: &impl Serialize) -> Result<Response<Body>, Status> {
    let bytes = serde_json::to_vec(value).map_err(Status::internal)?;
    Ok(bytes_of_json(code, bytes))
}

pub(super) fn bytes_of_json(code: u16, bytes: Vec<u8>) -> Response<Body> {
    with_body(code, JSON, Body::whole(bytes))
}

pub(super) fn text(text: &str) -> Response<Body> {
    text_stream(Body::whole(text.into()))
}

pub(super) fn text_stream(body: Body) -> Response<Body> {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    with_body(200, kind, body)
}

pub(super) fn protobuf(kind: &'static str, bytes: &[u8]) -> Response<Body> {
    with_body(
        200,
        HeaderValue::from_static(kind),
        Body::whole(bytes.to_vec()),
    )
}

pub(super) fn stream(body: Body) -> Response<Body> {
    with_body(200, JSON, body)
}

pub(super) fn status(status: &Status) -> Response<Body> {
    let body = status.to_json().to_string().into_bytes();
    let mut response = bytes_of_json(status.code, body);
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds a warning that clients show to their user.
pub(super) fn warn(response: &mut Response<Body>, warning: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
        response.headers_mut().append(WARNING, value);
    }
}

fn with_body(code: u16, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
