//! `pause` and `resume`: set and remove the annotation that stops the cleaning of a PV's volume, or of a node.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api_server::cluster;
use super::fleet;
use super::progress::Progress;
use super::volume::existing_pv;
use crate::args::Pause;
use crate::names::ANNOTATION_PAUSED;

/// How long provisioners may take to apply the pause of their nodes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Pauses (or resumes) a volume, a node, or all nodes that have a provisioner.
///
/// # Errors
/// When an object cannot be changed, or a provisioner does not apply the pause in time.
pub async fn command(
    request: &Pause,
    pauses: bool,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let value = if pauses { json!("true") } else { Value::Null };
    let annotations = json!({ ANNOTATION_PAUSED: value });
    let done = match (pauses, request.dry_run) {
        (true, false) => "paused",
        (false, false) => "resumed",
        (true, true) => "would be paused",
        (false, true) => "would be resumed",
    };
    if let Some(name) = &request.pv {
        let pv = existing_pv(&cluster, name).await?;
        let name = &pv.name;
        if !request.dry_run {
            let metadata = json!({ "annotations": annotations });
            let patched = cluster.patch_pv(&pv.reference(), metadata).await;
            patched.with_context(|| format!("annotating PV {name}"))?;
        }
        writeln!(out, "PV {name}: {done}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let node = request.node.as_deref();
    let namespace = request.provisioners.namespace.as_deref();
    let pods = fleet::provisioners(&cluster, namespace, node).await?;
    let nodes: BTreeSet<_> = pods.into_iter().map(|pod| pod.node).collect();
    for node in nodes.iter().filter(|node| !node.is_empty()) {
        if !request.dry_run {
            let annotated = cluster.annotate_node(node, &annotations).await;
            annotated.with_context(|| format!("annotating node {node}"))?;
        }
        writeln!(out, "node {node}: {done}")?;
    }
    out.flush()?;
    if !pauses || request.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::new(out, TIMEOUT);
    loop {
        let answers = fleet::ask_all(&cluster, namespace, node).await?;
        let mut waiting = answers.iter().filter(|it| it.document["paused"] != true);
        let Some(first) = waiting.next() else {
            return Ok(ExitCode::SUCCESS);
        };
        let cause = first.error().unwrap_or("it has not read the annotation yet");
        let (node, others) = (&first.node, waiting.count());
        let late = format!(
            "the annotation is set, but node {node} and {others} others have not applied it: {cause}"
        );
        progress.wait(&late).await?;
    }
}
