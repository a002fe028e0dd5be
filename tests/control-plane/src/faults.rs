//! Faults at will: what an API server, its network or its caches may do to a client.
//!
//! A fault is a rule: which requests (verb, resource, name, after the first few, so many times)
//! and what happens to them. Rules are asked in the order in which they were made; the first
//! that matches decides, but latencies and holds add to what follows.
//!
//! A fault that hits nothing tests nothing: to end it is a panic, by hand or with its control plane. So is to
//! release watches that had nothing to hear. Where a miss is legitimate, the rule says [`FaultBuilder::maybe`].
//!
//! ```
//! use control_plane::{ControlPlane, Options, faults::Answer, requests::Verb};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, Client, Config, api::PostParams};
//! use serde_json::{from_value, json};
//!
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! let control_plane = ControlPlane::start(Options::default())?;
//! let mut config = Config::new(control_plane.url().parse()?);
//! config.default_retry = false; // this client's user looks at errors itself
//! let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config)?);
//! let map = from_value(json!({"metadata": {"name": "settings"}}))?;
//!
//! // The first creation is forbidden, the next is done but its answer lost.
//! let faults = control_plane.faults();
//! let denied = faults.on(Verb::Create).resource("configmaps").times(1).forbid();
//! let lost = faults.on(Verb::Create).resource("configmaps").times(1).reset_after();
//! let mut outcomes = Vec::new();
//! loop {
//!     match maps.create(&PostParams::default(), &map).await {
//!         Ok(_) => break,
//!         Err(kube::Error::Api(status)) if status.code == 409 => break, // it is there
//!         Err(kube::Error::Api(status)) => outcomes.push(status.code.to_string()),
//!         Err(_) => outcomes.push("lost".to_owned()),
//!     }
//! }
//! assert_eq!(outcomes, ["403", "lost"]);
//! assert_eq!((denied.hits(), lost.hits()), (1, 1));
//!
//! // Another client is always first: after two conflicts the update goes through.
//! let conflict = faults.on(Verb::Update).name("settings").times(2).answer(Answer::code(409));
//! let mut tries = 1;
//! loop {
//!     let newest = maps.get("settings").await?;
//!     match maps.replace("settings", &PostParams::default(), &newest).await {
//!         Ok(_) => break,
//!         Err(kube::Error::Api(status)) if status.code == 409 => tries += 1,
//!         Err(error) => return Err(error.into()),
//!     }
//! }
//! assert_eq!((tries, conflict.hits()), (3, 2));
//!
//! # Ok(())
//! # }
//! ```
//!
//! [`Faults::hold_watches`] makes watches hear nothing, while get and list tell the truth.

mod rule;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{Notify, futures::Notified};

use self::rule::Rule;
pub use self::rule::{Answer, Fault, FaultBuilder};
use crate::{
    requests::{Request, Verb},
    status::Status,
};

/// The faults of one control plane; a cheap handle.
#[derive(Debug, Clone)]
pub struct Faults {
    newest: Newest,
    rules: Arc<Mutex<Vec<Arc<Rule>>>>,
    streams: Arc<Streams>,
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

/// For how long a hold waits for an event that is on its way to the watches.
const ON_ITS_WAY: Duration = Duration::from_secs(30);

/// Watches of one resource held back; dropping this lets everything through, in order.
#[derive(Debug)]
#[must_use = "dropping it releases the watches"]
pub struct Hold {
    faults: Faults,
    resource: String,
    hits: Arc<AtomicUsize>,
}

/// Faults whose rules must all have hit something by the time this is dropped.
#[derive(Debug)]
pub(crate) struct MustHit(pub(crate) Faults);

impl Drop for MustHit {
    fn drop(&mut self) {
        let missed = self.0.missed();
        assert!(
            missed.is_empty() || thread::panicking(),
            "these faults hit no request: {missed:#?}"
        );
    }
}

/// What happens to a request.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Answer(Status),
    Forbid,
    Latency(Duration),
    Hold,
    HoldAnswer,
    ResetBefore,
    ResetAfter,
    WatchGone,
}

/// What a request has coming.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    latency: Duration,
    holds: Vec<Arc<Rule>>,
    answer_holds: Vec<Arc<Rule>>,
    pub(crate) outcome: Option<Outcome>,
}

impl Verdict {
    /// Waits until the request may be handled.
    pub(crate) async fn wait(&self) {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        for hold in &self.holds {
            hold.until_over().await;
        }
    }

    /// Waits until the request, which was handled, may be answered.
    pub(crate) async fn wait_to_answer(&self) {
        for hold in &self.answer_holds {
            hold.until_over().await;
        }
    }
}

/// The state of running watches.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    by_plural: Mutex<HashMap<String, Stream>>,
    /// Wakes in the order of the waiters, which a channel does not: a simulation has to be the same each time.
    changed: Notify,
}

impl Streams {
    /// The state of the watches of a resource, by its plural name.
    pub(crate) fn of(&self, plural: &str) -> Stream {
        self.lock().get(plural).cloned().unwrap_or_default()
    }

