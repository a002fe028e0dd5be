//! Faults as they are described: which requests, how often, and what happens to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{Faults, Outcome};
use crate::{
    requests::{Request, Verb},
    status::Status,
};

/// An error answer to inject.
#[derive(Debug, Clone)]
pub struct Answer(Status);

/// A fault being described; one of its last methods puts it in force.
#[derive(Debug, Clone)]
#[must_use = "a fault is in force once one of the last methods is called"]
pub struct FaultBuilder {
    faults: Faults,
    matcher: Matcher,
    skip: usize,
    times: usize,
    may_miss: bool,
}

/// A fault in force. It stays so when this is dropped.
#[derive(Debug, Clone)]
pub struct Fault {
    faults: Faults,
    rule: Arc<Rule>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Matcher {
    pub(super) verb: Option<Verb>,
    group: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
    name_prefix: Option<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) matcher: Matcher,
    skip: usize,
    times: usize,
    may_miss: bool,
    seen: AtomicUsize,
    pub(super) outcome: Outcome,
    /// Closed when the fault has ended.
    over: Semaphore,
}

impl Answer {
    /// An HTTP error by its code, with the reason that Kubernetes pairs with it.
    pub fn code(code: u16) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        Self(Status::new(code, reason, "injected fault"))
    }

    /// Adds `Retry-After`, in seconds.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    /// The text of the error.
    pub fn message(mut self, message: &str) -> Self {
        message.clone_into(&mut self.0.message);
        self
    }
}

#[expect(clippy::must_use_candidate, reason = "a fault is in force whether or not it is kept")]
impl FaultBuilder {
    /// Every request of the verb, until it is restricted.
    pub(super) fn new(faults: Faults, verb: Option<Verb>) -> Self {
        Self {
            faults,
            matcher: Matcher { verb, ..Matcher::default() },
            skip: 0,
            times: usize::MAX,
            may_miss: false,
        }
    }

    /// Only requests for types of this API group; empty for the core group.
    pub fn group(mut self, group: &str) -> Self {
        self.matcher.group = Some(group.to_owned());
        self
    }

    /// Only requests for this type, by its plural name.
    pub fn resource(mut self, plural: &str) -> Self {
        self.matcher.resource = Some(plural.to_owned());
        self
    }

    /// Only requests for this subresource, for example `status`.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.matcher.subresource = Some(subresource.to_owned());
        self
    }

    /// Only requests for the object of this name. A creation has it from the object's body.
    pub fn name(mut self, name: &str) -> Self {
        self.matcher.name = Some(name.to_owned());
        self
    }

    /// Only requests for objects whose names begin so: an event's begins with the name of its object.
    pub fn name_prefix(mut self, prefix: &str) -> Self {
        self.matcher.name_prefix = Some(prefix.to_owned());
        self
    }

    /// The first `n` matching requests go through.
    pub fn skip(mut self, n: usize) -> Self {
        self.skip = n;
        self
    }

    /// Only `n` requests are hit; without this the fault lasts until it is cleared.
    pub fn times(mut self, n: usize) -> Self {
        self.times = n;
        self
    }

    /// It may end without having hit any request.
    pub fn maybe(mut self) -> Self {
        self.may_miss = true;
        self
    }

    /// The store is not asked; the client gets this error.
    pub fn answer(self, answer: Answer) -> Fault {
        self.put(Outcome::Answer(answer.0))
    }

    /// 403, as when RBAC does not allow it, and in its words.
    pub fn forbid(self) -> Fault {
        self.put(Outcome::Forbid)
    }

    /// The request is handled this much later.
    pub fn latency(self, latency: Duration) -> Fault {
        self.put(Outcome::Latency(latency))
    }

    /// The request is handled when this fault is cleared, and not before.
    pub fn hold(self) -> Fault {
        self.put(Outcome::Hold)
    }

    /// The store does its work at once; the client gets the answer when this fault is cleared, and not
    /// before.
    pub fn hold_answer(self) -> Fault {
        self.put(Outcome::HoldAnswer)
    }

    /// The connection is reset before the store has done anything.
    pub fn reset_before(self) -> Fault {
        self.put(Outcome::ResetBefore)
    }

    /// The store does its work, then the connection is reset: the answer is lost.
    pub fn reset_after(self) -> Fault {
        self.put(Outcome::ResetAfter)
    }

    /// A watch begins as always (200) and then says that its version has expired (410). This happens
    /// to nothing but watches.
    pub fn watch_gone(mut self) -> Fault {
        self.matcher.verb = Some(Verb::Watch);
        self.put(Outcome::WatchGone)
    }

    fn put(self, outcome: Outcome) -> Fault {
        let Self { faults, matcher, skip, times, may_miss } = self;
        let rule = Arc::new(Rule {
            matcher,
            skip,
            times,
            may_miss,
            seen: AtomicUsize::new(0),
            outcome,
            over: Semaphore::new(0),
        });
        faults.lock().push(Arc::clone(&rule));
        Fault { faults, rule }
    }
}

impl Fault {
    /// How many requests it has hit.
    pub fn hits(&self) -> usize {
        self.rule.hit()
    }

    /// Ends it.
    ///
    /// # Panics
    /// When it has hit no request and is no [`FaultBuilder::maybe`].
    pub fn clear(&self) {
        self.faults.lock().retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        self.rule.end();
        assert!(!self.rule.has_missed(), "it hit no request: {:?}", self.rule);
    }
}

impl Rule {
    /// Whether it hits this request; counts it.
    pub(super) fn hits(&self, request: &Request, created_name: Option<&str>) -> bool {
        if !self.matcher.matches(request, created_name) {
            return false;
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        seen >= self.skip && seen - self.skip < self.times
    }

    fn hit(&self) -> usize {
        let seen = self.seen.load(Ordering::Relaxed);
        seen.saturating_sub(self.skip).min(self.times)
    }

    pub(super) fn has_missed(&self) -> bool {
        self.hit() == 0 && !self.may_miss
    }

    /// Releases the requests that it holds.
    pub(super) fn end(&self) {
        self.over.close();
    }

    pub(super) async fn until_over(&self) {
        // No permit is ever added, so this ends with the semaphore.
        let _ = self.over.acquire().await;
    }
}

impl Matcher {
    fn matches(&self, request: &Request, created_name: Option<&str>) -> bool {
        let name = created_name.unwrap_or(&request.name);
        let in_group = |group: &String| match group.as_str() {
            "" => request.path.starts_with("/api/"),
            group => request.path.starts_with(&format!("/apis/{group}/")),
        };
        self.verb.is_none_or(|verb| verb == request.verb)
            && self.group.as_ref().is_none_or(in_group)
            && self.resource.as_ref().is_none_or(|r| *r == request.resource)
            && self.subresource.as_ref().is_none_or(|s| *s == request.subresource)
            && self.name.as_ref().is_none_or(|n| n == name)
            && self.name_prefix.as_ref().is_none_or(|p| name.starts_with(p))
    }
}
