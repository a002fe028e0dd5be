//! The object store: JSON objects by resource, namespace and name under one increasing
//! resourceVersion, and everything that an API server does to an object on its way in.
//!
//! One lock guards it all, so what a subscriber hears is exactly the order of the writes.

mod state;
mod stored;
mod types;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::state::State;
pub use self::{
    stored::Events,
    types::{DeleteOptions, Event, EventKind, Listing, Part},
};
pub(crate) use self::{
    stored::{Shelf, Stored, Written},
    types::Subscription,
};
use crate::{
    deletion::{self, Fate},
    history::Objects,
    meta, names,
    resource::{self, Resource},
    status::Status,
    strategy,
};

/// A cheap handle on the store. It can be used without a server, too: it does to objects what an API
/// server does.
///
/// ```
/// use control_plane::{Store, resource, store::Part};
/// use serde_json::json;
///
/// let store = Store::default();
/// let map = json!({"metadata": {"generateName": "settings-"}, "data": {"a": "1"}});
/// let created = store.create(&resource::CONFIG_MAPS, "default", map)?;
/// let name = created["metadata"]["name"].as_str().unwrap();
/// assert!(name.starts_with("settings-"));
///
/// // The version is that of the creation, and so may change the object once.
/// let update = || store.update(&resource::CONFIG_MAPS, "default", name, {
///     let mut changed = (*created).clone();
///     changed["data"]["a"] = json!("2");
///     changed
/// }, Part::Main);
/// assert_eq!(update()?["data"]["a"], "2");
/// assert_eq!(update().unwrap_err().code, 409);
/// # Ok::<(), control_plane::status::Status>(())
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    state: Arc<Mutex<State>>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Self::DEFAULT_HISTORY)
    }
}

impl Store {
    /// Events kept per resource type by default.
    pub const DEFAULT_HISTORY: usize = 10_000;

    /// A store with the namespaces `default` and `kube-system`, which keeps the last `history`
    /// events of each type for watches.
    pub fn new(history: usize) -> Self {
        let state = State::new(history);
        let store = Self { state: Arc::new(Mutex::new(state)) };
        for name in ["default", "kube-system"] {
            let created =
                store.create(&resource::NAMESPACES, "", json!({"metadata": {"name": name}}));
            debug_assert!(created.is_ok(), "{created:?}");
        }
        store
    }

    /// One object; `ns` is "" for a cluster-scoped type.
    pub fn get(&self, r: &'static Resource, ns: &str, name: &str) -> Result<Arc<Value>, Status> {
        let stored = Arc::clone(self.lock().get(r, ns, name)?);
        Ok(stored.value())
    }

    /// All objects of a type, or those of one namespace.
    pub fn list(&self, r: &'static Resource, ns: Option<&str>) -> Listing {
        let Shelf { items, resource_version } = self.shelf(r, ns);
        Listing { items: items.iter().map(|stored| stored.value()).collect(), resource_version }
    }

    /// [`Store::list`], of objects as they are kept.
    pub(crate) fn shelf(&self, r: &'static Resource, ns: Option<&str>) -> Shelf {
        self.lock().list(r, ns)
    }

    /// The shelf as it was at an earlier version: 410 if the history does not reach back that far.
    pub(crate) fn shelf_at(
        &self,
        r: &'static Resource,
        ns: Option<&str>,
        version: u64,
    ) -> Result<Shelf, Status> {
        let state = self.lock();
        if version == state.revision {
            return Ok(state.list(r, ns));
        }
        let key = |o: &Arc<Stored>| (Arc::clone(&o.namespace), Arc::clone(&o.name));
        let now = state.list(r, None).items;
        let mut objects: Objects = now.into_iter().map(|o| (key(&o), o)).collect();
        if let Some(table) = state.tables.get(r) {
            table.history.rewind(version, &mut objects)?;
        }
        let mut items: Vec<_> = objects.into_values().collect();
        items.retain(|o| ns.is_none_or(|ns| ns == &*o.namespace));
        Ok(Shelf { items, resource_version: version })
    }

    /// Whether no object of any type is left in a namespace.
    pub(crate) fn is_empty(&self, ns: &str) -> bool {
        self.lock().is_empty(ns)
    }

