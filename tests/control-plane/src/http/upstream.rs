//! Answers that another API server gives.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use http_body_util::BodyExt;
use hyper::{
    Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};

use super::{Answers, Body, Call, Route, relay};
use crate::{
    faults::Faults,
    front::Upstream,
    requests::{Request, Requests, Verb},
};

/// What passes on what no fault has hit.
pub(crate) struct Forwarding {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) faults: Faults,
    pub(crate) requests: Requests,
}

impl Answers for Forwarding {
    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn requests(&self) -> &Requests {
        &self.requests
    }

    async fn answer(
        self: &Arc<Self>,
        reset: &Arc<AtomicBool>,
        asked: &Request,
        _: &Route,
        call: Call,
    ) -> io::Result<Response<Body>> {
        // Not Accept-Encoding: watches are read line by line on their way.
        let passed_on = [ACCEPT, CONTENT_TYPE, USER_AGENT];
        let mut request = hyper::Request::new(call.body);
        *request.method_mut() = call.method;
        *request.uri_mut() = asked.path.parse().map_err(io::Error::other)?;
        for name in passed_on {
            if let Some(value) = call.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        let (mut head, content) = self.upstream.ask(request).await?.into_parts();
        let body = if asked.verb == Verb::Watch && head.status == StatusCode::OK {
            let initial = call.query.get("sendInitialEvents") == "true";
            relay::Relay::new(content, call.cuts, initial).tell(
                &self.faults,
                reset,
                &asked.resource,
            )
        } else {
            Body::whole(content.collect().await?.to_bytes().into())
        };
        // Hop by hop: hyper sets its own.
        for name in ["connection", "transfer-encoding", "content-length"] {
            head.headers.remove(name);
        }
        head.version = hyper::Version::HTTP_11;
        Ok(Response::from_parts(head, body))
    }
}
