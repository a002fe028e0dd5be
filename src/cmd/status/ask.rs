//! Requests the document of `/status`.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use http::{Request, Uri};
use kube::{Client, Config};
use tokio::time::timeout;

use super::Answer;
use super::document::Document;
use crate::cluster::{ApiError, Cluster, ProvisionerPod};
use crate::errors::chain;

/// A provisioner answers from memory, so it usually answers within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of concurrent requests.
const CONCURRENCY: usize = 16;

/// Requests the document from a server.
///
/// # Errors
/// Why there is no answer, with the remedy.
pub async fn server(base: Uri) -> Result<Document> {
    let answer = request(base.clone()).await;
    let document = answer.and_then(|text| Document::read(&text));
    document.with_context(|| {
        format!("asking {base} failed (in the pod: has the provisioner started, and with this --listen-address? elsewhere: ask with --node NAME or --all)")
    })
}

async fn request(base: Uri) -> Result<String> {
    let client = Client::try_from(Config::new(base))?;
    let request = Request::get("/status").body(Vec::new())?;
    Ok(timeout(TIMEOUT, client.request_text(request)).await??)
}

/// Requests the documents of provisioners through the API server.
pub async fn pods(cluster: &Cluster, pods: Vec<ProvisionerPod>) -> Vec<Answer> {
    stream::iter(pods)
        .map(|pod| async move {
            let answer = cluster.provisioner_status(&pod).await;
            let document = answer
                .map_err(explain)
                .and_then(|text| Document::read(&text).map_err(|error| chain(error.as_ref())));
            Answer {
                node: pod.node,
                pod: pod.name,
                result: document,
            }
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await
}

fn explain(error: ApiError) -> String {
    match error {
        ApiError::Forbidden { message, .. } => format!(
            "the permission to ask it through the API server is missing ({message}); it requires this rule: apiGroups: [\"\"], resources: [\"pods/proxy\"], verbs: [\"get\"] (docs/status.md)"
        ),
        error => {
            format!("{error} (is it starting, or the Go provisioner? may the API server reach it?)")
        }
    }
}
