//! Events about objects, as `kubectl describe` shows them.
//!
//! An event that repeats is counted on the object that tells of it, as client-go's correlator
//! does, so a claim that waits for a day does not fill the store.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    meta,
    resource::{self, Resource},
    status::Status,
    store::{Part, Store},
};

/// Repetitions are recognised among this many latest events. Ten thousand claims that wait tell so
/// at each resync: if one of them were forgotten meanwhile, the store would fill up.
const REMEMBERED: usize = 32_768;

/// How serious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

/// Writes events into the store.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The name of the event that tells what this key says.
    known: HashMap<Arc<EventKey>, String>,
    order: VecDeque<Arc<EventKey>>,
    /// Makes names unique.
    written: u64,
}

/// What makes two events the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventKey {
    uid: String,
    component: &'static str,
    severity: Severity,
    reason: &'static str,
    message: String,
}

impl Recorder {
    /// Tells something about an object. An event that cannot be written is only logged: it
    /// explains the work, and must not stop it.
    pub(crate) fn record(
        &mut self,
        store: &Store,
        component: &'static str,
        (r, object): (&'static Resource, &Value),
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        let ns = match meta::namespace(object) {
            "" => "default",
            namespace => namespace,
        };
        let key = EventKey { uid: meta::uid(object).into(), component, severity, reason, message };
        if let Some(name) = self.known.get(&key)
            && count_up(store, ns, name).is_ok()
        {
            return;
        }
        self.written += 1;
        let nanos = crate::clock::now().as_nanosecond();
        let name = format!("{}.{nanos:x}{:x}", meta::name(object), self.written);
        match store.create(&resource::EVENTS, ns, event(r, object, &key, &name)) {
            Ok(_) => self.remember(key, name),
            Err(error) => tracing::debug!(%error, reason, object = meta::name(object), "no event"),
        }
    }

    fn remember(&mut self, key: EventKey, name: String) {
        let key = Arc::new(key);
        if self.known.insert(Arc::clone(&key), name).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

fn event(r: &'static Resource, object: &Value, key: &EventKey, name: &str) -> Value {
    let now = meta::now();
    json!({
        "metadata": {"name": name},
        "involvedObject": {
            "apiVersion": r.api_version(),
            "kind": r.kind,
            "namespace": object["metadata"]["namespace"],
            "name": meta::name(object),
            "uid": meta::uid(object),
            "resourceVersion": object["metadata"]["resourceVersion"],
        },
        "reason": key.reason,
        "message": key.message,
        "type": match key.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
        "source": {"component": key.component},
        "reportingComponent": key.component,
        "reportingInstance": "",
        "count": 1,
        "eventTime": null,
        "firstTimestamp": now,
        "lastTimestamp": now,
    })
}

/// A concurrent write of the event can lose a count, which no client relies on.
fn count_up(store: &Store, ns: &str, name: &str) -> Result<(), Status> {
    let mut event = (*store.get(&resource::EVENTS, ns, name)?).clone();
    event["count"] = json!(event["count"].as_u64().unwrap_or_default() + 1);
    event["lastTimestamp"] = meta::now().into();
    store.update(&resource::EVENTS, ns, name, event, Part::Main).map(drop)
}
