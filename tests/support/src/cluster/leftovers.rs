//! Removing what a stage has made in a real cluster, and nothing else.
//!
//! A stage's cluster-wide objects have names (PVs: a class) that end in its id; the rest lies in a
//! namespace of its own. The namespace is made first and removed last, and is labelled. A stage whose
//! namespace is older than any test lasts is abandoned, and is removed by the next one.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{
    Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Marks a stage's namespace; the value is the stage's id.
const STAGE: &str = "local-volume-provisioner.test/stage";
/// No test runs that long.
const ABANDONED_AFTER_SECONDS: i64 = 3600;

/// What a stage's id begins with. No other name ends in something like it.
pub const ID_PREFIX: &str = "lvp-test-";

pub fn namespace(id: &str) -> String {
    format!("test-{id}")
}

/// Makes the namespace of a stage. Returns the API server's time, which need not be this machine's.
pub async fn claim_namespace(client: &Client, id: &str) -> Result<Timestamp> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": {
        "name": namespace(id),
        "labels": { STAGE: id },
    } }))?;
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    let made = made.context("making a namespace for the test")?;
    let now = made.creation_timestamp().context("it has no age")?;
    Ok(now.0)
}

/// Removes what abandoned stages have left; `now` is the API server's time.
pub async fn sweep_abandoned(client: &Client, now: Timestamp) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in namespaces.list(&ListParams::default().labels(STAGE)).await? {
        // One that is deleted already takes nothing along that is in no namespace.
        if let Some(id) = namespace.labels().get(STAGE)
            && is_abandoned(&namespace, now)
        {
            sweep(client, id).await.with_context(|| format!("removing what {id} has left"))?;
        }
    }
    Ok(())
}

fn is_abandoned(namespace: &Namespace, now: Timestamp) -> bool {
    namespace
        .creation_timestamp()
        .is_some_and(|made| now.as_second() - made.0.as_second() > ABANDONED_AFTER_SECONDS)
}

pub async fn sweep(client: &Client, id: &str) -> Result<()> {
    ensure!(
        id.strip_prefix(ID_PREFIX).is_some_and(|rest| rest.len() == 16),
        "{id:?} is no stage's id: nothing was removed"
    );
    let ending = format!("-{id}");
    let is_its = |name: &str| name.ends_with(&ending);
    // A provisioner that still runs makes nothing without its classes and its node.
    let classes = Api::<StorageClass>::all(client.clone());
    remove(&classes, |class| is_its(&class.name_any())).await?;
    let nodes = Api::<Node>::all(client.clone());
    remove(&nodes, |node| is_its(&node.name_any())).await?;
    let here = namespace(id);
    let pods = Api::<Pod>::namespaced(client.clone(), &here);
    remove(&pods, |_| true).await?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &here);
    remove(&claims, |_| true).await?;
    let pvs = Api::<PersistentVolume>::all(client.clone());
    let of_its_class = |pv: &PersistentVolume| {
        let class = pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        class.is_some_and(is_its)
    };
    let removed = remove(&pvs, of_its_class).await?;
    // Events about what is in no namespace lie in this one.
    let events = Api::<Event>::namespaced(client.clone(), "default");
    let told_of_it = |event: &Event| {
        let about = event.involved_object.name.as_deref().unwrap_or_default();
        let by = event.reporting_instance.as_deref().unwrap_or_default();
        is_its(about) || removed.iter().any(|pv| pv == about) || by.contains(&ending)
    };
    remove(&events, told_of_it).await?;
    let namespaces = Api::<Namespace>::all(client.clone());
    match namespaces.get_opt(&here).await? {
        Some(_) => delete(&namespaces, &here).await,
        None => Ok(()),
    }
}

/// Deletes objects at once, whatever their finalizers wait for; returns their names.
async fn remove<K>(api: &Api<K>, is_its: impl Fn(&K) -> bool) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = api.list(&ListParams::default()).await?;
    let mut names = Vec::new();
    for object in found.items.into_iter().filter(is_its) {
        let name = object.name_any();
        delete(api, &name).await?;
        if !object.finalizers().is_empty() {
            let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            gone(api.patch_metadata(&name, &PatchParams::default(), &none).await)?;
        }
        names.push(name);
    }
    Ok(names)
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let at_once = DeleteParams::default().grace_period(0);
    gone(api.delete(name, &at_once).await)
}

/// Another test may remove the same leftovers now. 409 says that a namespace is going already.
fn gone<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
