//! Objects of the API as they are, without what a bundle never has: managed fields, the annotation of `kubectl apply`,
//! and values of environment variables that are not the provisioner's.

use anyhow::Error;
use k8s_openapi::Resource as Named;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

use crate::cluster::{ApiError, Cluster, JOB_IMAGE_VARIABLE};
use crate::cmd::status::show::{list, text, texts};
use crate::config::DEFAULT_DIR;
use crate::errors::chain;
use crate::log::printable;
use crate::names::ENV_STATE;

/// The variables of a provisioner whose values the pod's template has.
const VARIABLES: [&str; 3] = ["MY_DAEMONSET", JOB_IMAGE_VARIABLE, ENV_STATE];

/// Reads what it can, and records why the rest could not be read.
pub(super) struct Reader<'a> {
    pub cluster: &'a Cluster,
    /// A line for each error.
    pub errors: Vec<String>,
}

impl Reader<'_> {
    /// The `wanted` objects in a namespace, or in all.
    pub async fn list<K: Named + Resource<DynamicType = ()>>(
        &mut self,
        namespace: Option<&str>,
        wanted: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let keep = |object| Some(trimmed(&object)).filter(&wanted);
        let (api, all) = (self.api::<K>(namespace), ListParams::default());
        let found = self.cluster.list_pages(K::URL_PATH_SEGMENT, api, all, keep).await;
        self.require(K::URL_PATH_SEGMENT, found).unwrap_or_default()
    }

    /// One object.
    pub async fn get<K: Named + Resource<DynamicType = ()>>(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let api = self.api::<K>(Some(namespace));
        let found = self.cluster.limited(K::URL_PATH_SEGMENT, "get", api.get(name)).await;
        let what = format!("{} {namespace}/{name}", K::URL_PATH_SEGMENT);
        Some(trimmed(&self.require(&what, found)?))
    }

    /// The value of a request. An error is recorded.
    pub fn require<T>(&mut self, what: &str, result: Result<T, impl Into<Error>>) -> Option<T> {
        let mut failed = |error| self.failed(what, &reason(&error));
        result.map_err(|error| failed(error.into())).ok()
    }

    /// Records why something could not be read.
    pub fn failed(&mut self, what: &str, why: &str) {
        self.errors.push(format!("{what}: {}\n", printable(why)));
    }

    fn api<K: Resource<DynamicType = ()>>(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let (client, kind) = (self.cluster.client.clone(), ApiResource::erase::<K>(&()));
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind),
            None => Api::all_with(client, &kind),
        }
    }
}

fn reason(error: &Error) -> String {
    match error.downcast_ref() {
        // A log that does not exist: the container has not started, or its previous log is deleted.
        Some(ApiError::Bug(why)) => why.clone(),
        _ => chain(error.as_ref()),
    }
}

fn trimmed(object: &DynamicObject) -> Value {
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
