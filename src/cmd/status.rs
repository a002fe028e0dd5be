//! `status`: shows `/status` of provisioners as a table. It changes nothing.

pub(super) mod show;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use futures::{StreamExt, stream};
use http::Request;
use kube::api::ListParams;
use kube::{Client, Config};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::run::cluster;
use super::table::structured;
use crate::args::{Args, OutputFormat, Status};
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
struct Answer {
    node: String,
    /// Its pod, with the namespace; empty if it was asked by address.
    pod: String,
    /// The document of `/status`. If there is none, it has the reason in `notReady`.
    #[serde(rename = "status")]
    document: Value,
}

/// Requests and shows the status. The exit code is 0 if all provisioners are ready, and no volume has a problem.
///
/// # Errors
/// When no provisioner could be asked, or the output cannot be written.
pub async fn command(
    request: &Status,
    args: &Args,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let answers = if request.all || request.node.is_some() {
        through_api_server(request).await?
    } else {
        let address = &args.listen_address;
        let port = address.strip_prefix(':');
        let here = port.map(|port| format!("127.0.0.1:{port}"));
        let url = format!("http://{}", here.as_ref().unwrap_or(address));
        let asked = ask(&url).await.with_context(|| {
            format!("asking {url} failed (in the pod: has the provisioner started, and with this --listen-address? elsewhere: ask with --node NAME or --all)")
        });
        let document = asked?;
        vec![Answer {
            node: show::text(&document, "node").to_owned(),
            pod: String::new(),
            document,
        }]
    };
    let text = text(request, &answers)?;
    out.write_all(text.as_bytes())
        .context("writing the result")?;
    let is_well = answers.iter().all(|it| show::is_well(&it.document));
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// Requests the document from a server.
async fn ask(url: &str) -> Result<Value> {
    let mut config = Config::new(url.parse()?);
    // Plain HTTP requires no CA certificates, which an image may not have.
    config.root_cert = Some(Vec::new());
    let client = Client::try_from(config)?;
    let request = Request::get("/status").body(Vec::new())?;
    document(&timeout(TIMEOUT, client.request_text(request)).await??)
}

/// Parses an answer; an error if it comes from another program or has another version.
fn document(answer: &str) -> Result<Value> {
    let document: Value = serde_json::from_str(answer).context(NOT_A_STATUS)?;
    let version = &document["schemaVersion"];
    ensure!(
        *version == VERSION,
        "{NOT_A_STATUS}: its schemaVersion is {version}, not {VERSION}"
    );
    Ok(document)
}

async fn through_api_server(request: &Status) -> Result<Vec<Answer>> {
    let namespace = request.namespace.as_deref();
    let cluster = cluster().await?;
    let is_wanted = |pod: &PodView| {
        let is_on_node = request.node.as_ref().is_none_or(|node| *node == pod.node);
        pod.is_provisioner && !pod.terminal && is_on_node
    };
    let pods = cluster.pods(namespace, ListParams::default(), is_wanted);
    let pods = pods.await.context("looking for provisioners (docs/status.md has the permissions; with those in one namespace only, add --namespace)")?;
    ensure!(
        !pods.is_empty(),
        "no provisioner's pod was found: check --node, --namespace, the cluster (KUBECONFIG), and docs/why-no-pv.md"
    );
    let answers = stream::iter(pods).map(|pod| ask_pod(&cluster, pod));
    let mut answers: Vec<_> = answers.buffer_unordered(CONCURRENCY).collect().await;
    answers.sort_by(|a, b| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)));
    Ok(answers)
}

async fn ask_pod(cluster: &Cluster, pod: PodView) -> Answer {
    let asked = async { document(&cluster.provisioner_status(&pod.name).await?) };
    let document = asked.await.unwrap_or_else(|error: Error| {
        let (name, why) = (&pod.name, chain(error.as_ref()));
        let not_ready =
            format!("pod {name}: {why} (docs/status.md has the permissions and the causes)");
        json!({ "node": pod.node, "ready": false, "notReady": [not_ready] })
    });
    Answer {
        node: pod.node,
        pod: pod.name,
        document,
    }
}

fn text(request: &Status, answers: &[Answer]) -> Result<String> {
    // `--all` shows a list even for one node.
    match (request.output, answers) {
        (OutputFormat::Table, [only]) if !request.all => Ok(show::node(&only.document)),
        (OutputFormat::Table, _) => Ok(show::nodes(answers)),
        (format, [only]) if !request.all => structured(format, &only.document),
        (format, _) => structured(format, &json!({ "nodes": answers })),
    }
}

#[cfg(test)]
mod tests;
