//! The API server of a command: the kubeconfig, its context, and the client.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

use super::run::UsageError;
use crate::args::ApiServer;
use crate::cluster::{Cluster, retries};
use crate::errors::chain;
use crate::metrics::Metrics;

/// The number of requests that can wait to be sent, as in the buffer of the client itself.
const REQUEST_BACKLOG: usize = 1024;

/// The API server of a command line, or of the environment, for a command that serves no metrics.
///
/// # Errors
/// [`UsageError`] if there is none.
pub async fn cluster(args: &ApiServer) -> Result<Cluster> {
    let client = client_of(config(args).await?)?;
    Ok(Cluster::new(client, Arc::new(Metrics::new()?)))
}

/// The client configuration.
///
/// # Errors
/// [`UsageError`] with the remedy.
pub(super) async fn config(args: &ApiServer) -> Result<Config> {
    let (path, context) = (args.kubeconfig.as_deref(), &args.context);
    if path.is_none() && context.is_none() {
        let inferred = Config::infer().await;
        return Ok(inferred.map_err(|error| {
            let cause = cause(&error);
            UsageError(format!(
                "no API server is configured: {cause}. Run in a pod with a service account, or set KUBECONFIG"
            ))
        })?);
    }
    let read = read(path, context.clone()).await;
    Ok(read.map_err(|error| {
        let path = path.map(|path| format!(" --kubeconfig {}", path.display()));
        let context = context.iter().map(|name| format!(" --context {name}"));
        let options: String = path.into_iter().chain(context).collect();
        UsageError(format!("{}: {}", options.trim_start(), cause(&error)))
    })?)
}

async fn read(path: Option<&Path>, context: Option<String>) -> Result<Config, KubeconfigError> {
    let file = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from)?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await
}

/// An error with all its causes. That of the parser of a kubeconfig is omitted: it quotes lines, which have tokens.
fn cause(error: &(dyn Error + 'static)) -> String {
    match error.source().unwrap_or(error).downcast_ref() {
        Some(KubeconfigError::Parse(_)) => {
            "the kubeconfig is not valid; run kubectl config view".into()
        }
        _ => chain(error),
    }
}

/// The UID of the cluster, if the namespace kube-system can be read.
///
/// # Errors
/// When the request failed.
pub(super) async fn uid_of(cluster: &Cluster) -> Result<Option<String>> {
    let origin = &cluster.origin;
    origin.compare(&ObjectReference::default(), true);
    let known = cluster.ensure_known().await;
    known.context("reading the namespace kube-system")?;
    Ok(origin.uid())
}

/// A client of this cluster, with our retry policy instead of the default one.
pub(super) fn client_of(mut config: Config) -> Result<Client> {
    config.default_retry = false;
    let retries = retries().context("creating the API client")?;
    let client = ClientBuilder::try_from(config).context("creating the API client")?;
    // The retry layer requires a service that can be cloned.
    let client = client.with_layer(&BufferLayer::new(REQUEST_BACKLOG));
    Ok(client.with_layer(&RetryLayer::new(retries)).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_kubeconfig_has_no_line_of_it() {
        for text in
            ["users:\n- name: a\n  user: {token: s3cret", "users: s3cret", "clusters: [s3cret]"]
        {
            let parsed = Kubeconfig::from_yaml(text).unwrap_err();
            let message = cause(&parsed);
            assert!(message.contains("kubectl"), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }

    #[tokio::test]
    async fn missing_kubeconfig_and_context_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let args = ApiServer { kubeconfig: Some(path.clone()), context: Some("elsewhere".into()) };
        let error = config(&args).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("--kubeconfig {}", path.display())), "{error}");
        assert!(error.contains("--context elsewhere"), "{error}");
        std::fs::write(&path, "contexts: []").unwrap();
        let error = config(&args).await.unwrap_err().to_string();
        assert!(error.contains("elsewhere"), "{error}");
    }
}