    /// The version of the latest write.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Creates an object: names it if it has a `generateName`, fills in what the API server
    /// fills in, validates it.
    pub fn create(
        &self,
        r: &'static Resource,
        ns: &str,
        mut object: Value,
    ) -> Result<Arc<Value>, Status> {
        strategy::prepare_for_create(r, ns, &mut object)?;
        let mut state = self.lock();
        state.check_namespace(r, ns, meta::name(&object))?;
        if let Some(prefix) = names::generated_from(&object) {
            let free = |name: &String| state.get(r, ns, name).is_err();
            let name = std::iter::repeat_with(|| names::generate(&prefix)).take(8).find(free);
            let name = name.ok_or_else(|| Status::already_exists(r, &prefix))?;
            strategy::set_name(r, &mut object, &name);
        }
        strategy::validate_create(r, &object)?;
        if let Ok(there) = state.get(r, ns, meta::name(&object)) {
            return Err(match meta::name(&object) {
                name if meta::is_terminating(&there.value()) => {
                    Status::still_being_deleted(r, name)
                }
                name => Status::already_exists(r, name),
            });
        }
        Ok(state.commit(EventKind::Added, r, object, None))
    }

    /// Writes an object as it was, with its UID, whether it exists now or not: as a restored etcd has it.
    pub fn restore(&self, r: &'static Resource, object: Value) -> Arc<Value> {
        let mut state = self.lock();
        let (ns, name) = (meta::namespace(&object), meta::name(&object));
        let previous = state.get(r, ns, name).ok().cloned();
        let kind = match previous {
            Some(_) => EventKind::Modified,
            None => EventKind::Added,
        };
        state.commit(kind, r, object, previous)
    }

    /// Replaces one part of an object. A `metadata.resourceVersion` in `object` must be the
    /// current one.
    pub fn update(
        &self,
        r: &'static Resource,
        ns: &str,
        name: &str,
        object: Value,
        part: Part,
    ) -> Result<Arc<Value>, Status> {
        self.modify(r, ns, name, part, |_| Ok(object))
    }

    /// Reads an object, lets `change` make the new one of it, and writes that, all in one step.
    /// The store is locked meanwhile: `change` must not come back to it.
    pub fn modify(
        &self,
        r: &'static Resource,
        ns: &str,
        name: &str,
        part: Part,
        change: impl FnOnce(&Value) -> Result<Value, Status>,
    ) -> Result<Arc<Value>, Status> {
        let mut state = self.lock();
        let stored = Arc::clone(state.get(r, ns, name)?);
        let old = stored.value();
        let mut new = change(&old)?;
        strategy::prepare_for_update(r, &old, &mut new, part)?;
        if new == *old {
            return Ok(old);
        }
        strategy::validate_update(r, &old, &new)?;
        let kind =
            if deletion::is_finished(r, &new) { EventKind::Deleted } else { EventKind::Modified };
        Ok(state.commit(kind, r, new, Some(stored)))
    }

    /// Deletes an object, or marks it as terminating where finalizers or a grace period want
    /// that. Answers its last or its new state.
    pub fn delete(
        &self,
        r: &'static Resource,
        ns: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Arc<Value>, Status> {
        let mut state = self.lock();
        let stored = Arc::clone(state.get(r, ns, name)?);
        let old = stored.value();
        let fate = deletion::decide(r, &old, options)?;
        let (kind, object) = match fate {
            Fate::Stays => return Ok(old),
            Fate::Terminates(object) => (EventKind::Modified, object),
            Fate::Goes(object) => (EventKind::Deleted, object),
        };
        Ok(state.commit(kind, r, object, Some(stored)))
    }

    /// Gives the namespace kube-system the UID that it has in another store, as in a copy of that cluster.
    pub fn copy_cluster_uid(&self, of: &Self) -> Result<(), Status> {
        let (r, name) = (&resource::NAMESPACES, "kube-system");
        let there = of.get(r, "", name)?;
        let mut state = self.lock();
        let stored = Arc::clone(state.get(r, "", name)?);
        let mut copy = Value::clone(&stored.value());
        copy["metadata"]["uid"] = meta::uid(&there).into();
        state.commit(EventKind::Modified, r, copy, Some(stored));
        Ok(())
    }

    /// Every event from now on, in order, of all types.
    pub fn subscribe(&self) -> Events {
        Events(self.listen())
    }

    /// [`Store::subscribe`], of writes as they are kept.
    pub(crate) fn listen(&self) -> UnboundedReceiver<Written> {
        let (sender, receiver) = unbounded_channel();
        self.lock().subscribers.push(sender);
        receiver
    }

    /// Events of one type after `version`: 410 if some of them are forgotten, 504 if the version
    /// lies in the future.
    pub(crate) fn watch(&self, r: &'static Resource, version: u64) -> Result<Subscription, Status> {
        let mut state = self.lock();
        let resource_version = state.revision;
        if version > resource_version {
            return Err(Status::too_large_version(version, resource_version));
        }
        let (sender, live) = unbounded_channel();
        let table = state.table(r);
        let backlog = table.history.since(version)?.cloned().collect();
        table.watchers.push(sender);
        Ok(Subscription { backlog, live, resource_version })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock is a failed test already; the data is still whole,
        // because `commit` cannot panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
