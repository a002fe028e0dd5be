//! Events. They are written in the background, so a caller never waits for the API server.

mod notices;
mod recorder;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use kube::api::ObjectMeta;
use kube::runtime::events::EventType;
use tokio::sync::{Mutex, Semaphore};

use crate::cluster::Cluster;
use crate::log::printable;
use crate::names::PROVISIONER_PREFIX;
use crate::plan::About;

pub use notices::{Damper, Notices};

/// How many events can wait to be written. Further ones are dropped and counted.
const BACKLOG: u32 = 1024;
/// The API's limit for the message of an event, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The namespace of events on objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Writes events in the background.
#[derive(Clone, Debug)]
pub struct Reporter {
    cluster: Cluster,
    backlog: Arc<Semaphore>,
    /// Locked during the requests for an event.
    turn: Arc<Mutex<()>>,
    instance: String,
    host: Option<String>,
    pod: ObjectReference,
}

impl Reporter {
    /// A reporter of the instance `provisioner`, which runs in the Pod `pod`.
    pub fn new(cluster: &Cluster, provisioner: &str, pod: ObjectReference) -> Self {
        Self {
            cluster: cluster.clone(),
            backlog: Arc::new(Semaphore::new(BACKLOG as usize)),
            turn: Arc::default(),
            instance: provisioner.into(),
            host: None,
            pod,
        }
    }

    /// Names the node in each event, which node isolation requires.
    pub fn with_host(self, node: &str) -> Self {
        let host = Some(node.to_owned());
        Self { host, ..self }
    }

    /// Queues an event about a problem.
    pub fn warning(&self, about: &About, reason: &str, action: &str, note: &str) {
        self.event(EventType::Warning, about, reason, action, note);
    }

    /// Queues an event about a success.
    pub fn normal(&self, about: &About, reason: &str, action: &str, note: &str) {
        self.event(EventType::Normal, about, reason, action, note);
    }

    fn event(&self, type_: EventType, about: &About, reason: &str, action: &str, note: &str) {
        let object = |kind: &str, name: &str, uid: Option<&String>| ObjectReference {
            api_version: Some("v1".into()),
            kind: Some(kind.into()),
            name: Some(name.into()),
            uid: uid.cloned(),
            ..ObjectReference::default()
        };
        let regarding = match about {
            About::Pod => self.pod.clone(),
            // The kubelet's own events name the Node so.
            About::Node(name) => object("Node", name, Some(name)),
            About::Pv(name, uid) => object("PersistentVolume", name, Some(uid)),
            About::Claim(claim) => ObjectReference {
                namespace: Some(claim.namespace.clone()),
                ..object("PersistentVolumeClaim", &claim.name, claim.uid.as_ref())
            },
        };
        let note = printable(note);
        let namespace = regarding.namespace.clone();
        // The reporting component must be a label value, and the instance's name can be too long for one.
        let component = PROVISIONER_PREFIX.to_owned();
        let event = Event {
            metadata: ObjectMeta {
                namespace: namespace.or_else(|| Some(DEFAULT_NAMESPACE.into())),
                ..ObjectMeta::default()
            },
            involved_object: regarding,
            type_: Some(format!("{type_:?}")),
            reason: Some(reason.into()),
            message: Some(note[..note.floor_char_boundary(NOTE_LIMIT)].into()),
            action: Some(action.into()),
            source: Some(EventSource {
                component: Some(component.clone()),
                host: self.host.clone(),
            }),
            reporting_component: Some(component),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        let Ok(waiting) = Arc::clone(&self.backlog).try_acquire_owned() else {
            self.cluster.metrics.events_failed_total.inc();
            return;
        };
        let this = self.clone();
        tokio::spawn(async move {
            this.record(event).await;
            drop(waiting);
        });
    }

    /// Waits up to `limit` until no event waits to be written.
    pub async fn flush(&self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.backlog.acquire_many(BACKLOG)).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;

    use crate::metrics::Metrics;

    use super::*;

    /// An API server without resources.
    fn cluster() -> Cluster {
        let metrics = Arc::new(Metrics::new().unwrap());
        Cluster::new(Client::new(Router::new(), "default"), metrics)
    }

    pub(super) fn reporter() -> Reporter {
        Reporter::new(&cluster(), "", ObjectReference::default())
    }

    #[tokio::test]
    async fn dropped_events_are_counted() {
        let cluster = cluster();
        let reporter = Reporter {
            backlog: Arc::new(Semaphore::new(1)),
            ..Reporter::new(&cluster, "", ObjectReference::default())
        };
        for failed in [0, 1, 2] {
            reporter.normal(&About::Pod, "Reason", "Action", "note");
            assert_eq!(cluster.metrics.events_failed_total.get(), failed);
        }
    }
}
