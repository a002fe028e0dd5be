//! Making responses.

use std::io;

use axum::{
    body::{Body, Bytes},
    http::{
        HeaderValue, StatusCode, Version,
        header::{
            CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING, WARNING,
        },
    },
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use crate::status::Status;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn json(code: u16, value: &impl Serialize) -> Result<Response, Status> {
    let bytes = serde_json::to_vec(value).map_err(Status::internal)?;
    Ok(bytes_of_json(code, bytes))
}

pub(super) fn bytes_of_json(code: u16, bytes: impl Into<Body>) -> Response {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, [(CONTENT_TYPE, JSON)], bytes.into()).into_response()
}

/// What comes bit by bit. An error in it breaks the connection.
pub(super) fn stream(mut bits: Receiver<io::Result<Bytes>>) -> Body {
    Body::from_stream(futures::stream::poll_fn(move |cx| bits.poll_recv(cx)))
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        let mut response = bytes_of_json(self.code, self.to_json().to_string());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Another server's answer, without what concerns the connection to that server: hyper sets its own.
pub(super) fn passed_on(mut response: Response) -> Response {
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        response.headers_mut().remove(name);
    }
    *response.version_mut() = Version::HTTP_11;
    response
}

/// Adds a warning that clients show to their user.
pub(super) fn warn(response: &mut Response, warning: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
        response.headers_mut().append(WARNING, value);
    }
}
