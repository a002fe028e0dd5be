//! `approve`: permits a node to take in blank disks, as listed. It touches no disk.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::api_server::cluster;
use super::ask::{OTHER_ANSWER, confirm};
use super::fleet::{self, Answer};
use super::run::UsageError;
use super::status::show::{disks, list, printed, text};
use crate::args::Approve;
use crate::names::APPROVE_PREFIX;

/// Shows the disks, asks, and sets the annotations of the Node.
///
/// # Errors
/// [`UsageError`] if no disk waits for an approval; another error if a request failed.
pub async fn command(request: &Approve, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let (node, namespace) = (&request.node, request.provisioners.namespace.as_deref());
    let answers = fleet::ask_all(&cluster, namespace, Some(node)).await?;
    if let Some(error) = answers.iter().find_map(Answer::error) {
        bail!("the provisioner of node {node} does not answer: {error}");
    }
    let classes = answers.iter().flat_map(|it| list(&it.document, "classes"));
    let is = |wanted: &Option<String>, it: &str| wanted.as_ref().is_none_or(|wanted| wanted == it);
    let classes = classes.filter(|it| is(&request.class, text(it, "name")));
    let mut annotations = Map::new();
    let mut count = 0;
    for class in classes {
        let hash = text(class, "toApprove");
        if hash.is_empty() || !is(&request.plan, hash) {
            continue;
        }
        let table = disks(class).lines().map(str::to_owned).collect::<Vec<_>>();
        writeln!(out, "class {}\n{}", text(class, "name"), printed(&table))?;
        count += list(class, "disks").filter(|it| is_taken(it)).count();
        let key = format!("{APPROVE_PREFIX}{}", text(class, "name"));
        annotations.insert(key, json!(hash));
    }
    ensure!(
        count > 0,
        UsageError(format!(
            "no such disk of node {node} waits for an approval; status --node {node} shows its disks"
        ))
    );
    if request.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !request.yes && request.plan.is_none() {
        let count = count.to_string();
        let question =
            format!("Claims can bind to these disks then. To go on, type their number, {count}: ");
        confirm(out, question, &count, OTHER_ANSWER).await?;
    }
    let annotated = cluster.annotate_node(node, &annotations.into()).await;
    annotated.with_context(|| format!("annotating node {node}"))?;
    writeln!(out, "node {node}: approved; the provisioner takes them in within seconds")?;
    Ok(ExitCode::SUCCESS)
}

fn is_taken(disk: &Value) -> bool {
    disk["leftAlone"].is_null()
}
