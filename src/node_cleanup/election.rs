//! Which of several processes acts: the one that holds a Lease, by the rules of client-go.
//!
//! Clocks of different machines are never compared. A follower takes over when it has itself seen the
//! lease unchanged for as long as the lease says; the leader stops acting some seconds before that,
//! counted from before the last renewal was asked for.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::pulse::Pulse;
use crate::cluster::{ApiError, Cluster};

/// How long a lease that is not renewed keeps others out.
const DURATION: Duration = Duration::from_secs(15);
/// How long a leader acts without having renewed it.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause between two tries to take or renew it.
const RETRY: Duration = Duration::from_secs(2);
/// How long one try may take: two must fit in the deadline.
const TRY: Duration = Duration::from_secs(4);
/// How long giving it back may take, which are two requests.
const FAREWELL: Duration = Duration::from_secs(4);

/// Whether we may act, and until when.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Without an election.
    #[must_use]
    pub fn always() -> Self {
        let years = Duration::from_hours(24 * 365 * 30);
        Self(watch::channel(Some(Instant::now() + years)).1)
    }

    fn until(&self) -> Option<Instant> {
        self.0.borrow().filter(|until| *until > Instant::now())
    }

    /// Whether we may act now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.until().is_some()
    }

    /// Lets something run only for as long as we may act, which each renewal prolongs: `None` if it has
    /// not ended by then.
    pub async fn bound<T>(&self, action: impl Future<Output = T>) -> Option<T> {
        let mut leadership = self.clone();
        tokio::select! {
            // Asked first, so that nothing is begun, or gone on with, when we may not.
            biased;
            () = leadership.lost() => None,
            result = action => Some(result),
        }
    }

    /// Waits until we may act.
    pub async fn won(&mut self) {
        while !self.is_held() {
            self.changed().await;
        }
    }

    /// Waits until we may not any more.
    pub async fn lost(&mut self) {
        while let Some(until) = self.until() {
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.changed() => {}
            }
        }
    }

    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left to change it.
            std::future::pending::<()>().await;
        }
    }
}

/// Who takes part, in what.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name.
    pub name: String,
    /// Who we are; no other process may call itself so.
    pub identity: String,
}

/// A name for this process that no other has: that of its pod, with a few digits by chance. A second
/// process of the same name would take the first one's lease for its own.
#[must_use]
pub fn identity(pod: &str) -> String {
    format!("{pod}_{:08x}", RandomState::new().hash_one(()) >> 32)
}

/// What was seen of a lease, by our own clock.
#[derive(Debug)]
struct Sight {
    spec: LeaseSpec,
    since: Instant,
}

impl Sight {
    /// Looks at the lease again.
    fn look(seen: Option<Self>, spec: &LeaseSpec, now: Instant) -> Self {
        match seen {
            Some(seen) if seen.spec == *spec => seen,
            _ => Self {
                spec: spec.clone(),
                since: now,
            },
        }
    }

    /// Who keeps us from taking it.
    fn holder(&self, identity: &str, now: Instant) -> Option<&str> {
        let holder = self.spec.holder_identity.as_deref().unwrap_or_default();
        let seconds = self.spec.lease_duration_seconds.unwrap_or_default();
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).max(DURATION);
        let is_free = holder.is_empty() || holder == identity || now >= self.since + lasts;
        (!is_free).then_some(holder)
    }
}

/// How a try ended.
enum Answer {
    /// It is ours.
    Held,
    /// It is somebody else's.
    HeldBy(String),
}

/// Takes part in the election.
#[derive(Debug)]
pub struct Election {
    cluster: Cluster,
    terms: Terms,
    pulse: Arc<Pulse>,
    send: watch::Sender<Option<Instant>>,
    sight: Option<Sight>,
    /// We have asked for a write of the lease, and have not seen anybody else in it since. An answer
    /// that is lost, or not waited for, tells nothing.
    may_be_ours: bool,
    /// What was said last, so that it is said once.
    said: String,
}

impl Election {
    /// An election that has not begun, and what comes of it.
    #[must_use]
    pub fn new(cluster: Cluster, terms: Terms, pulse: Arc<Pulse>) -> (Self, Leadership) {
        let (send, receive) = watch::channel(None);
        let election = Self {
            cluster,
            terms,
            pulse,
            send,
            sight: None,
            may_be_ours: false,
            said: String::new(),
        };
        (election, Leadership(receive))
    }

