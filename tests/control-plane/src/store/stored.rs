//! Objects at rest.

use std::{fmt, sync::Arc};

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError};

use super::{Event, EventKind};
use crate::{meta, resource::Resource};

/// An object as it is kept: its JSON text. A tree of maps takes ten times as much, and most objects
/// of a large cluster are looked at once in a while.
pub(crate) struct Stored {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    text: Box<str>,
}

impl Stored {
    pub(crate) fn new(object: &Value) -> Self {
        Self {
            namespace: meta::namespace(object).into(),
            name: meta::name(object).into(),
            text: object.to_string().into(),
        }
    }

    /// The next state of the same object.
    pub(super) fn next(&self, object: &Value) -> Self {
        Self {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
            text: object.to_string().into(),
        }
    }

    /// As JSON, without white space.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn value(&self) -> Arc<Value> {
        // What was written as JSON reads as JSON.
        Arc::new(serde_json::from_str(&self.text).unwrap_or_default())
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One write, as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) kind: EventKind,
    pub(crate) resource: &'static Resource,
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
    pub(crate) resource_version: u64,
}

impl Written {
    pub(crate) fn event(&self) -> Event {
        Event {
            kind: self.kind,
            resource: self.resource,
            object: self.object.value(),
            previous: self.previous.as_ref().map(|previous| previous.value()),
            resource_version: self.resource_version,
        }
    }
}

/// Objects of one type at one version, as they are kept: by namespace, then name.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) items: Vec<Arc<Stored>>,
    pub(crate) resource_version: u64,
}

/// Every write from a moment on.
#[derive(Debug)]
pub struct Events(pub(super) UnboundedReceiver<Written>);

impl Events {
    /// The next one, when it comes; `None` once the store is gone.
    pub async fn recv(&mut self) -> Option<Event> {
        self.0.recv().await.map(|written| written.event())
    }

    /// The next one, if it has happened.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        self.0.try_recv().map(|written| written.event())
    }
}
