//! Retries of requests that the API server answers with 429, 503 or 504.

use std::time::Duration;

use http::Request;
use kube::client::Body;
use kube::client::retry::{InvalidBackoff, RetryPolicy};
use tower::BoxError;
use tower::retry::Policy;

/// The first pause and the longest. The default policy of the client pauses for up to 1000 s, and a watch waits
/// for it without a limit.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));
const RETRIES: u32 = 15;

/// Retries, except of what a pod answers or does not: an operator waits for it.
#[derive(Clone)]
pub(crate) struct Retries(RetryPolicy);

/// The retry policy: honours `Retry-After`, and otherwise backs off with jitter.
pub(crate) fn retries() -> Result<Retries, InvalidBackoff> {
    RetryPolicy::new(PAUSES.0, PAUSES.1, RETRIES, true).map(Retries)
}

impl<Response> Policy<Request<Body>, Response, BoxError> for Retries
where
    RetryPolicy: Policy<Request<Body>, Response, BoxError>,
{
    type Future = <RetryPolicy as Policy<Request<Body>, Response, BoxError>>::Future;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        answer: &mut Result<Response, BoxError>,
    ) -> Option<Self::Future> {
        let is_of_pod = request.uri().path().contains("/proxy/");
        self.0.retry(request, answer).filter(|_| !is_of_pod)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response, _>::clone_request(&mut self.0, request)
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tokio::time::Instant;

    use super::*;

    /// The pause after a response, if the request is retried.
    fn pause(policy: &mut Retries, code: u16, retry_after: Option<&str>) -> Option<Duration> {
        pause_of("/api/v1/nodes", policy, code, retry_after)
    }

    fn pause_of(
        path: &str,
        policy: &mut Retries,
        code: u16,
        retry_after: Option<&str>,
    ) -> Option<Duration> {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
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
        let of_pod = "/api/v1/namespaces/a/pods/b/proxy/status";
        assert_eq!(pause_of(of_pod, &mut retries().unwrap(), 503, None), None);
    }
}
