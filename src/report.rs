//! Events, and what has been said already.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Source};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Permissions;
use crate::metrics::Metrics;
use crate::names::PROVISIONER_PREFIX;
use crate::plan::{About, Notice};

/// Events that wait to be written. More than that in one go, and the API server has other worries.
const BACKLOG: usize = 1024;
/// How long writing one event may take.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// An event that comes again within this time is counted up instead of written anew; the client's
/// recorder has the same limit.
const SERIES: Duration = Duration::from_mins(6);
/// The API's limit for an event's text, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The API's limit for the instance's name, in bytes.
const INSTANCE_LIMIT: usize = 128;

enum Message {
    Event(Box<(Event, ObjectReference)>),
    Flush(oneshot::Sender<()>),
}

/// A recorder for each text. One alone would take events that differ in nothing but their text for
/// repetitions of the first, and nobody would ever read the later ones.
struct Recorders {
    client: Client,
    source: Source,
    by_note: HashMap<String, (Recorder, Instant)>,
}

impl Recorders {
    fn of(&mut self, note: &str) -> Recorder {
        self.by_note.retain(|_, (_, used)| used.elapsed() < SERIES);
        let new = || Recorder::new(self.client.clone(), self.source.clone());
        let (recorder, used) = self
            .by_note
            .entry(note.to_owned())
            .or_insert_with(|| (new(), Instant::now()));
        *used = Instant::now();
        recorder.clone()
    }
}

/// Writes events in the background: nobody ever waits for one.
#[derive(Clone, Debug)]
pub struct Reporter {
    send: mpsc::Sender<Message>,
    pod: ObjectReference,
}

impl Reporter {
    /// Starts the writer. `provisioner` is our name, `namespace` and `pod` say where we run.
    #[must_use]
    pub fn start(
        client: Client,
        provisioner: &str,
        (namespace, pod): (&str, &str),
        metrics: Arc<Metrics>,
        permissions: Arc<Permissions>,
    ) -> Self {
        // The reporting controller must be a label value, which a name with a UID in it is too long
        // for. So the full name is the reporting instance.
        let source = Source {
            controller: PROVISIONER_PREFIX.into(),
            instance: Some(cut(provisioner, INSTANCE_LIMIT).into()),
        };
        let mut recorders = Recorders {
            client,
            source,
            by_note: HashMap::new(),
        };
        let (send, mut receive) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            while let Some(message) = receive.recv().await {
                match message {
                    Message::Flush(done) => drop(done.send(())),
                    Message::Event(event) => {
                        let (event, about) = *event;
                        let recorder = recorders.of(event.note.as_deref().unwrap_or_default());
                        let written = recorder.publish(&event, &about);
                        match tokio::time::timeout(TIME_LIMIT, written).await {
                            Ok(Ok(())) => permissions.granted("events.events.k8s.io", "create"),
                            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                                metrics.events_failed_total.inc();
                                permissions.denied(
                                    "events.events.k8s.io",
                                    "create",
                                    status.message.clone(),
                                );
                            }
                            _ => metrics.events_failed_total.inc(),
                        }
                    }
                }
            }
        });
        let pod = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(namespace.into()),
            name: Some(pod.into()),
            ..ObjectReference::default()
        };
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
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(cut(note, NOTE_LIMIT).into()),
            action: action.into(),
            secondary: None,
        };
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
        // Full: then thousands are on their way, and the log has this one too.
        let _ = self
            .send
            .try_send(Message::Event(Box::new((event, regarding))));
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

/// The longest beginning of a text that is no longer than `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Tells people what is new in each plan's notices, once: in the log and as an event.
#[derive(Debug, Default)]
pub struct Notices {
    told: BTreeSet<Notice>,
}

impl Notices {
    /// Tells what was not true the last time; returns it.
    ///
    /// While only a part of the disks could be looked at (`partial`), what is not among `now` may well
    /// still be true, and is not told again afterwards.
    pub fn tell(
        &mut self,
        mut now: BTreeSet<Notice>,
        partial: bool,
        reporter: &Reporter,
    ) -> Vec<Notice> {
        if partial {
            now.extend(self.told.iter().cloned());
        }
        let fresh: Vec<_> = now.difference(&self.told).cloned().collect();
        for Notice {
            about,
            reason,
            message,
        } in &fresh
        {
            match about {
                About::Pv(pv, _) => tracing::warn!(pv, reason, "{message}"),
                About::Pod => tracing::warn!(reason, "{message}"),
            }
            reporter.warning(about, reason, "Check", message);
        }
        for Notice { about, reason, .. } in self.told.difference(&now) {
            if let About::Pv(pv, _) = about {
                tracing::info!(pv, reason, "no longer the case");
            }
        }
        self.told = now;
        fresh
    }

    /// The PVs that something is the matter with now, and the reasons.
    pub fn about_pvs(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.told.iter().filter_map(|notice| match &notice.about {
            About::Pv(pv, _) => Some((pv.as_str(), notice.reason)),
            About::Pod => None,
        })
    }
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
