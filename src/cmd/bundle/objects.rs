//! Objects of the API as they are, without what a bundle never has: managed fields, the annotation of `kubectl apply`,
//! and values of environment variables that are not the provisioner's.

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

use crate::cluster::{ApiError, Cluster, JOB_IMAGE_VARIABLE};
use crate::cmd::status::show::{list, text, texts};
use crate::config::DEFAULT_DIR;
use crate::names::ENV_STATE;

/// The variables of a provisioner whose values the pod's template has.
const VARIABLES: [&str; 3] = ["MY_DAEMONSET", JOB_IMAGE_VARIABLE, ENV_STATE];

/// The objects of a kind in a namespace, or in all.
pub(super) fn api<K: Resource<DynamicType = ()>>(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let (client, kind) = (cluster.client.clone(), ApiResource::erase::<K>(&()));
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    }
}

/// Lists the `wanted` objects.
pub(super) async fn read<K: Resource<DynamicType = ()>>(
    cluster: &Cluster,
    resource: &'static str,
    namespace: Option<&str>,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, ApiError> {
    let api = api::<K>(cluster, namespace);
    let keep = |object| Some(trimmed(&object)).filter(&wanted);
    cluster
        .list_pages(resource, api, ListParams::default(), keep)
        .await
}

/// An object without what a bundle never has.
pub(super) fn trimmed(object: &DynamicObject) -> Value {
    let mut object = json!(object);
    trim(&mut object);
    object
}

fn trim(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(trim),
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.remove("kubectl.kubernetes.io/last-applied-configuration");
            let name = fields.get("name").and_then(Value::as_str);
            let is_foreign = name.is_some_and(|name| !VARIABLES.contains(&name));
            if let Some(value) = fields.get_mut("value").filter(|_| is_foreign) {
                *value = "(left out)".into();
            }
            fields.values_mut().for_each(trim);
        }
        _ => {}
    }
}

/// The container of a provisioner, or of node-cleanup.
pub(super) fn container(pod: &Value) -> Option<&Value> {
    let is_ours = |it: &&Value| {
        list(it, "env").any(|it| text(it, "name") == JOB_IMAGE_VARIABLE)
            || texts(it, "args").next() == Some("node-cleanup")
    };
    list(pod, "containers").find(is_ours)
}

/// The ConfigMap that a provisioner has as its configuration.
pub(super) fn config_map(pod: &Value) -> Option<&str> {
    let dir = |path: &str| path.trim_end_matches('/') == DEFAULT_DIR.trim_end_matches('/');
    let mut mounts = list(container(pod)?, "volumeMounts");
    let mount = mounts.find(|it| dir(text(it, "mountPath")))?;
    let mut volumes = list(pod, "volumes");
    let volume = volumes.find(|it| it["name"] == mount["name"])?;
    volume["configMap"]["name"].as_str()
}
