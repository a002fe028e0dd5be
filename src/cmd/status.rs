//! `status`: shows `/status` of provisioners as a table. It changes nothing.

mod ask;
mod document;
mod show;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::run::client;
use super::table;
use crate::args::{Args, OutputFormat, Status};
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use document::Document;

/// The answer of one provisioner, or the reason for its absence.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its node.
    pub node: String,
    /// Its pod, with the namespace; empty if it was asked by address.
    pub pod: String,
    /// Its document.
    pub result: Result<Document, String>,
}

impl Answer {
    fn is_well(&self) -> bool {
        self.result.as_ref().is_ok_and(Document::is_well)
    }

    /// The reasons why it is not well, and the volumes that require an operator.
    fn problems(&self) -> Vec<String> {
        match &self.result {
            Ok(document) => document.problems(),
            Err(why) => vec![format!("pod {}: {why}", self.pod)],
        }
    }
}

/// Requests and shows the status. The exit code is 0 if all provisioners are ready.
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
        let here = request.listen_address.as_ref();
        let here = here.unwrap_or(&args.listen_address);
        let base = match &request.url {
            Some(url) => url.clone(),
            None => format!("http://{}", here.reachable()).parse()?,
        };
        let document = ask::server(base).await?;
        vec![Answer {
            node: document.node.clone(),
            pod: String::new(),
            result: Ok(document),
        }]
    };
    let text = text(request, &answers)?;
    out.write_all(text.as_bytes())
        .context("writing the result")?;
    Ok(if answers.iter().all(Answer::is_well) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn through_api_server(request: &Status) -> Result<Vec<Answer>> {
    let namespace = request.namespace.as_deref();
    let place = match (&request.node, namespace) {
        (Some(node), _) => format!("on node {node:?}"),
        (None, Some(namespace)) => format!("in namespace {namespace}"),
        (None, None) => "in any namespace".to_owned(),
    };
    let cluster = Cluster::new(client().await?, Arc::new(Metrics::new()?));
    let mut pods = cluster.provisioners(namespace).await.with_context(|| {
        format!("looking for provisioners {place} (docs/status.md has the permissions; with those in one namespace only, add --namespace)")
    })?;
    pods.retain(|pod| request.node.as_ref().is_none_or(|node| *node == pod.node));
    anyhow::ensure!(
        !pods.is_empty(),
        "no provisioner's pod runs {place}; check the name, the cluster (KUBECONFIG), and docs/why-no-pv.md"
    );
    let mut answers = ask::pods(&cluster, pods).await;
    answers.sort_by(|a, b| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)));
    Ok(answers)
}

fn text(request: &Status, answers: &[Answer]) -> Result<String> {
    // `--all` shows a list even for one node.
    let only = match answers {
        [only] if !request.all => only.result.as_ref().ok(),
        _ => None,
    };
    match (request.output, only) {
        (OutputFormat::Table, Some(document)) => Ok(show::node(document, request.problems)),
        (OutputFormat::Table, None) => Ok(show::nodes(answers, request.problems)),
        (format, Some(document)) => table::structured(format, &document.received),
        (format, None) => table::structured(format, &list(answers)),
    }
}

fn list(answers: &[Answer]) -> Value {
    let nodes = answers
        .iter()
        .map(|Answer { node, pod, result }| match result {
            Ok(document) => json!({ "node": node, "pod": pod, "status": document.received }),
            Err(why) => json!({ "node": node, "pod": pod, "error": why }),
        });
    let nodes: Vec<_> = nodes.collect();
    json!({ "nodes": nodes })
}

#[cfg(test)]
mod tests;
