//! Asking for the document.

use std::error::Error;
use std::io;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{Request, Uri};
use kube::{Client, Config};
use serde_json::Value;

use super::Answer;
use super::document::Document;
use crate::cluster::{ApiError, Cluster, ProvisionerPod, chain};

/// A provisioner answers from memory: in milliseconds, or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nodes that are asked at a time.
const CONCURRENCY: usize = 16;

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Not an address.
    #[error("{url} is no address of a server: {cause}")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Nobody listens.
    #[error(
        "nothing listens at {url}: in the pod, the provisioner has not started (see its log) or has another --listen-address; elsewhere, ask with --node NAME or --all"
    )]
    Refused {
        /// Where.
        url: String,
    },
    /// Somebody listens, and is silent.
    #[error(
        "{url} did not answer within {PATIENCE:?}; a provisioner answers at once, so something else listens there, or the process hangs: see its log"
    )]
    Silent {
        /// Where.
        url: String,
    },
    /// Any other failure.
    #[error("asking {url} failed: {cause}")]
    Failed {
        /// Where.
        url: String,
        /// Why.
        cause: String,
    },
}

/// Asks a server.
///
/// # Errors
/// [`AskError`].
pub async fn server(base: &str) -> Result<String, AskError> {
    let url = || format!("{base}/status");
    let address = |error: &dyn Error| AskError::Address {
        url: base.to_owned(),
        cause: chain(error),
    };
    let uri: Uri = base.parse().map_err(|error| address(&error))?;
    let client = Client::try_from(Config::new(uri)).map_err(|error| address(&error))?;
    let request = Request::get("/status")
        .body(Vec::new())
        .map_err(|error| address(&error))?;
    match tokio::time::timeout(PATIENCE, client.request_text(request)).await {
        Err(_) => Err(AskError::Silent { url: url() }),
        Ok(Ok(text)) => Ok(text),
        Ok(Err(kube::Error::Api(status))) => Err(AskError::Failed {
            url: url(),
            cause: format!(
                "it answers with {} {}; does something else listen there?",
                status.code, status.message
            ),
        }),
        Ok(Err(error)) if is_refused(&error) => Err(AskError::Refused { url: url() }),
        Ok(Err(error)) => Err(AskError::Failed {
            url: url(),
            cause: chain(&error),
        }),
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

/// Asks provisioners through the API server.
pub async fn pods(cluster: &Cluster, pods: Vec<ProvisionerPod>) -> Vec<Answer> {
    stream::iter(pods)
        .map(|pod| async move {
            let result = match cluster.provisioner_status(&pod).await {
                Ok(text) => read(&text).map_err(|error| error.to_string()),
                Err(error) => Err(words(error)),
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

/// Reads an answer.
///
/// # Errors
/// When it is none.
pub fn read(text: &str) -> anyhow::Result<(Value, Document)> {
    use super::document::NoStatus;
    let value = serde_json::from_str(text).map_err(|error| NoStatus::Strange(error.to_string()))?;
    let document = Document::read(&value)?;
    Ok((value, document))
}

fn words(error: ApiError) -> String {
    match error {
        ApiError::Forbidden { message, .. } => format!(
            "the right to ask it through the API server is missing ({message}); it takes this rule: apiGroups: [\"\"], resources: [\"pods/proxy\"], verbs: [\"get\"] (docs/status.md)"
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
