//! When something of a scenario last changed.

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
use tokio::{task::JoinSet, time::Instant};

use crate::names::Names;

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

type Changes = Arc<Mutex<HashMap<String, Instant>>>;

/// Watches the whole cluster, and knows what belongs to which scenario by its name.
pub struct Activity {
    changes: Changes,
    _watches: JoinSet<()>,
}

impl Activity {
    /// # Errors
    /// The cluster cannot be watched.
    pub async fn watch(client: &Client) -> anyhow::Result<Self> {
        let changes = Changes::default();
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
            let changes = Arc::clone(&changes);
            watches.spawn(async move {
                // A watch that breaks begins again; what it then shows counts as a change.
                while let Some(event) = events.next().await {
                    if let Ok(Event::Apply(o) | Event::Delete(o) | Event::InitApply(o)) = event {
                        note(&changes, &o);
                    }
                }
            });
        }
        Ok(Self {
            changes,
            _watches: watches,
        })
    }

    /// When something of this scope last changed.
    #[must_use]
    pub fn last(&self, scope: &str) -> Option<Instant> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.get(scope).copied()
    }
}

fn note(changes: &Changes, object: &DynamicObject) {
    let namespace = object.namespace();
    let place = match namespace.as_deref() {
        // The events of what has no namespace.
        None | Some("default") => object.name_any(),
        Some(namespace) => namespace.to_owned(),
    };
    if let Some(scope) = Names::scope_of(&place) {
        let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.insert(scope.to_owned(), Instant::now());
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
