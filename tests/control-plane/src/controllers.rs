//! The controllers; they live on the store as kube-controller-manager, kube-scheduler and a
//! kubelet live on their API server.
//!
//! One task hears of every write, keeps a cache and hands keys to work queues; between two
//! keys it takes in what was written meanwhile. So the controllers see each other's work at once,
//! need no lock, and an event costs microseconds. Every controller is a pair of functions:
//! `observe` turns a change into keys, `sync` looks at the current state of one key and writes the
//! next step. What the key was queued for does not matter, so any step may be repeated.
//!
//! A pod on a node of this control plane becomes Running once its claims are bound. As a rule it
//! runs nothing: annotations tell it to end, or to stay where it is ([`RUN`],
//! [`HOLD_TERMINATION`]). The pods of Jobs can be processes of this machine ([`ProcessOptions`]), and
//! those that empty a volume always are ([`HostPaths`](crate::HostPaths)).

pub(crate) mod cache;
pub(crate) mod conditions;
pub(crate) mod object;
mod options;
pub(crate) mod queue;
mod queues;
mod running;
pub(crate) mod selector;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use serde_json::Value;
use tokio::{sync::mpsc::UnboundedReceiver, time::Instant};

use self::{cache::Cache, object::Key, queue::WorkQueue, queues::Queues};
pub use self::{
    options::ControllerOptions,
    running::{Controllers, spawn},
};
use crate::{
    garbage::{self, Garbage},
    jobs::{self, Jobs},
    meta,
    pods::{self, Kubelet},
    protection,
    pv_controller::{self, reclaim::Reclaims},
    recorder::{Recorder, Severity},
    resource::{self, Resource},
    scheduler::{self, Scheduler},
    status::Status,
    store::{DeleteOptions, Event, EventKind, Part, Store, Written},
};
pub use crate::{
    node::NodeOptions,
    pods::{HOLD_TERMINATION, ProcessOptions, RUN},
};

/// What the controllers hear of: an event of the store, or at their start an object that is there.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: EventKind,
    pub(crate) resource: &'static Resource,
    /// After a deletion the last state, under the deletion's version.
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
}

impl From<Event> for Change {
    fn from(event: Event) -> Self {
        let Event { kind, resource, object, previous, .. } = event;
        Self { kind, resource, object, previous }
    }
}

/// Why a key could not be brought to its next step; the queue tries again after a back-off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot write {kind} {key}: {source}")]
    Write { kind: &'static str, key: Key, source: Status },
    #[error("cannot read {kind} {key}: {source}")]
    Read { kind: &'static str, key: Key, source: Status },
    #[error("claim {claim} was bound to volume {volume}, which belongs to claim {owner}")]
    Claimed { claim: Key, volume: String, owner: Key },
}

/// What the controllers share.
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) cache: Cache,
    pub(crate) queues: Queues,
    pub(crate) recorder: Recorder,
    pub(crate) garbage: Garbage,
    pub(crate) reclaims: Reclaims,
    pub(crate) scheduler: Scheduler,
    pub(crate) kubelet: Kubelet,
    pub(crate) jobs: Jobs,
    pub(crate) options: ControllerOptions,
}

impl Context {
    /// Writes one part of an object and takes the result into the cache at once, so that the next
    /// key already sees it.
    pub(crate) fn update(
        &mut self,
        r: &'static Resource,
        object: Value,
        part: Part,
    ) -> Result<Arc<Value>, SyncError> {
        let key = Key::of(&object);
        let updated = self.write(|store| store.update(r, &key.namespace, &key.name, object, part));
        let stored = updated.map_err(|source| SyncError::Write { kind: r.kind, key, source })?;
        self.cache.store(r, &stored);
        Ok(stored)
    }

    /// All writes go through here; the tests come in between.
    fn write<T>(&self, write: impl FnOnce(&Store) -> Result<T, Status>) -> Result<T, Status> {
        #[cfg(test)]
        tests::disturbance::before_write(&self.store)?;
        write(&self.store)
    }

    /// Reads an object past the cache; `None` if it does not exist.
    pub(crate) fn read(
        &self,
        r: &'static Resource,
        key: &Key,
    ) -> Result<Option<Arc<Value>>, SyncError> {
        match self.store.get(r, &key.namespace, &key.name) {
            Ok(object) => Ok(Some(object)),
            Err(status) if status.is_not_found() => Ok(None),
            Err(source) => Err(SyncError::Read { kind: r.kind, key: key.clone(), source }),
        }
    }

    /// Takes a finalizer off an object; one that is not there any more needs nothing.
    pub(crate) fn release(
        &mut self,
        r: &'static Resource,
        key: &Key,
        finalizer: &str,
    ) -> Result<(), SyncError> {
        let released = self.write(|store| {
            store.modify(r, &key.namespace, &key.name, Part::Main, |old| {
                let mut new = old.clone();
                object::remove_finalizer(&mut new, finalizer);
                Ok(new)
            })
        });
        match released {
            Ok(stored) => self.cache.store(r, &stored),
            Err(status) if status.is_not_found() => {}
            Err(source) => {
                let (kind, key) = (r.kind, key.clone());
                return Err(SyncError::Write { kind, key, source });
            }
        }
        Ok(())
    }

    /// Deletes exactly this object; one that is gone already is as well.
    pub(crate) fn delete(
        &self,
        r: &'static Resource,
        object: &Value,
        options: DeleteOptions,
    ) -> Result<(), SyncError> {
        let key = Key::of(object);
        let options = DeleteOptions { uid: Some(meta::uid(object).to_owned()), ..options };
        match self.write(|store| store.delete(r, &key.namespace, &key.name, &options)) {
            Err(source) if !source.is_not_found() => {
                let kind = r.kind;
                Err(SyncError::Write { kind, key, source })
            }
            _ => Ok(()),
        }
    }

