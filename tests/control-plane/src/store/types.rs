//! What the store takes and gives.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::Written;
use crate::resource::Resource;

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status (the whole object where the type has no status subresource).
    Main,
    /// The status and the metadata.
    Status,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One write, as subscribers and watches hear of it.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To an object of this type.
    pub resource: &'static Resource,
    /// The object after the write; for a deletion its last state, under the deletion's version.
    pub object: Arc<Value>,
    /// The object before the write.
    pub previous: Option<Arc<Value>>,
    /// The version that the write made.
    pub resource_version: u64,
}

/// Objects of one type at one version.
#[derive(Debug, Clone)]
pub struct Listing {
    /// By namespace, then name.
    pub items: Vec<Arc<Value>>,
    /// The store's version at which they were read.
    pub resource_version: u64,
}

/// `metav1.DeleteOptions`, as far as it matters here.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Precondition: delete only the object with this UID.
    pub uid: Option<String>,
    /// Precondition: delete only this version of the object.
    pub resource_version: Option<String>,
    /// `Foreground`, `Background` or `Orphan`.
    pub propagation_policy: Option<String>,
    /// Seconds that a pod gets to stop; 0 deletes it at once.
    pub grace_period_seconds: Option<i64>,
}

/// A watch of one resource type: what happened since, and everything from now on.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// What was written between the version asked for and now.
    pub(crate) backlog: Vec<Written>,
    /// Everything after that, in order.
    pub(crate) live: UnboundedReceiver<Written>,
    /// The store's version at the moment of subscribing.
    pub(crate) resource_version: u64,
}
