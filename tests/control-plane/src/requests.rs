//! Every request that came in, so that tests can assert on API traffic.
//!
//! ```
//! use std::time::Duration;
//! use control_plane::{ControlPlane, Options, requests::Verb};
//! use k8s_openapi::api::core::v1::Node;
//! use kube::{Api, Client, Config};
//!
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! let control_plane = ControlPlane::start(Options::default())?;
//! let client = Client::try_from(Config::new(control_plane.url().parse()?))?;
//! let requests = control_plane.requests();
//!
//! Api::<Node>::all(client).list(&Default::default()).await?;
//! assert_eq!(requests.count(|r| r.verb == Verb::List && r.resource == "nodes"), 1);
//! assert_eq!(requests.count(|r| r.writes()), 0);
//!
//! // An idle second makes no request.
//! let mark = requests.mark();
//! tokio::time::sleep(Duration::from_secs(1)).await;
//! assert!(requests.since(mark).is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! The controllers here work on the store itself, so that what is on record is the clients' alone.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// What a request does, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object, or a subresource of it.
    Get,
    /// A collection.
    List,
    /// What happens to a collection.
    Watch,
    /// A new object (POST).
    Create,
    /// An object as a whole (PUT).
    Update,
    /// Part of an object (PATCH), server-side apply too.
    Patch,
    /// One object.
    Delete,
    /// All objects of a collection.
    DeleteCollection,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        })
    }
}

/// One request.
#[derive(Debug)]
pub struct Request {
    /// What it does.
    pub verb: Verb,
    /// Plural name of the type; empty for discovery, health and the like.
    pub resource: String,
    /// `status` and the like; empty for the object itself.
    pub subresource: String,
    /// Namespace; empty for cluster-scoped types and lists over all namespaces.
    pub namespace: String,
    /// Name of the object; empty for collections (and for a watch of one object by selector).
    pub name: String,
    /// Path and query as they were sent.
    pub path: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// The user whom the client impersonates (`Impersonate-User`); empty for none.
    pub user: String,
    /// When its head had been read.
    pub at: Instant,
    pub(crate) status: AtomicU16,
    pub(crate) bytes: Arc<AtomicU64>,
}

impl Request {
    /// The creation of an object of a resource, as an access review describes it.
    pub(crate) fn to_create(resource: &str) -> Self {
        Self {
            verb: Verb::Create,
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            path: String::new(),
            user_agent: String::new(),
            user: String::new(),
            at: Instant::now(),
            status: 0.into(),
            bytes: Arc::default(),
        }
    }

    /// HTTP status of the answer; 0 while there is none, or if the connection was reset.
    pub fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    /// Bytes of the answer's body so far; a watch goes on counting while it streams.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it could change anything.
    pub fn writes(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, path, .. } = self;
        write!(f, "{verb} {path} {} ({} bytes)", self.status(), self.bytes())
    }
}

/// A moment in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The log of requests; a cheap handle.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    log: Arc<Mutex<Log>>,
    arrived: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Log {
    /// How many were dropped from the front.
    dropped: u64,
    kept: VecDeque<Arc<Request>>,
}

/// A control plane may run for days; no test asserts on more than this.
const KEPT: usize = 200_000;

impl Requests {
    pub(crate) fn record(&self, request: Request) -> Arc<Request> {
        let request = Arc::new(request);
        let mut log = self.lock();
        log.kept.push_back(Arc::clone(&request));
        if log.kept.len() > KEPT {
            log.kept.pop_front();
            log.dropped += 1;
        }
        drop(log);
        self.arrived.notify_waiters();
        request
    }

    /// Now, for [`Requests::since`].
    pub fn mark(&self) -> Mark {
        let log = self.lock();
        Mark(log.dropped + log.kept.len() as u64)
    }

    /// Everything that came after `mark`, oldest first.
    pub fn since(&self, mark: Mark) -> Vec<Arc<Request>> {
        let log = self.lock();
        let skip = usize::try_from(mark.0.saturating_sub(log.dropped)).unwrap_or(usize::MAX);
        log.kept.iter().skip(skip).cloned().collect()
    }

    /// Everything so far, oldest first.
    pub fn all(&self) -> Vec<Arc<Request>> {
        self.since(Mark(0))
    }

    /// How many requests so far satisfy `wanted`.
    pub fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.lock().kept.iter().filter(|r| wanted(r)).count()
    }

    /// Waits until some request after `mark` satisfies `wanted`; `None` if none does in time.
    pub async fn wait_for(
        &self,
        mark: Mark,
        timeout: Duration,
        wanted: impl Fn(&Request) -> bool,
    ) -> Option<Arc<Request>> {
        let search = async {
            loop {
                let arrived = self.arrived.notified();
                tokio::pin!(arrived);
                // Registered before looking, so that nothing slips through in between.
                arrived.as_mut().enable();
                if let Some(found) = self.since(mark).into_iter().find(|r| wanted(r)) {
                    return found;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(timeout, search).await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
