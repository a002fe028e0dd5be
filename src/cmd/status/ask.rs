//! Requests the document of `/status`.

use std::error::Error;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use http::{Request, Uri};
use kube::{Client, Config};
use serde_json::Value;

use super::Answer;
use super::document::{Document, NOT_A_STATUS};
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
pub async fn server(base: &str) -> Result<String> {
    let url = format!("{base}/status");
    let uri: Uri = base
        .parse()
        .with_context(|| format!("{base} is no address of a server"))?;
    let client = Client::try_from(Config::new(uri))?;
    let request = Request::get("/status").body(Vec::new())?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(text)) => Ok(text),
        Err(_) => bail!(
            "{url} did not answer within {TIMEOUT:?}; a provisioner answers at once, so another program listens there, or the process hangs: see its log"
        ),
        Ok(Err(kube::Error::Api(status))) => bail!(
            "asking {url} failed: it answers with {} {}; does another program listen there?",
            status.code,
            status.message
        ),
        Ok(Err(error)) if is_refused(&error) => bail!(
            "nothing listens at {url}: in the pod, the provisioner has not started (see its log) or has another --listen-address; elsewhere, ask with --node NAME or --all"
        ),
        Ok(Err(error)) => bail!("asking {url} failed: {}", chain(&error)),
    }
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Requests the documents of provisioners through the API server.
pub async fn pods(cluster: &Cluster, pods: Vec<ProvisionerPod>) -> Vec<Answer> {
    stream::iter(pods)
        .map(|pod| async move {
            let result = match cluster.provisioner_status(&pod).await {
                Ok(text) => read(&text).map_err(|error| chain(error.as_ref())),
                Err(error) => Err(explain(error)),
            };
            Answer {
                node: pod.node,
                pod: pod.name,
                result,
            }
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await
}

/// Parses an answer.
///
/// # Errors
/// When it is not the document of a provisioner.
pub fn read(text: &str) -> Result<(Value, Document)> {
    let value = serde_json::from_str(text).context(NOT_A_STATUS)?;
    let document = Document::read(&value)?;
    Ok((value, document))
}

fn explain(error: ApiError) -> String {
    match error {
        ApiError::Forbidden { message, .. } => format!(
            "the permission to ask it through the API server is missing ({message}); it requires this rule: apiGroups: [\"\"], resources: [\"pods/proxy\"], verbs: [\"get\"] (docs/status.md)"
        ),
        ApiError::NotFound => {
            "it has no /status, or the pod is gone; is it the Go provisioner?".into()
        }
        ApiError::Failed(why) => format!(
            "{why} (is it starting? does it listen on another address than the pod's? may the API server reach it?)"
        ),
        error => error.to_string(),
    }
}