    /// Records an event of the volume controller.
    pub(crate) fn tell(
        &mut self,
        about: (&'static Resource, &Value),
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.tell_as(pv_controller::COMPONENT, about, severity, reason, message);
    }

    /// Records an event of any controller.
    pub(crate) fn tell_as(
        &mut self,
        component: &'static str,
        about: (&'static Resource, &Value),
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let message = message.into();
        self.recorder.record(&self.store, component, about, severity, reason, message);
    }
}

/// The one task.
pub(crate) struct Manager {
    events: UnboundedReceiver<Written>,
    /// Pods of which a process has ended.
    ended: UnboundedReceiver<Key>,
    pub(crate) cx: Context,
}

impl Manager {
    /// Subscribes first and reads everything then, so that nothing is missed in between.
    pub(crate) fn new(store: Store, options: ControllerOptions) -> Self {
        let events = store.listen();
        let (kubelet, ended) = Kubelet::new(&options);
        let cx = Context {
            cache: Cache::default(),
            queues: Queues::default(),
            recorder: Recorder::default(),
            garbage: Garbage::default(),
            reclaims: Reclaims::new(options.host_paths.clone()),
            scheduler: Scheduler::default(),
            kubelet,
            jobs: Jobs::default(),
            options,
            store,
        };
        let mut manager = Self { events, ended, cx };
        for &resource in resource::all() {
            for stored in manager.cx.store.shelf(resource, None).items {
                manager.observe(&Change {
                    kind: EventKind::Added,
                    resource,
                    object: stored.value(),
                    previous: None,
                });
            }
        }
        manager
    }

    async fn run(mut self) {
        let period = self.cx.options.resync;
        let mut resync = Instant::now() + period;
        loop {
            // Where clients write without pause, there is work without end.
            if resync <= Instant::now() {
                self.resync();
                resync = Instant::now() + period;
            }
            if self.work() {
                // Requests are served on the same threads.
                tokio::task::yield_now().await;
                continue;
            }
            let due = self.cx.queues.next_due();
            let due = due.map_or(resync, |due| due.min(resync));
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(written) => self.hear(&written),
                    None => return,
                },
                Some(pod) = self.ended.recv() => self.cx.queues.scheduled.add(pod),
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    /// Works on one key of every queue. `false` if no queue had any, and none got any meanwhile.
    pub(crate) fn work(&mut self) -> bool {
        let mut worked = self.work_on(|q| &mut q.claim_protection, protection::sync_claim);
        worked |= self.work_on(|q| &mut q.volume_protection, protection::sync_volume);
        worked |= self.work_on(|q| &mut q.volumes, pv_controller::volume::sync);
        worked |= self.work_on(|q| &mut q.claims, pv_controller::claim::sync);
        worked |= self.work_on(|q| &mut q.recyclers, pv_controller::recycle::sync);
        worked |= self.work_on(|q| &mut q.unscheduled, scheduler::sync);
        worked |= self.work_on(|q| &mut q.scheduled, pods::sync);
        worked |= self.work_on(|q| &mut q.jobs, jobs::sync);
        worked |= self.work_on(|q| &mut q.garbage, garbage::sync);
        worked |= self.work_on(|q| &mut q.namespaces, garbage::namespace::sync);
        worked
    }

    fn work_on<K: Clone + Eq + std::hash::Hash + Ord>(
        &mut self,
        queue: fn(&mut Queues) -> &mut WorkQueue<K>,
        sync: fn(&mut Context, &K) -> Result<(), SyncError>,
    ) -> bool {
        // It may be for a queue that was passed already.
        let heard = self.hear_all();
        let now = Instant::now().into_std();
        let Some(key) = queue(&mut self.cx.queues).take(now) else {
            return heard;
        };
        let result = sync(&mut self.cx, &key);
        if let Err(error) = &result {
            tracing::debug!(%error, "will be tried again");
        }
        queue(&mut self.cx.queues).done(key, result.is_ok(), now);
        true
    }

    /// Takes in what has happened so far. `false` if nothing has.
    fn hear_all(&mut self) -> bool {
        let mut heard = false;
        while let Ok(written) = self.events.try_recv() {
            self.hear(&written);
            heard = true;
        }
        while let Ok(pod) = self.ended.try_recv() {
            self.cx.queues.scheduled.add(pod);
            heard = true;
        }
        heard
    }

    fn hear(&mut self, written: &Written) {
        // No controller reads events, and they are the most frequent of all objects.
        if written.resource != &resource::EVENTS {
            self.observe(&written.event().into());
        }
    }

    fn observe(&mut self, change: &Change) {
        let Change { kind, resource, object, .. } = change;
        match kind {
            EventKind::Deleted => self.cx.cache.remove(resource, object),
            EventKind::Added | EventKind::Modified => self.cx.cache.store(resource, object),
        }
        pv_controller::observe(&mut self.cx, change);
        pv_controller::recycle::observe(&mut self.cx, change);
        protection::observe(&mut self.cx, change);
        scheduler::observe(&mut self.cx, change);
        pods::observe(&mut self.cx, change);
        jobs::observe(&mut self.cx, change);
        garbage::observe(&mut self.cx, change);
    }

    /// Looks at everything again: the fallback for whatever no event tells of.
    pub(crate) fn resync(&mut self) {
        pv_controller::resync(&mut self.cx);
        scheduler::resync(&mut self.cx);
        pods::resync(&mut self.cx);
        jobs::resync(&mut self.cx);
    }
}
