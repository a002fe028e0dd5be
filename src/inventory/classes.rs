//! The inventory of all classes: one actor for each, with its last published scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::config::Class;
use crate::types::HostPath;

use super::{Disks, Observation, Scanner};

/// The number of periods after which an inventory no longer counts as complete.
const MAX_AGE: u32 = 3;

/// The delay between an event and the scan, so that one scan serves several events.
const COALESCE: Duration = Duration::from_millis(20);

/// The paths that have PVs or are being cleaned; `None` while the PVs are not known.
pub type Taken = Option<Arc<BTreeSet<HostPath>>>;

/// The result of an actor's scan.
#[derive(Debug)]
struct Scanned {
    observation: Observation,
    /// When the scan began.
    begun: Instant,
}

/// The actors of all classes.
#[derive(Debug)]
pub struct Inventory {
    actors: BTreeMap<String, Handle>,
    disks: Arc<dyn Disks>,
    wake: Arc<Notify>,
    period: Duration,
}

/// An actor. It ends when this is dropped, or after the scan that is under way.
#[derive(Debug)]
struct Handle {
    class: Arc<Class>,
    started: Instant,
    taken: watch::Sender<Taken>,
    published: watch::Receiver<Option<Scanned>>,
    /// When which paths were no longer taken, until a scan has begun after that.
    freed: BTreeMap<HostPath, Instant>,
}

/// The last observations of all classes.
#[derive(Debug, Default)]
pub struct Observed {
    /// By class name.
    pub classes: BTreeMap<String, Observation>,
    /// Paths that were taken at the last scan, and are free now. They must not be offered before the next scan.
    pub outdated: BTreeSet<HostPath>,
}

impl Inventory {
    /// Creates an inventory without classes. `wake` is notified when the inventory of a class has changed. Each
    /// class is scanned at least once per `period`.
    pub fn new(disks: Arc<dyn Disks>, wake: Arc<Notify>, period: Duration) -> Self {
        Self { actors: BTreeMap::new(), disks, wake, period }
    }

    /// Starts and stops actors for these classes. A class with changed settings is a new one: the same names may
    /// be other disks.
    pub fn serve(&mut self, classes: &BTreeMap<String, Arc<Class>>) {
        self.actors.retain(|name, actor| classes.get(name) == Some(&actor.class));
        for (name, class) in classes {
            self.actors.entry(name.clone()).or_insert_with(|| {
                let (send_taken, taken) = watch::channel(None);
                let (publish, published) = watch::channel(None);
                let (scanner, wake) = (self.disks.scanner(class), Arc::clone(&self.wake));
                tokio::spawn(scan_repeatedly(scanner, taken, publish, wake, self.period));
                Handle {
                    class: Arc::clone(class),
                    started: Instant::now(),
                    taken: send_taken,
                    published,
                    freed: BTreeMap::new(),
                }
            });
        }
    }

    /// Sets the paths that have PVs or are being cleaned. Classes in which a path was freed are scanned again.
    pub fn set_taken(&mut self, paths: &BTreeSet<HostPath>) {
        for actor in self.actors.values_mut() {
            let dir = &actor.class.host_dir;
            let here = paths.iter().filter(|path| path.child_of(dir).is_some());
            let now: BTreeSet<_> = here.cloned().collect();
            let begun = actor.published.borrow().as_ref().map(|last| last.begun);
            let freed = &mut actor.freed;
            freed.retain(|_, at| begun.is_none_or(|it| it <= *at));
            actor.taken.send_if_modified(|taken| {
                let before = taken.take();
                let gone = before.iter().flat_map(|it| it.difference(&now));
                let gone: Vec<_> = gone.map(|path| (path.clone(), Instant::now())).collect();
                let must_scan = before.is_none() || !gone.is_empty();
                freed.extend(gone);
                *taken = Some(Arc::new(now));
                must_scan
            });
        }
    }

    /// Records that these entries have just changed, so that only the next scan of them counts.
    pub fn outdate(&mut self, paths: &BTreeSet<HostPath>) {
        for actor in self.actors.values_mut() {
            let dir = &actor.class.host_dir;
            let here = paths.iter().filter(|path| path.child_of(dir).is_some());
            let now = Instant::now();
            let changed: Vec<_> = here.map(|path| (path.clone(), now)).collect();
            if !changed.is_empty() {
                actor.freed.extend(changed);
                actor.taken.send_modify(|_| {});
            }
        }
    }

    /// Waits for the first scans of classes that were started less than `limit` ago.
    pub async fn settle(&mut self, limit: Duration) {
        for actor in self.actors.values_mut() {
            let first = actor.published.wait_for(Option::is_some);
            let _ = tokio::time::timeout_at(actor.started + limit, first).await;
        }
    }

    /// The last observations. Never waits.
    pub fn observe(&self) -> Observed {
        let mut observed = Observed::default();
        for (name, actor) in &self.actors {
            let observation = if let Some(last) = &*actor.published.borrow() {
                let is_fresh = last.begun.elapsed() < self.period * MAX_AGE;
                let mut observation = last.observation.clone();
                observation.complete &= is_fresh;
                observation
            } else {
                let fault = "its directory is being looked at for the first time";
                Observation::failed(fault.to_owned())
            };
            observed.classes.insert(name.clone(), observation);
            observed.outdated.extend(actor.freed.keys().cloned());
        }
        observed
    }
}

/// Scans at once, then after each event, and every period. Ends when the inventory drops the class. `wake` is notified
/// when the main loop should look at what was published.
async fn scan_repeatedly(
    mut scanner: Box<dyn Scanner>,
    mut taken: watch::Receiver<Taken>,
    publish: watch::Sender<Option<Scanned>>,
    wake: Arc<Notify>,
    period: Duration,
) {
    let mut has_event = true;
    loop {
        let begun = Instant::now();
        let paths = taken.borrow_and_update().clone();
        let observation = scanner.scan(&paths).await;
        let mut is_news = has_event;
        publish.send_modify(|last| {
            is_news |= last.as_ref().is_none_or(|last| last.observation != observation);
            *last = Some(Scanned { observation, begun });
        });
        if is_news {
            wake.notify_one();
        }
        let took = begun.elapsed();
        has_event = tokio::select! {
            biased;
            taken = taken.changed() => match taken {
                Ok(()) => true,
                Err(_) => return,
            },
            () = scanner.changed() => true,
            () = tokio::time::sleep(period) => false,
        };
        if has_event {
            // A slow scan is followed by a pause of the same length.
            tokio::time::sleep(COALESCE.max(took)).await;
        }
    }
}

#[cfg(test)]
mod tests;
