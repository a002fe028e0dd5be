//! What happened to one resource type lately: the events that a watch may still ask for, and
//! the way back to an earlier listing.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{
    status::Status,
    store::{Stored, Written},
};

/// Objects by namespace and name.
pub(crate) type Objects = BTreeMap<(Arc<str>, Arc<str>), Arc<Stored>>;

/// The latest writes of one resource type, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Written>,
    capacity: usize,
    /// Nothing at or before this version is known any more.
    compacted: u64,
}

impl History {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { events: VecDeque::new(), capacity, compacted: 0 }
    }

    pub(crate) fn push(&mut self, event: Written) {
        self.events.push_back(event);
        while self.events.len() > self.capacity {
            if let Some(oldest) = self.events.pop_front() {
                self.compacted = oldest.resource_version;
            }
        }
    }

    /// What was written after `version`, or 410 when some of it is forgotten.
    pub(crate) fn since(
        &self,
        version: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Written>, Status> {
        if version < self.compacted {
            return Err(Status::gone(format!(
                "too old resource version: {version} ({})",
                self.compacted
            )));
        }
        let first = self.events.partition_point(|e| e.resource_version <= version);
        Ok(self.events.range(first..))
    }

    /// Turns today's objects into those of `version` by undoing what came later.
    pub(crate) fn rewind(&self, version: u64, objects: &mut Objects) -> Result<(), Status> {
        for event in self.since(version)?.rev() {
            let Stored { namespace, name, .. } = &*event.object;
            let key = (Arc::clone(namespace), Arc::clone(name));
            match &event.previous {
                Some(previous) => objects.insert(key, Arc::clone(previous)),
                None => objects.remove(&key),
            };
        }
        Ok(())
    }
}
