//! `status`: shows `/status` of provisioners as a table. It changes nothing.

mod ask;
mod document;
mod fleet;
mod node;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::release::provisioners::running;
use super::run::{UsageError, client};
use super::table::printable;
use crate::args::{Args, Environment, OutputFormat, Status};
use crate::cluster::{ApiError, Cluster};
use crate::metrics::Metrics;
use crate::terminal;
use document::{Concern, Document, Volume};

/// The answer of one provisioner, or the reason for its absence.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its node.
    pub node: String,
    /// Its pod, with the namespace; empty if it was asked by address.
    pub pod: String,
    /// The document as received and as parsed.
    pub result: Result<(Value, Document), String>,
}

impl Answer {
    fn document(&self) -> Option<&Document> {
        self.result.as_ref().ok().map(|(_, document)| document)
    }

    fn is_well(&self) -> bool {
        self.document().is_some_and(Document::is_well)
    }

    fn has_problems(&self) -> bool {
        let has = |document: &Document| !document.is_well() || document.troubles() > 0;
        self.document().is_none_or(has)
    }
}

/// Requests and shows the status. The exit code is 0 if all provisioners are ready.
///
/// # Errors
/// When no provisioner could be asked, or the output cannot be written.
pub async fn command(
    request: &Status,
    args: &Args,
    environment: &Environment,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let from_outside = request.all || request.node.is_some();
    if request.namespace.is_some() && !from_outside {
        return Err(UsageError("--namespace requires --node or --all".into()).into());
    }
    let answers = if from_outside {
        through_api_server(request, environment).await?
    } else {
        let here = request.listen_address.as_ref();
        let here = here.unwrap_or(&args.listen_address);
        let base = request.url.as_ref().map_or_else(
            || format!("http://{}", here.reachable()),
            ToString::to_string,
        );
        let (value, document) =
            ask::read(&ask::server(&base).await?).with_context(|| format!("{base}/status"))?;
        vec![Answer {
            node: document.node.clone(),
            pod: String::new(),
            result: Ok((value, document)),
        }]
    };
    let colours = terminal::colours(&io::stdout());
    match write(request, &answers, colours, out) {
        // The reader, such as `head`, has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("writing the result")?,
    }
    Ok(if answers.iter().all(Answer::is_well) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn through_api_server(request: &Status, environment: &Environment) -> Result<Vec<Answer>> {
    let known = (!environment.namespace_defaulted).then_some(environment.namespace.as_str());
    let wanted = request.namespace.as_deref();
    let cluster = Cluster::new(client().await?, Arc::new(Metrics::new()?));
    let (found, place) = match wanted {
        Some(name) => {
            let found = cluster.provisioners(wanted).await;
            (found, format!("in namespace {name}"))
        }
        None => running(&cluster, known).await,
    };
    let mut pods = found.map_err(|error| match error {
        ApiError::Forbidden { .. } => anyhow::anyhow!(
            "looking for provisioners {place}: {error}; name the namespace with --namespace, or get the permissions in docs/status.md"
        ),
        error => anyhow::Error::from(error).context(format!("looking for provisioners {place}")),
    })?;
    if let Some(node) = &request.node {
        pods.retain(|pod| pod.node == *node);
        anyhow::ensure!(
            !pods.is_empty(),
            "no provisioner's pod runs on node {node:?} ({place}); see docs/why-no-pv.md, and check the node's name with kubectl get nodes"
        );
    }
    anyhow::ensure!(
        !pods.is_empty(),
        "no provisioner's pod runs {place}; is this the right cluster (KUBECONFIG)?"
    );
    let mut answers = ask::pods(&cluster, pods).await;
    answers.sort_by(|a, b| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)));
    Ok(answers)
}

fn write(
    request: &Status,
    answers: &[Answer],
    colours: bool,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    // `--all` shows a list even for one node.
    let only = match answers {
        [only] if !request.all => only.result.as_ref().ok(),
        _ => None,
    };
    let text = match (request.output, only) {
        (OutputFormat::Table, Some((_, document))) => {
            node::show(document, request.problems, colours)
        }
        (OutputFormat::Table, None) => fleet::show(answers, request.problems, colours),
        (format, only) => {
            let value = match only {
                Some((value, _)) => shown(value, request.problems),
                None => list(answers, request.problems),
            };
            match format {
                OutputFormat::Yaml => serde_saphyr::to_string(&value).map_err(io::Error::other)?,
                _ => format!("{value:#}\n"),
            }
        }
    };
    out.write_all(text.as_bytes())
}

fn list(answers: &[Answer], problems: bool) -> Value {
    let wanted = answers.iter().filter(|it| !problems || it.has_problems());
    let nodes = wanted.map(|Answer { node, pod, result }| match result {
        Ok((value, _)) => json!({ "node": node, "pod": pod, "status": shown(value, problems) }),
        Err(why) => json!({ "node": node, "pod": pod, "error": printable(why) }),
    });
    let nodes: Vec<_> = nodes.collect();
    json!({ "nodes": nodes })
}

/// The document as received, or reduced to the volumes with problems.
fn shown(document: &Value, problems: bool) -> Value {
    let mut document = document.clone();
    if let (true, Some(classes)) = (problems, document["classes"].as_array_mut()) {
        let is_trouble = |volume: &Value| {
            Volume::deserialize(volume).is_ok_and(|volume| volume.concern() == Concern::Trouble)
        };
        for class in classes {
            if let Some(volumes) = class["volumes"].as_array_mut() {
                volumes.retain(is_trouble);
            }
        }
    }
    document
}

#[cfg(test)]
mod tests;
