//! Events, and what has been said already.

mod notices;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Reporter as Source};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Permissions;
use crate::metrics::Metrics;
use crate::names::PROVISIONER_PREFIX;
use crate::plan::About;

use writer::{Failure, Writer};

pub use notices::Notices;

/// Events that wait to be written. More than that in one go, and the API server has other worries.
const BACKLOG: usize = 1024;
/// For how long an event is tried again: an API server that is replaced is back by then.
const PATIENCE: Duration = Duration::from_mins(5);
/// The first pause before that and the longest; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// The API's limit for an event's text, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The API's limit for the instance's name, in bytes.
const INSTANCE_LIMIT: usize = 128;

enum Message {
    Event(Box<Reported>),
    Flush(oneshot::Sender<()>),
}

/// An event, what it is about, and since when it waits to be written.
struct Reported {
    event: Event,
    regarding: ObjectReference,
    since: Instant,
}

/// Writes events in the background: nobody ever waits for one.
#[derive(Clone, Debug)]
pub struct Reporter {
    send: mpsc::Sender<Message>,
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
        let mut writer = Writer::new(client, source, metrics, permissions);
        let (send, mut receive) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            while let Some(message) = receive.recv().await {
                match message {
                    Message::Flush(done) => drop(done.send(())),
                    Message::Event(reported) => write(&mut writer, &reported).await,
                }
            }
        });
        Self { send, pod }
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
        let reported = Reported {
            event,
            regarding,
            since: Instant::now(),
        };
        let _ = self.send.try_send(Message::Event(Box::new(reported)));
    }

    /// Waits until everything reported so far is written, or time is up.
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

/// Writes an event, rather twice than not at all: an answer that is lost may have been a success.
async fn write(writer: &mut Writer, reported: &Reported) {
    let mut pause = PAUSES.0;
    while let Err(failure) = writer.write(&reported.event, &reported.regarding).await {
        if failure == Failure::Lasting || reported.since.elapsed() >= PATIENCE {
            writer.give_up();
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
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
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 5), "abc");
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("aé", 2), "a");
    }
}