    /// Waits for the next change, from the first poll on.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, Stream>)) {
        change(&mut self.lock());
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Stream>> {
        self.by_plural.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    /// How often the watches were cut.
    pub(crate) cuts: u64,
    /// Events after this version are held back.
    pub(crate) held_after: Option<u64>,
    /// How many events came later by the hold in force.
    pub(crate) hits: Arc<AtomicUsize>,
}

impl Hold {
    /// Lets everything through, in order; the same as dropping it.
    pub fn release(self) {}

    fn has_hit(&self) -> bool {
        let limit = Instant::now() + ON_ITS_WAY;
        while self.hits.load(Ordering::Relaxed) == 0 && Instant::now() < limit {
            thread::sleep(Duration::from_millis(5));
        }
        self.hits.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let resource = &self.resource;
        assert!(
            thread::panicking() || self.has_hit(),
            "no watch of {resource} had anything to hear while it was held"
        );
        self.faults.stream(&self.resource, |stream| stream.held_after = None);
    }
}

impl Faults {
    pub(crate) fn new(newest: Newest) -> Self {
        Self { newest, rules: Arc::default(), streams: Arc::default() }
    }

    /// Begins a fault for one verb.
    pub fn on(&self, verb: Verb) -> FaultBuilder {
        FaultBuilder::new(self.clone(), Some(verb))
    }

    /// Begins a fault for every verb.
    pub fn on_any(&self) -> FaultBuilder {
        FaultBuilder::new(self.clone(), None)
    }

    /// Ends all faults and releases all watches.
    pub fn clear(&self) {
        let missed = self.missed();
        for rule in self.lock().drain(..) {
            rule.end();
        }
        self.streams.change(|streams| {
            for stream in streams.values_mut() {
                stream.held_after = None;
            }
        });
        assert!(missed.is_empty(), "these faults hit no request: {missed:#?}");
    }

    /// The faults in force that have hit no request, and are no [`FaultBuilder::maybe`].
    pub fn missed(&self) -> Vec<String> {
        let rules = self.lock();
        let missed = rules.iter().filter(|rule| rule.has_missed());
        missed.map(|rule| format!("{rule:?}")).collect()
    }

    /// Breaks the connections of all watches of a resource that run now.
    pub fn cut_watches(&self, resource: &str) {
        self.stream(resource, |stream| stream.cuts += 1);
    }

    /// Makes watches of a resource stale: what happens from now on is not sent until the hold is
    /// dropped. Watches begun meanwhile see the state of this moment (behind a [`Front`], what has
    /// changed since is missing from it); get and list stay fresh.
    ///
    /// # Panics
    /// When the API server behind a front does not answer: what to hold is not known then.
    ///
    /// [`Front`]: crate::Front
    pub fn hold_watches(&self, resource: &str) -> Hold {
        let now = (self.newest.0)();
        let hits = Arc::<AtomicUsize>::default();
        self.stream(resource, |stream| {
            stream.hits = Arc::clone(&hits);
            stream.held_after = Some(now);
        });
        Hold { faults: self.clone(), resource: resource.to_owned(), hits }
    }

    /// Moves the clients of a resource to an API server whose caches lag by so many revisions of the store: watches are
    /// cut, and new ones and lists with `resourceVersion=0` see that state until [`Faults::catch_up`]. A history that
    /// is too short is shown whole.
    pub fn lag(&self, resource: &str, revisions: u64) {
        let now = (self.newest.0)();
        self.stream(resource, |stream| {
            stream.cuts += 1;
            stream.held_after = Some(now.saturating_sub(revisions).max(1));
        });
    }

    /// The caches have caught up: what watches did not see yet is sent, in order.
    pub fn catch_up(&self, resource: &str) {
        self.stream(resource, |stream| stream.held_after = None);
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The state of the watches of a resource.
    pub(crate) fn stream_of(&self, resource: &str) -> Stream {
        self.streams.of(resource)
    }

    /// What this request has coming; counts it.
    pub(crate) fn judge(&self, request: &Request, created_name: Option<&str>) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in self.lock().iter() {
            if !rule.hits(request, created_name) {
                continue;
            }
            match &rule.outcome {
                Outcome::Latency(latency) => verdict.latency += *latency,
                Outcome::Hold => verdict.holds.push(Arc::clone(rule)),
                Outcome::HoldAnswer => verdict.answer_holds.push(Arc::clone(rule)),
                outcome => {
                    verdict.outcome = Some(outcome.clone());
                    break;
                }
            }
        }
        verdict
    }

    /// Whether a rule forbids to create objects of a resource; counts the request.
    pub(crate) fn forbids_creation(&self, resource: &str) -> bool {
        let asked = Request::to_create(resource);
        matches!(self.judge(&asked, None).outcome, Some(Outcome::Forbid))
    }

    fn stream(&self, resource: &str, change: impl FnOnce(&mut Stream)) {
        self.streams.change(|streams| change(streams.entry(resource.to_owned()).or_default()));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