    /// Takes part for ever.
    pub async fn run(&mut self) {
        loop {
            self.pulse.beat();
            // From before the request on, so that no other may act while we still do.
            let begun = Instant::now();
            match timeout(TRY, self.attempt()).await {
                Ok(Ok(Answer::Held)) => {
                    if self.send.send_replace(Some(begun + DEADLINE)).is_none() {
                        self.say(format!(
                            "this process, {}, is the leader",
                            self.terms.identity
                        ));
                    }
                }
                Ok(Ok(Answer::HeldBy(other))) => {
                    self.send.send_replace(None);
                    self.say(format!(
                        "{other} is the leader; this process waits for it to end"
                    ));
                }
                Ok(Err(error)) => self.failed(&error.to_string()),
                Err(_) => self.failed(&format!("no answer within {TRY:?}")),
            }
            // Followers that began together must not all ask together for ever.
            let chance = RandomState::new().hash_one(()) % 1000;
            let jitter = if self.is_leader() { 0 } else { chance };
            sleep(RETRY + Duration::from_millis(jitter)).await;
        }
    }

    /// What is held stays so until its time is up.
    fn failed(&mut self, why: &str) {
        let lost = self.send.send_if_modified(|until| {
            let is_up = until.is_some_and(|until| until <= Instant::now());
            if is_up {
                *until = None;
            }
            is_up
        });
        let Terms {
            namespace, name, ..
        } = &self.terms;
        let meanwhile = match (lost, self.is_leader()) {
            (true, _) => "this process is no leader any more",
            (false, true) => "this process is still the leader",
            (false, false) => "this process is no leader",
        };
        self.say(format!(
            "{meanwhile}: taking or renewing Lease {namespace}/{name} failed, and is tried again every {RETRY:?}: {why}"
        ));
    }

    fn is_leader(&self) -> bool {
        self.send.borrow().is_some()
    }

    fn say(&mut self, text: String) {
        if self.said != text {
            tracing::info!("{text}");
            self.said = text;
        }
    }

    async fn attempt(&mut self) -> Result<Answer, ApiError> {
        match self.take().await {
            // Where another has taken it, which can be if it was deleted, we must not lead on beside it
            // until the next try.
            Err(ApiError::Conflict) => self.take().await,
            answer => answer,
        }
    }

