//! Faults at will: what an API server, its network or its caches may do to a client.
//!
//! A fault is a rule: which requests (verb, resource, name, after the first few, so many times)
//! and what happens to them. Rules are asked in the order in which they were made; the first
//! that matches decides, but latencies add to what follows.
//!
//! ```no_run
//! # fn example(control_plane: &control_plane::ControlPlane) {
//! use control_plane::{faults::Answer, requests::Verb};
//!
//! let faults = control_plane.faults();
//! // The first PV is created, then two creations fail, then all is well.
//! let fault = faults.on(Verb::Create).resource("persistentvolumes").skip(1).times(2)
//!     .answer(Answer::code(503).retry_after(1));
//! // ... let the controller run ...
//! assert_eq!(fault.hits(), 2);
//!
//! // From here on, watches of claims hear nothing, while get and list tell the truth.
//! let stale = faults.hold_watches("persistentvolumeclaims");
//! drop(stale); // Now they hear it all, in order.
//! # }
//! ```

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    requests::{Request, Verb},
    status::Status,
};

/// The faults of one control plane; a cheap handle.
#[derive(Debug, Clone)]
pub struct Faults {
    newest: Newest,
    rules: Arc<Mutex<Vec<Arc<Rule>>>>,
    streams: Arc<watch::Sender<Streams>>,
}

/// Tells the resourceVersion of the newest change of all.
#[derive(Clone)]
pub(crate) struct Newest(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Newest {
    pub(crate) fn new(tell: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Newest")
    }
}

/// An error answer to inject.
#[derive(Debug, Clone)]
pub struct Answer(Status);

/// A fault being described; one of its last methods puts it in force.
#[derive(Debug, Clone)]
#[must_use = "a fault is in force once it is told what happens"]
pub struct FaultBuilder {
    faults: Faults,
    matcher: Matcher,
    skip: usize,
    times: usize,
}

/// A fault in force. It stays so when this is dropped, so nobody has to keep it.
#[derive(Debug, Clone)]
pub struct Fault {
    faults: Faults,
    rule: Arc<Rule>,
}

/// Watches of one resource held back; dropping this lets everything through, in order.
#[derive(Debug)]
#[must_use = "dropping it releases the watches"]
pub struct Hold {
    faults: Faults,
    resource: String,
}

#[derive(Debug, Clone, Default)]
struct Matcher {
    verb: Option<Verb>,
    group: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
}

#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    skip: usize,
    times: usize,
    seen: AtomicUsize,
    outcome: Outcome,
}

/// What happens to a request.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Answer(Status),
    Forbid,
    Latency(Duration),
    ResetBefore,
    ResetAfter,
    WatchGone,
}

/// What a request has coming.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) latency: Duration,
    pub(crate) outcome: Option<Outcome>,
}

/// The state of running watches, by plural resource name.
pub(crate) type Streams = HashMap<String, Stream>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// How often the watches were cut.
    pub(crate) cuts: u64,
    /// Events after this version are held back.
    pub(crate) held_after: Option<u64>,
    /// Events come this much later.
    pub(crate) delay: Duration,
}

impl Answer {
    /// An HTTP error by its code, with the reason that Kubernetes pairs with it.
    #[must_use]
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
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    /// The text of the error.
    #[must_use]
    pub fn message(mut self, message: &str) -> Self {
        message.clone_into(&mut self.0.message);
        self
    }
}

#[expect(
    clippy::must_use_candidate,
    reason = "a fault is in force whether or not it is kept"
)]
impl FaultBuilder {
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
        let Self {
            faults,
            matcher,
            skip,
            times,
        } = self;
        let rule = Arc::new(Rule {
            matcher,
            skip,
            times,
            seen: AtomicUsize::new(0),
            outcome,
        });
        faults.lock().push(Arc::clone(&rule));
        Fault { faults, rule }
    }
}

impl Fault {
    /// How many requests it has hit.
    #[must_use]
    pub fn hits(&self) -> usize {
        let seen = self.rule.seen.load(Ordering::Relaxed);
        seen.saturating_sub(self.rule.skip).min(self.rule.times)
    }

