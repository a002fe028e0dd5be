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

use crate::cluster::Permissions;
use crate::metrics::Metrics;

/// How long writing one event may take.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// An event that comes again within this time is counted up instead of written anew; the client's
/// recorder has the same limit.
const SERIES: Duration = Duration::from_mins(6);
/// Where events on objects without a namespace go.
const DEFAULT_NAMESPACE: &str = "default";
/// What the recorder writes to.
const EVENTS: &str = "events.events.k8s.io";

/// Writes events, where the role allows no better, into the API group that the Go provisioner's role
/// names.
pub(super) struct Writer {
    client: Client,
    source: Source,
    recorders: HashMap<String, (Recorder, Instant)>,
    core: HashMap<(String, String, String), Written>,
    metrics: Arc<Metrics>,
    permissions: Arc<Permissions>,
}

/// An event of the core group that may come again.
struct Written {
    name: String,
    count: i32,
    at: Instant,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        source: Source,
        metrics: Arc<Metrics>,
        permissions: Arc<Permissions>,
    ) -> Self {
        Self {
            client,
            source,
            recorders: HashMap::new(),
            core: HashMap::new(),
            metrics,
            permissions,
        }
    }

    /// Writes an event, or counts that it could not be.
    pub(super) async fn write(&mut self, event: &Event, about: &ObjectReference) {
        let recorder = self.recorder(event.note.as_deref().unwrap_or_default());
        let written = match in_time(recorder.publish(event, about)).await {
            Ok(()) => {
                self.permissions.granted(EVENTS, "create");
                Ok(())
            }
            Err(Some(kube::Error::Api(status))) if status.code == 403 => {
                self.permissions
                    .denied(EVENTS, "create", status.message.clone());
                in_time(self.write_core(event, about)).await
            }
            Err(error) => Err(error),
        };
        if written.is_err() {
            self.metrics.events_failed_total.inc();
        }
    }

    /// A recorder for each text. One alone would take events that differ in nothing but their text
    /// for repetitions of the first, and nobody would ever read the later ones.
    fn recorder(&mut self, note: &str) -> Recorder {
        self.recorders
            .retain(|_, (_, used)| used.elapsed() < SERIES);
        let new = || Recorder::new(self.client.clone(), self.source.clone());
        let (recorder, used) = self
            .recorders
            .entry(note.to_owned())
            .or_insert_with(|| (new(), Instant::now()));
        *used = Instant::now();
        recorder.clone()
    }

    async fn write_core(&mut self, event: &Event, about: &ObjectReference) -> kube::Result<()> {
        let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
        self.core.retain(|_, written| written.at.elapsed() < SERIES);
        let object = about.uid.as_ref().or(about.name.as_ref());
        let key = (
            object.cloned().unwrap_or_default(),
            event.reason.clone(),
            event.note.clone().unwrap_or_default(),
        );
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

/// The request's own error, or none when it took too long.
async fn in_time(
    request: impl Future<Output = kube::Result<()>>,
) -> Result<(), Option<kube::Error>> {
    match tokio::time::timeout(TIME_LIMIT, request).await {
        Ok(result) => result.map_err(Some),
        Err(_) => Err(None),
    }
}
