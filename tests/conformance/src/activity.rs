//! When something of a scenario last changed.
//!
//! Only what would be recorded counts: an event that is counted up, or a message with the number of
//! nodes, changes for as long as other scenarios run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use control_plane::resource::{
    EVENTS, JOBS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Resource,
    STORAGE_CLASSES,
};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{names::Names, outcome};

/// What controllers write to.
const WATCHED: [&Resource; 7] = [
    &PERSISTENT_VOLUMES,
    &PERSISTENT_VOLUME_CLAIMS,
    &PODS,
    &NODES,
    &STORAGE_CLASSES,
    &JOBS,
    &EVENTS,
];

#[derive(Default)]
struct Seen {
    changes: HashMap<String, Instant>,
    /// The objects as they would be recorded, by kind, namespace and name.
    objects: HashMap<(&'static str, String, String), Value>,
}

type Shared = Arc<Mutex<Seen>>;

/// Watches the whole cluster, and knows what belongs to which scenario by its name.
pub struct Activity {
    seen: Shared,
    _watches: JoinSet<()>,
}

impl Activity {
    pub async fn watch(client: &Client) -> anyhow::Result<Self> {
        let seen = Shared::default();
        let mut watches = JoinSet::new();
        for resource in WATCHED {
            let mut events = watcher::watcher(
                Api::<DynamicObject>::all_with(client.clone(), &api_resource(resource)),
                watcher::Config::default(),
            )
            .default_backoff()
            .boxed();
            let begun = tokio::time::timeout(Duration::from_secs(20), async {
                while let Some(event) = events.next().await {
                    if matches!(event?, Event::InitDone) {
                        break;
                    }
                }
                anyhow::Ok(())
            });
            begun
                .await
                .map_err(anyhow::Error::from)
                .flatten()
                .with_context(|| format!("cannot watch {}", resource.qualified()))?;
            let seen = Arc::clone(&seen);
            watches.spawn(async move {
                while let Some(event) = events.next().await {
                    match event {
                        Ok(Event::Apply(object) | Event::InitApply(object)) => {
                            note(&seen, resource, &object, Some(&view(resource, &object)));
                        }
                        Ok(Event::Delete(object)) => note(&seen, resource, &object, None),
                        // A watch that breaks begins again.
                        Ok(Event::Init | Event::InitDone) | Err(_) => {}
                    }
                }
            });
        }
        Ok(Self { seen, _watches: watches })
    }

    /// When something of this scope last changed.
    pub fn last(&self, scope: &str) -> Option<Instant> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.changes.get(scope).copied()
    }
}

/// The part of an object that is recorded.
fn view(resource: &Resource, object: &DynamicObject) -> Value {
    if resource == &EVENTS {
        return json!([object.data["type"], object.data["reason"]]);
    }
    let mut whole = object.data.clone();
    whole["kind"] = resource.kind.into();
    whole["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
    outcome::of_object(Some(&whole), &[], false)
}

/// Takes in what an object is now; `None` if it is gone.
fn note(seen: &Shared, r: &'static Resource, object: &DynamicObject, view: Option<&Value>) {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let scope = match namespace.as_str() {
        // The events of what has no namespace.
        "" | "default" => Names::scope_of(&name),
        namespace => Names::scope_of(namespace),
    };
    let Some(scope) = scope.map(str::to_owned) else {
        return;
    };
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (r.kind, namespace, name);
    let known = match view {
        Some(view) => seen.objects.insert(key, view.clone()),
        None => seen.objects.remove(&key),
    };
    if known.as_ref() != view {
        seen.changes.insert(scope, Instant::now());
    }
}

fn api_resource(r: &Resource) -> ApiResource {
    let mut resource = ApiResource::from_gvk_with_plural(
        &kube::api::GroupVersionKind::gvk(r.group, r.version, r.kind),
        r.plural,
    );
    resource.api_version = r.api_version();
    resource
}