    /// Ends it.
    pub fn clear(&self) {
        self.faults
            .lock()
            .retain(|rule| !Arc::ptr_eq(rule, &self.rule));
    }
}

impl Hold {
    /// Lets everything through, in order; the same as dropping it.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.faults.stream(&self.resource, |stream| {
            stream.held_after = None;
            stream.delay = Duration::ZERO;
        });
    }
}

impl Faults {
    pub(crate) fn new(newest: Newest) -> Self {
        let (streams, _) = watch::channel(Streams::new());
        Self {
            newest,
            rules: Arc::default(),
            streams: Arc::new(streams),
        }
    }

    /// Begins a fault for one verb.
    pub fn on(&self, verb: Verb) -> FaultBuilder {
        let mut fault = self.on_any();
        fault.matcher.verb = Some(verb);
        fault
    }

    /// Begins a fault for every verb.
    pub fn on_any(&self) -> FaultBuilder {
        let (faults, matcher) = (self.clone(), Matcher::default());
        FaultBuilder {
            faults,
            matcher,
            skip: 0,
            times: usize::MAX,
        }
    }

    /// Ends all faults and releases all watches.
    pub fn clear(&self) {
        self.lock().clear();
        self.streams.send_modify(|streams| {
            for stream in streams.values_mut() {
                stream.held_after = None;
                stream.delay = Duration::ZERO;
            }
        });
    }

    /// Breaks the connections of all watches of a resource that run now.
    pub fn cut_watches(&self, resource: &str) {
        self.stream(resource, |stream| stream.cuts += 1);
    }

    /// Makes watches of a resource stale: what happens from now on is not told until the hold is
    /// dropped. Watches begun meanwhile see the state of this moment (behind a [`Front`], what has
    /// changed since is missing from it); get and list stay fresh.
    ///
    /// # Panics
    /// When the API server behind a front does not answer: what to hold is not known then.
    ///
    /// [`Front`]: crate::Front
    pub fn hold_watches(&self, resource: &str) -> Hold {
        let now = (self.newest.0)();
        self.stream(resource, |stream| stream.held_after = Some(now));
        Hold {
            faults: self.clone(),
            resource: resource.to_owned(),
        }
    }

    /// Makes watches of a resource hear of everything this much later, until the hold is dropped.
    pub fn delay_watches(&self, resource: &str, delay: Duration) -> Hold {
        self.stream(resource, |stream| stream.delay = delay);
        Hold {
            faults: self.clone(),
            resource: resource.to_owned(),
        }
    }

    pub(crate) fn streams(&self) -> watch::Receiver<Streams> {
        self.streams.subscribe()
    }

    /// How often the watches of a resource have been cut.
    pub(crate) fn cuts(&self, resource: &str) -> u64 {
        let streams = self.streams.borrow();
        streams.get(resource).map_or(0, |stream| stream.cuts)
    }

    /// What this request has coming; counts it.
    pub(crate) fn judge(&self, request: &Request, created_name: Option<&str>) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in self.lock().iter() {
            if !rule.matcher.matches(request, created_name) {
                continue;
            }
            let seen = rule.seen.fetch_add(1, Ordering::Relaxed);
            if seen < rule.skip || seen - rule.skip >= rule.times {
                continue;
            }
            match &rule.outcome {
                Outcome::Latency(latency) => verdict.latency += *latency,
                outcome => {
                    verdict.outcome = Some(outcome.clone());
                    break;
                }
            }
        }
        verdict
    }

    /// Whether any rule cares about the names of created objects, which cost a look at the body.
    pub(crate) fn wants_names(&self) -> bool {
        self.lock().iter().any(|rule| rule.matcher.name.is_some())
    }

    fn stream(&self, resource: &str, change: impl FnOnce(&mut Stream)) {
        self.streams
            .send_modify(|streams| change(streams.entry(resource.to_owned()).or_default()));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
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
            && self
                .resource
                .as_ref()
                .is_none_or(|r| *r == request.resource)
            && self
                .subresource
                .as_ref()
                .is_none_or(|s| *s == request.subresource)
            && self.name.as_ref().is_none_or(|n| n == name)
    }
}
