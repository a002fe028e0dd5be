//! Retries of requests that the API server answers with 429, 503 or 504.

use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::client::retry::{InvalidBackoff, RetryPolicy};
use tokio::time::Sleep;
use tower::BoxError;
use tower::retry::Policy;

use crate::retry;

const RETRIES: u32 = 15;

/// The end of the path of a request that the API server forwards to a pod.
pub(super) const POD_STATUS: &str = "/proxy/status";

/// The retry policy: honours `Retry-After`, and otherwise backs off with jitter.
pub(crate) fn retries() -> Result<Retries, InvalidBackoff> {
    let pauses = retry::UNAVAILABLE;
    RetryPolicy::new(pauses.first, pauses.longest, RETRIES, true).map(Retries)
}

/// Retries all but requests to a pod that the API server cannot reach. A retry would hide the cause until the request's
/// time limit.
#[derive(Clone)]
pub(crate) struct Retries(RetryPolicy);

impl<T> Policy<Request<Body>, Response<T>, BoxError> for Retries {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<T>, BoxError>,
    ) -> Option<Sleep> {
        let is_unavailable = |it: &Response<T>| it.status() == StatusCode::SERVICE_UNAVAILABLE;
        if request.uri().path().ends_with(POD_STATUS) && result.as_ref().is_ok_and(is_unavailable) {
            return None;
        }
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // The type of the response has no influence.
        Policy::<_, Response<T>, _>::clone_request(&mut self.0, request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// The pause after a response, if the request is retried.
    fn pause(policy: &mut Retries, code: u16, retry_after: Option<&str>) -> Option<Duration> {
        pause_at(policy, "/api/v1/pods", code, retry_after)
    }

    fn pause_at(
        policy: &mut Retries,
        path: &str,
        code: u16,
        retry_after: Option<&str>,
    ) -> Option<Duration> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().unwrap();
        let mut answer = Response::builder().status(code);
        if let Some(seconds) = retry_after {
            answer = answer.header("Retry-After", seconds);
        }
        let mut answer: Result<_, BoxError> = Ok(answer.body(()).unwrap());
        let now = Instant::now();
        let sleep = policy.retry(&mut request, &mut answer)?;
        Some(sleep.deadline().duration_since(now))
    }

    #[tokio::test]
    async fn retry_after_is_honoured_and_other_pauses_are_bounded() {
        let mut policy = retries().unwrap();
        let asked = pause(&mut policy, 429, Some("40")).unwrap();
        assert!(asked >= Duration::from_secs(40), "{asked:?}");
        let pauses: Vec<_> = std::iter::from_fn(|| pause(&mut policy, 503, None)).collect();
        assert_eq!(pauses.len(), 14);
        let longest = pauses.iter().max().unwrap().as_secs_f64().round();
        assert!((longest - 30.0).abs() < 0.5, "{pauses:?}");
        for code in [200, 403, 410, 500] {
            assert_eq!(pause(&mut retries().unwrap(), code, None), None, "{code}");
        }
    }

    #[tokio::test]
    async fn unreachable_pod_is_not_asked_again() {
        let path = "/api/v1/namespaces/a/pods/b/proxy/status";
        let pause = |code| pause_at(&mut retries().unwrap(), path, code, None);
        assert_eq!(pause(503), None);
        assert!(pause(429).is_some());
    }
}
