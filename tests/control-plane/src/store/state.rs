//! What is behind the store's lock.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::{EventKind, Shelf, Store, Stored, Written};
use crate::{
    history::History,
    meta,
    resource::{self, Resource},
    status::Status,
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) tables: HashMap<&'static Resource, Table>,
    pub(super) subscribers: Vec<UnboundedSender<Written>>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Namespace, then name: a listing of one namespace reads nothing else.
    objects: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Stored>>>,
    pub(super) history: History,
    pub(super) watchers: Vec<UnboundedSender<Written>>,
}

impl Table {
    fn new(history: usize) -> Self {
        Self { objects: BTreeMap::new(), history: History::new(history), watchers: Vec::new() }
    }
}

impl State {
    pub(super) fn new(history: usize) -> Self {
        let tables = resource::all().iter().map(|&r| (r, Table::new(history))).collect();
        Self { revision: 1, tables, subscribers: Vec::new() }
    }

    pub(super) fn table(&mut self, r: &'static Resource) -> &mut Table {
        self.tables.entry(r).or_insert_with(|| Table::new(Store::DEFAULT_HISTORY))
    }

    pub(super) fn get(
        &self,
        r: &'static Resource,
        ns: &str,
        name: &str,
    ) -> Result<&Arc<Stored>, Status> {
        self.tables
            .get(r)
            .and_then(|t| t.objects.get(ns)?.get(name))
            .ok_or_else(|| Status::not_found(r, name))
    }

    pub(super) fn list(&self, r: &'static Resource, ns: Option<&str>) -> Shelf {
        let objects = self.tables.get(r).map(|t| &t.objects);
        let items = if let Some(ns) = ns {
            let names = objects.and_then(|o| o.get(ns));
            names.into_iter().flat_map(BTreeMap::values).cloned().collect()
        } else {
            let namespaces = objects.into_iter().flat_map(BTreeMap::values);
            namespaces.flat_map(BTreeMap::values).cloned().collect()
        };
        Shelf { items, resource_version: self.revision }
    }

    /// Whether no object of any type is left in a namespace.
    pub(super) fn is_empty(&self, ns: &str) -> bool {
        let mut tables = self.tables.values();
        tables.all(|table| table.objects.get(ns).is_none_or(BTreeMap::is_empty))
    }

    pub(super) fn check_namespace(&self, r: &Resource, ns: &str, name: &str) -> Result<(), Status> {
        if !r.namespaced {
            return Ok(());
        }
        let namespace = self.get(&resource::NAMESPACES, "", ns)?;
        if meta::is_terminating(&namespace.value()) {
            let why = format!(
                "unable to create new content in namespace {ns} because it is being terminated"
            );
            let cause = json!({
                "reason": "NamespaceTerminating",
                "message": format!("namespace {ns} is being terminated"),
                "field": "metadata.namespace",
            });
            let mut status = Status::forbidden(r, name, &why);
            if let Some(details) = &mut status.details {
                details["causes"] = json!([cause]);
            }
            return Err(status);
        }
        Ok(())
    }

    pub(super) fn commit(
        &mut self,
        kind: EventKind,
        r: &'static Resource,
        mut object: Value,
        previous: Option<Arc<Stored>>,
    ) -> Arc<Value> {
        self.revision += 1;
        let resource_version = self.revision;
        meta::metadata_mut(&mut object)
            .insert("resourceVersion".into(), json!(resource_version.to_string()));
        let stored = match &previous {
            Some(previous) => previous.next(&object),
            None => Stored::new(&object),
        };
        let written =
            Written { kind, resource: r, object: Arc::new(stored), previous, resource_version };

        let table = self.table(r);
        let Stored { namespace, name, .. } = &*written.object;
        if kind == EventKind::Deleted {
            if let Some(names) = table.objects.get_mut(namespace) {
                names.remove(name);
            }
        } else {
            let names = table.objects.entry(Arc::clone(namespace)).or_default();
            names.insert(Arc::clone(name), Arc::clone(&written.object));
        }
        table.watchers.retain(|w| w.send(written.clone()).is_ok());
        self.subscribers.retain(|s| s.send(written.clone()).is_ok());
        self.table(r).history.push(written);
        Arc::new(object)
    }
}
