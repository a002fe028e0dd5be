//! Events, and what has been said already.

mod notices;
mod outbox;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Reporter as Source};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Permissions;
use crate::metrics::Metrics;
use crate::names::PROVISIONER_PREFIX;
use crate::plan::About;

use outbox::Outbox;
use writer::Writer;

pub use notices::Notices;

/// Events that wait to be written. More than that in one go, and the API server has other worries.
const BACKLOG: usize = 1024;
/// The API's limit for an event's text, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The API's limit for the instance's name, in bytes.
const INSTANCE_LIMIT: usize = 128;

enum Message {
    Event(Box<(Event, ObjectReference)>),
    Flush(oneshot::Sender<()>),
}

/// Writes events in the background: nobody ever waits for one.
#[derive(Clone, Debug)]
pub struct Reporter {
    send: mpsc::Sender<Message>,
    metrics: Arc<Metrics>,
    pod: ObjectReference,
}

impl Reporter {
    /// Starts the writer. `provisioner` is our name, `pod` is where we run.
    #[must_use]
    pub fn start(
        client: Client,
        provisioner: &str,
        pod: ObjectReference,
        metrics: Arc<Metrics>,
        permissions: Arc<Permissions>,
    ) -> Self {
        // The reporting controller must be a label value, which a name with a UID in it is too long
        // for. So the full name is the reporting instance.
        let source = Source {
            controller: PROVISIONER_PREFIX.into(),
            instance: Some(cut(provisioner, INSTANCE_LIMIT).into()),
        };
        let writer = Writer::new(client, source, permissions);
        let outbox = Outbox::new(writer, Arc::clone(&metrics));
        let (send, receive) = mpsc::channel(BACKLOG);
        tokio::spawn(outbox.serve(receive));
        Self { send, metrics, pod }
    }

    /// Something that somebody ought to look at.
    pub fn warning(&self, about: &About, reason: &str, action: &str, note: &str) {
        self.event(EventType::Warning, about, reason, action, note);
    }

    /// Something that happened as it should.
    pub fn normal(&self, about: &About, reason: &str, action: &str, note: &str) {
        self.event(EventType::Normal, about, reason, action, note);
    }

    fn event(&self, type_: EventType, about: &About, reason: &str, action: &str, note: &str) {
        let regarding = match about {
            About::Pod => self.pod.clone(),
            About::Pv(name, uid) => ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("PersistentVolume".into()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            },
        };
        self.regarding(type_, regarding, reason, action, note);
    }

    /// The same about any object.
    pub fn regarding(
        &self,
        type_: EventType,
        regarding: ObjectReference,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(cut(note, NOTE_LIMIT).into()),
            action: action.into(),
            secondary: None,
        };
        // Full: then thousands are on their way, and the log has this one too.
        let sent = self
            .send
            .try_send(Message::Event(Box::new((event, regarding))));
        if sent.is_err() {
            self.metrics.events_failed_total.inc();
        }
    }

    /// Waits until everything reported so far is written or was tried once more, or time is up.
    pub async fn flush(&self, limit: Duration) {
        let (done, written) = oneshot::channel();
        let flushed = async {
            if self.send.send(Message::Flush(done)).await.is_ok() {
                let _ = written.await;
            }
        };
        let _ = tokio::time::timeout(limit, flushed).await;
    }
}

/// The longest beginning of a text that is no longer than `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_find_no_place_are_counted() {
        let (send, _receive) = mpsc::channel(1);
        let reporter = Reporter {
            send,
            metrics: Arc::new(Metrics::new().unwrap()),
            pod: ObjectReference::default(),
        };
        for failed in [0, 1, 2] {
            reporter.normal(&About::Pod, "Reason", "Action", "note");
            assert_eq!(reporter.metrics.events_failed_total.get(), failed);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 5), "abc");
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("aé", 2), "a");
    }
}
