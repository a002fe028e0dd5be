//! The status of provisioners: `/status` of one by its address, or of many through the API server.

use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use futures::{StreamExt, stream};
use http::Request;
use kube::api::ListParams;
use kube::{Client, Config};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster::{Cluster, PodView};
use crate::errors::chain;

/// The version of the document that this program knows.
const VERSION: u64 = 1;
/// The error for the answer of another program or version.
const NOT_A_STATUS: &str = "the answer is not the status of a provisioner of this version";
/// A provisioner answers from memory, so it usually answers within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of concurrent requests.
const CONCURRENCY: usize = 16;

/// The status of one provisioner.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Answer {
    pub node: String,
    /// Its pod, with the namespace; empty if it was asked by address.
    pub pod: String,
    /// The document of `/status`. If there is none, it has the reason in `notReady`.
    #[serde(rename = "status")]
    pub document: Value,
}

impl Answer {
    /// Why there is no document.
    pub fn error(&self) -> Option<&str> {
        let has_document = self.document["classes"].is_array();
        self.document["notReady"][0].as_str().filter(|_| !has_document)
    }
}

/// Requests the document from a server.
pub(super) async fn ask(url: &str) -> Result<Value> {
    let mut config = Config::new(url.parse()?);
    // Plain HTTP requires no CA certificates, which an image may not have.
    config.root_cert = Some(Vec::new());
    let client = Client::try_from(config)?;
    let request = Request::get("/status").body(Vec::new())?;
    document(&timeout(TIMEOUT, client.request_text(request)).await??)
}

/// Parses an answer; an error if it comes from another program or has another version.
pub(super) fn document(answer: &str) -> Result<Value> {
    let document: Value = serde_json::from_str(answer).context(NOT_A_STATUS)?;
    let version = &document["schemaVersion"];
    ensure!(*version == VERSION, "{NOT_A_STATUS}: its schemaVersion is {version}, not {VERSION}");
    Ok(document)
}

/// The pods of the provisioners in a namespace and on a node, or of all.
///
/// # Errors
/// Also when there is none.
pub(super) async fn provisioners(
    cluster: &Cluster,
    namespace: Option<&str>,
    node: Option<&str>,
) -> Result<Vec<PodView>> {
    let is_wanted = |pod: &PodView| pod.is_provisioner && !pod.terminal;
    let on_node = node.map(|node| ListParams::default().fields(&format!("spec.nodeName={node}")));
    let pods = cluster.pods(namespace, on_node.unwrap_or_default(), is_wanted).await.context("looking for provisioners (docs/status.md has the permissions; with those in one namespace only, add --namespace)")?;
    let on = node.map_or_else(String::new, |node| format!(" on node {node:?}"));
    ensure!(
        !pods.is_empty(),
        "no provisioner's pod was found{on}: check the node's name, --namespace, the cluster (KUBECONFIG), and docs/why-no-pv.md"
    );
    Ok(pods)
}

/// Requests the documents of the provisioners in a namespace and on a node, or of all, through the API server. They are
/// in the order of their nodes.
///
/// # Errors
/// When there is no provisioner. One that does not answer is no error.
pub(super) async fn ask_all(
    cluster: &Cluster,
    namespace: Option<&str>,
    node: Option<&str>,
) -> Result<Vec<Answer>> {
    Ok(ask_pods(cluster, provisioners(cluster, namespace, node).await?).await)
}

/// Requests the documents of these provisioners.
pub(super) async fn ask_pods(cluster: &Cluster, pods: Vec<PodView>) -> Vec<Answer> {
    let answers = stream::iter(pods).map(|pod| ask_pod(cluster, pod));
    let mut answers: Vec<_> = answers.buffer_unordered(CONCURRENCY).collect().await;
    answers.sort_by(|a, b| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)));
    answers
}

async fn ask_pod(cluster: &Cluster, pod: PodView) -> Answer {
    let asked = async { document(&cluster.provisioner_status(&pod.name).await?) };
    let document = asked.await.unwrap_or_else(|error: Error| {
        let (name, why) = (&pod.name, chain(error.as_ref()));
        let not_ready =
            format!("pod {name}: {why} (docs/status.md has the permissions and the causes)");
        json!({ "node": pod.node, "ready": false, "notReady": [not_ready] })
    });
    Answer { node: pod.node, pod: pod.name, document }
}
