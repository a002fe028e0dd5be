//! Writes one event at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Source};
use kube::{Api, Client};
use serde_json::json;

use crate::cluster::{Permissions, lacks_right};

/// How long writing one event may take.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// An event that comes again within this time is counted up instead of written anew; the client's
/// recorder has the same limit.
const SERIES: Duration = Duration::from_mins(6);
/// Where events on objects without a namespace go.
const DEFAULT_NAMESPACE: &str = "default";
/// What the recorder writes to, and what is written to where that is denied.
const EVENTS: &str = "events.events.k8s.io";
const CORE_EVENTS: &str = "events";

/// Writes events, where the role allows no better, into the API group that the Go provisioner's role
/// names.
pub(super) struct Writer {
    client: Client,
    source: Source,
    recorded: HashMap<Key, Recorded>,
    core: HashMap<Key, Written>,
    permissions: Arc<Permissions>,
}

/// Why an event was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No answer, or one that tells of trouble in the API server itself.
    Passing,
    /// The API server refuses it.
    Lasting,
}

/// What makes an event the same as an earlier one: object, reason, text.
type Key = (String, String, String);

fn key(event: &Event, about: &ObjectReference) -> Key {
    let object = about.uid.as_ref().or(about.name.as_ref());
    (
        object.cloned().unwrap_or_default(),
        event.reason.clone(),
        event.note.clone().unwrap_or_default(),
    )
}

/// An event that may come again: its recorder then counts it up.
struct Recorded {
    recorder: Recorder,
    at: Instant,
}

/// The same in the core group.
struct Written {
    name: String,
    count: i32,
    at: Instant,
}

impl Writer {
    pub(super) fn new(client: Client, source: Source, permissions: Arc<Permissions>) -> Self {
        Self {
            client,
            source,
            recorded: HashMap::new(),
            core: HashMap::new(),
            permissions,
        }
    }

    /// Writes an event.
    ///
    /// # Errors
    /// [`Failure`]; without an answer it may be written all the same.
    pub(super) async fn write(
        &mut self,
        event: &Event,
        about: &ObjectReference,
    ) -> Result<(), Failure> {
        let (mut recorder, mut verb) = self.recorder(event, about);
        let mut written = in_time(recorder.publish(event, about)).await;
        if is_gone(&written) && self.recorded.remove(&key(event, about)).is_some() {
            (recorder, verb) = self.recorder(event, about);
            written = in_time(recorder.publish(event, about)).await;
        }
        self.book(EVENTS, verb, &written);
        if written.is_ok() {
            let at = Instant::now();
            let used = Recorded { recorder, at };
            self.recorded.insert(key(event, about), used);
            self.forget_core();
        } else if self.permissions.is_missing(EVENTS, verb) {
            let mut verb = self.core_verb(event, about);
            written = in_time(self.write_core(event, about)).await;
            if is_gone(&written) && self.core.remove(&key(event, about)).is_some() {
                verb = self.core_verb(event, about);
                written = in_time(self.write_core(event, about)).await;
            }
            self.book(CORE_EVENTS, verb, &written);
        }
        written.map_err(|error| match error {
            Some(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                Failure::Lasting
            }
            _ => Failure::Passing,
        })
    }

    /// While the better API denies nothing, nothing is missed in the other: it is not asked.
    fn forget_core(&self) {
        let verbs = ["create", "patch"];
        if !verbs
            .iter()
            .any(|verb| self.permissions.is_missing(EVENTS, verb))
        {
            for verb in verbs {
                self.permissions.granted(CORE_EVENTS, verb);
            }
        }
    }

    /// Remembers whether there was the right to write.
    fn book(
        &self,
        resource: &'static str,
        verb: &'static str,
        written: &Result<(), Option<kube::Error>>,
    ) {
        match written {
            Ok(()) => self.permissions.granted(resource, verb),
            Err(Some(kube::Error::Api(status))) if lacks_right(status) => {
                let why = status.message.clone();
                self.permissions.denied(resource, verb, why);
            }
            Err(_) => {}
        }
    }

    /// A recorder for each event, and what it will do. One alone would take events that differ in
    /// nothing but their text for repetitions of the first, and nobody would ever read the later ones.
    fn recorder(&mut self, event: &Event, about: &ObjectReference) -> (Recorder, &'static str) {
        self.recorded
            .retain(|_, recorded| recorded.at.elapsed() < SERIES);
        match self.recorded.get(&key(event, about)) {
            Some(recorded) => (recorded.recorder.clone(), "patch"),
            None => (
                Recorder::new(self.client.clone(), self.source.clone()),
                "create",
            ),
        }
    }

    fn core_verb(&mut self, event: &Event, about: &ObjectReference) -> &'static str {
        self.core.retain(|_, written| written.at.elapsed() < SERIES);
        if self.core.contains_key(&key(event, about)) {
            "patch"
        } else {
            "create"
        }
    }

    async fn write_core(&mut self, event: &Event, about: &ObjectReference) -> kube::Result<()> {
        let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
        let key = key(event, about);
        let now = Timestamp::now();
        if let Some(written) = self.core.get_mut(&key) {
            let count = written.count + 1;
            let patch = json!({ "count": count, "lastTimestamp": Time(now) });
            api.patch(&written.name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            (written.count, written.at) = (count, Instant::now());
            return Ok(());
        }
        let name = format!(
            "{}.{:x}",
            about.name.as_deref().unwrap_or("unknown"),
            now.as_nanosecond()
        );
        api.create(
            &PostParams::default(),
            &self.core_event(&name, namespace, event, about, now),
        )
        .await?;
        let (count, at) = (1, Instant::now());
        self.core.insert(key, Written { name, count, at });
        Ok(())
    }

    fn core_event(
        &self,
        name: &str,
        namespace: &str,
        event: &Event,
        about: &ObjectReference,
        now: Timestamp,
    ) -> CoreEvent {
        let type_ = match event.type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        CoreEvent {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some(namespace.into()),
                ..ObjectMeta::default()
            },
            involved_object: about.clone(),
            type_: Some(type_.into()),
            reason: Some(event.reason.clone()),
            message: event.note.clone(),
            action: Some(event.action.clone()),
            source: Some(EventSource {
                component: Some(self.source.controller.clone()),
                host: None,
            }),
            reporting_component: Some(self.source.controller.clone()),
            reporting_instance: self.source.instance.clone(),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..CoreEvent::default()
        }
    }
}

/// Whether the event that was to be counted up is not there: it has expired, or somebody deleted it.
fn is_gone(written: &Result<(), Option<kube::Error>>) -> bool {
    matches!(written, Err(Some(kube::Error::Api(status))) if status.code == 404)
}

/// The request's own error, or none when it took too long.
async fn in_time(
    request: impl Future<Output = kube::Result<()>>,
) -> Result<(), Option<kube::Error>> {
    match tokio::time::timeout(TIME_LIMIT, request).await {
        Ok(result) => result.map_err(Some),
        Err(_) => Err(None),
    }
}