    /// Looks at the lease, and writes that it is ours if nobody keeps us from it.
    async fn take(&mut self) -> Result<Answer, ApiError> {
        let Terms {
            namespace,
            name,
            identity,
        } = &self.terms;
        let found = self.cluster.lease(namespace, name).await?;
        let now = Timestamp::now();
        let lease = match found {
            None => Lease {
                metadata: ObjectMeta {
                    namespace: Some(namespace.clone()),
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(ours(identity, now, &LeaseSpec::default())),
            },
            Some(mut lease) => {
                let spec = lease.spec.take().unwrap_or_default();
                let sight = Sight::look(self.sight.take(), &spec, Instant::now());
                let holder = sight.holder(identity, Instant::now()).map(str::to_owned);
                self.sight = Some(sight);
                if let Some(holder) = holder {
                    self.may_be_ours = false;
                    return Ok(Answer::HeldBy(holder));
                }
                lease.spec = Some(ours(identity, now, &spec));
                lease
            }
        };
        self.may_be_ours = true;
        match self.cluster.write_lease(&lease).await {
            Ok(_) => Ok(Answer::Held),
            // Somebody has written to it, or our own last write was late: it may still be ours, which
            // another look shows.
            Err(error @ ApiError::Conflict) if self.is_leader() => Err(error),
            Err(ApiError::Conflict | ApiError::AlreadyExists) => {
                Ok(Answer::HeldBy("another process".into()))
            }
            Err(error) => Err(error),
        }
    }

    /// Stops acting, and lets another process take the lease at once.
    pub async fn resign(&mut self) {
        self.send.send_replace(None);
        if !std::mem::take(&mut self.may_be_ours) {
            return;
        }
        match timeout(FAREWELL, self.give_back()).await {
            Ok(Ok(())) => {}
            // Others wait for it to run out.
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be given back"),
            Err(_) => tracing::warn!("the lease could not be given back within {FAREWELL:?}"),
        }
    }

    /// Reads the lease first, since a write that was broken off may have made a version that we do not
    /// know of. If it does so only now, ours fails, and is tried again.
    async fn give_back(&self) -> Result<(), ApiError> {
        let Terms {
            namespace,
            name,
            identity,
        } = &self.terms;
        loop {
            let Some(mut lease) = self.cluster.lease(namespace, name).await? else {
                return Ok(());
            };
            let held = lease.spec.as_mut();
            let is_ours = |spec: &&mut LeaseSpec| spec.holder_identity.as_ref() == Some(identity);
            let Some(spec) = held.filter(is_ours) else {
                return Ok(());
            };
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            match self.cluster.write_lease(&lease).await {
                Ok(_) => {
                    tracing::info!("the lease is given back");
                    return Ok(());
                }
                Err(ApiError::Conflict) => sleep(FAREWELL / 40).await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The lease as its new holder writes it.
fn ours(identity: &str, now: Timestamp, before: &LeaseSpec) -> LeaseSpec {
    let is_renewal = before.holder_identity.as_deref() == Some(identity);
    let acquired = before.acquire_time.clone().filter(|_| is_renewal);
    let transitions = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions.saturating_add(i32::from(!is_renewal))),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_lease_is_taken_over_by_our_own_clock() {
        let lease = |holder: &str, seconds: i32| LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        };
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let theirs = lease("them", 15);
        let sight = Sight::look(None, &theirs, start);
        assert_eq!(sight.holder("us", after(14)), Some("them"));
        assert_eq!(sight.holder("us", after(15)), None, "it has run out");
        assert_eq!(sight.holder("them", start), None, "it is their own");
        // As long as it is renewed, it does not; whatever time the holder writes into it.
        let mut renewed = theirs.clone();
        renewed.lease_transitions = Some(7);
        let sight = Sight::look(Some(sight), &renewed, after(14));
        assert_eq!(sight.holder("us", after(28)), Some("them"));
        let sight = Sight::look(Some(sight), &renewed, after(28));
        assert_eq!(sight.holder("us", after(29)), None);
        // A holder with another duration gets it, if it is a longer one.
        for (seconds, lasts) in [(60, 60), (1, 15), (-5, 15)] {
            let sight = Sight::look(None, &lease("them", seconds), start);
            assert_eq!(
                sight.holder("us", after(lasts - 1)),
                Some("them"),
                "{seconds}"
            );
            assert_eq!(sight.holder("us", after(lasts)), None, "{seconds}");
        }
        let free = Sight::look(None, &lease("", 1), start);
        assert_eq!(free.holder("us", start), None, "it was given back");
    }

    #[tokio::test]
    async fn what_is_under_way_goes_on_for_as_long_as_the_lease_is_renewed() {
        let until = Instant::now() + Duration::from_secs(2);
        let (renew, receive) = watch::channel(Some(until));
        let leadership = Leadership(receive);
        let hour = Duration::from_hours(1);
        let slow_write = async {
            renew.send_replace(Some(until + hour));
            sleep_until(until + Duration::from_millis(100)).await;
        };
        assert_eq!(leadership.bound(slow_write).await, Some(()));
        let until = Instant::now() + Duration::from_millis(100);
        renew.send_replace(Some(until));
        let never_answered = std::future::pending::<()>();
        assert_eq!(leadership.bound(never_answered).await, None);
        assert!(Instant::now() >= until, "not before its time is up");
        let begun_late = async { panic!("this process is no leader any more") };
        assert_eq!(leadership.bound(begun_late).await, None::<()>);

        renew.send_replace(Some(until + hour));
        let overtaken = async {
            renew.send_replace(None);
            std::future::pending::<()>().await;
        };
        assert_eq!(leadership.bound(overtaken).await, None, "at once");
    }

    #[test]
    fn no_two_processes_are_called_the_same() {
        let names: BTreeSet<_> = (0..100).map(|_| identity("pod")).collect();
        assert_eq!(names.len(), 100);
        assert!(names.iter().all(|name| name.starts_with("pod_")));
    }
}
