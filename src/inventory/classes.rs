//! The inventory of all classes: one actor for each, with its last published scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::Class;
use crate::types::HostPath;

use super::actor::Actor;
use super::{Disks, Observation};

/// The number of periods after which an inventory no longer counts as complete.
const MAX_AGE: u32 = 3;

/// The paths that have PVs or are being cleaned; `None` while the PVs are not known.
pub type Taken = Option<Arc<BTreeSet<HostPath>>>;

/// The result of an actor's scan.
#[derive(Debug)]
pub struct ClassInventory {
    /// The directory's entries.
    pub observation: Observation,
    /// When the scan began.
    pub begun: Instant,
}

/// The actors of all classes.
#[derive(Debug)]
pub struct Inventory {
    actors: BTreeMap<String, Handle>,
    disks: Arc<dyn Disks>,
    wake: Arc<Notify>,
    period: Duration,
}

#[derive(Debug)]
struct Handle {
    class: Arc<Class>,
    taken: watch::Sender<Taken>,
    published: watch::Receiver<Option<Arc<ClassInventory>>>,
    /// When which paths were no longer taken, until a scan has begun after that.
    freed: BTreeMap<HostPath, Instant>,
    /// Whether the first scan was waited for.
    was_awaited: bool,
    task: JoinHandle<()>,
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
    #[must_use]
    pub fn new(disks: Arc<dyn Disks>, wake: Arc<Notify>, period: Duration) -> Self {
        Self {
            actors: BTreeMap::new(),
            disks,
            wake,
            period,
        }
    }

    /// Starts and stops actors for these classes. A class with changed settings is a new one: the same names may
    /// be other disks.
    pub fn serve(&mut self, classes: &BTreeMap<String, Arc<Class>>) {
        self.actors
            .retain(|name, actor| classes.get(name) == Some(&actor.class));
        for (name, class) in classes {
            if !self.actors.contains_key(name) {
                self.actors.insert(name.clone(), self.start(class));
            }
        }
    }

    /// Sets the paths that have PVs or are being cleaned. Classes in which a path was freed are scanned again.
    pub fn set_taken(&mut self, paths: &BTreeSet<HostPath>) {
        for actor in self.actors.values_mut() {
            let dir = &actor.class.host_dir;
            let here = paths.iter().filter(|path| path.child_of(dir).is_some());
            let now: BTreeSet<_> = here.cloned().collect();
            let last = actor.published.borrow().clone();
            let begun = last.map(|last| last.begun);
            actor.freed.retain(|_, at| begun.is_none_or(|it| it <= *at));
            let freed = &mut actor.freed;
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

    fn start(&self, class: &Arc<Class>) -> Handle {
        let (send_taken, taken) = watch::channel(None);
        let (publish, published) = watch::channel(None);
        let actor = Actor {
            scanner: self.disks.scanner(class),
            period: self.period,
            taken,
            published: publish,
            wake: Arc::clone(&self.wake),
        };
        Handle {
            class: Arc::clone(class),
            taken: send_taken,
            published,
            freed: BTreeMap::new(),
            was_awaited: false,
            task: tokio::spawn(actor.run()),
        }
    }

    /// Waits for the first scans of new classes, up to `limit` in all, and only once for each class.
    pub async fn settle(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        for actor in self.actors.values_mut().filter(|it| !it.was_awaited) {
            actor.was_awaited = true;
            let first = actor.published.wait_for(Option::is_some);
            let _ = tokio::time::timeout_at(deadline, first).await;
        }
    }

    /// The last observations. Never waits.
    #[must_use]
    pub fn observe(&self) -> Observed {
        let mut observed = Observed::default();
        for (name, actor) in &self.actors {
            let last = actor.published.borrow().clone();
            let Some(last) = last else {
                let fault = "its directory is being looked at for the first time";
                let nothing = Observation::failed(fault.to_owned());
                observed.classes.insert(name.clone(), nothing);
                continue;
            };
            let mut observation = last.observation.clone();
            observation.complete &= last.begun.elapsed() < self.period * MAX_AGE;
            observed.classes.insert(name.clone(), observation);
            let freed = actor.freed.iter().filter(|(_, at)| last.begun <= **at);
            observed
                .outdated
                .extend(freed.map(|(path, _)| path.clone()));
        }
        observed
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
