//! The API, spoken to over HTTP as any client would.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use control_plane::{ControlPlane, NodeOptions, Options};
use http::{Method, Request, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use support::Sandbox;
use tokio::runtime::Runtime;

use crate::printer::columns;

/// The node of the story.
pub const NODE: &str = "node-1";
/// The namespace of everything that has one.
pub const NAMESPACE: &str = "default";

/// Where the objects of the story are.
pub const PVS: &str = "/api/v1/persistentvolumes";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

const JSON: &str = "application/json";
/// What `kubectl` asks for when it prints a table.
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// How long anything may take that ought to happen at once.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A control plane with one node, and a client of it. All methods block: the story has one thread.
pub struct Cluster {
    control_plane: ControlPlane,
    client: Client,
    runtime: Runtime,
}

impl Cluster {
    /// Starts it, and writes a kubeconfig for it into the sandbox, which takes it along when it goes.
    pub fn start(sandbox: &Sandbox) -> Result<Self> {
        let control_plane = ControlPlane::start(Options {
            node: Some(NodeOptions::new(NODE)),
            kubeconfig: Some(sandbox.path().join("kubeconfig")),
            ..Options::default()
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self { control_plane, client, runtime })
    }

    /// Where it serves.
    pub fn url(&self) -> &str {
        self.control_plane.url()
    }

    /// Makes an object.
    pub fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.ask(Method::POST, collection, JSON, object)
    }

    /// Deletes an object, without waiting for its removal.
    pub fn delete(&self, collection: &str, name: &str) -> Result<()> {
        let path = format!("{collection}/{name}");
        self.ask(Method::DELETE, &path, JSON, &json!({})).map(drop)
    }

    /// Removes an object at once, whatever protects it.
    pub fn lose(&self, collection: &str, name: &str) -> Result<()> {
        self.delete(collection, name)?;
        let path = format!("{collection}/{name}");
        let unprotected = json!({ "metadata": { "finalizers": null } });
        self.ask(Method::PATCH, &path, JSON, &unprotected).map(drop)
    }

    /// All objects of a collection.
    pub fn list(&self, collection: &str) -> Result<Vec<Value>> {
        let mut list = self.ask(Method::GET, collection, JSON, &Value::Null)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("{collection} has no items"),
        }
    }

    /// A collection as `kubectl get` shows it, with those of its columns that fit a terminal.
    pub fn table(&self, collection: &str, wanted: &[&str]) -> Result<String> {
        let table = self.ask(Method::GET, collection, AS_TABLE, &Value::Null)?;
        let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let headings: Vec<String> = array(&table["columnDefinitions"])
            .iter()
            .map(|column| column["name"].as_str().unwrap_or_default().to_uppercase())
            .collect();
        let chosen: Vec<usize> =
            wanted.iter().filter_map(|name| headings.iter().position(|h| h == name)).collect();
        let mut rows = vec![chosen.iter().map(|&at| headings[at].clone()).collect::<Vec<_>>()];
        rows.extend(array(&table["rows"]).iter().map(|row| {
            chosen.iter().map(|&at| row["cells"][at].as_str().unwrap_or_default().into()).collect()
        }));
        Ok(columns(&rows))
    }

    /// Waits until something is so.
    pub fn eventually<T>(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let seen = || is_so(self).transpose();
        support::until(TIMEOUT, Duration::from_millis(2), seen).unwrap_or_else(|| {
            bail!("after {} s there is still no {what}", TIMEOUT.as_secs());
        })
    }

    /// Runs a future to its end.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn ask(&self, method: Method, path: &str, accept: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let what = format!("{method} {path}");
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { JSON };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content_type)
            .body(body)?;
        self.block_on(self.client.request(request)).context(what)
    }
}

/// Whether a PV can be bound.
pub fn is_available(pv: &Value) -> bool {
    text(pv, "/status/phase") == "Available" && text(pv, "/metadata/deletionTimestamp").is_empty()
}

/// The text at a JSON pointer, empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
