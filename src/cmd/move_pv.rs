//! `move`: confirms that the disk of a PV was moved to another node, for classes with `binding: disk`.
//!
//! The provisioner of the other node compares disk, mark and PV, and names the consent that it requires. The command only
//! sets that.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::api_server::cluster;
use super::ask::{confirm, ensure_terminal};
use super::explain::cause;
use super::fleet::{self, Answer};
use super::run::UsageError;
use super::status::show::text;
use super::volume::{self, place, volumes};
use crate::args::Move;
use crate::cluster::Cluster;
use crate::log::printable;
use crate::names::ANNOTATION_CONSENT;
use crate::plan::consents_in;
use crate::view::PvView;

/// A provisioner takes a PV over in its next pass.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_PERIOD: Duration = Duration::from_secs(1);

/// Shows both nodes, asks, and sets the consent.
///
/// # Errors
/// [`UsageError`] if the operator answers no; another error if the other node does not wait for this, or a request failed.
pub async fn command(request: &Move, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let namespace = request.provisioners.namespace.as_deref();
    let pv = volume::pv(&cluster, &request.pv).await?;
    let pv = pv.ok_or_else(|| anyhow!("there is no PersistentVolume {}", request.pv))?;
    let (name, to) = (&pv.name, &request.to);
    ensure!(
        pv.link.is_some(),
        "PV {name} names a path, not a disk (binding: path), so it cannot move with its disk; nothing was changed"
    );
    let answers = fleet::ask_all(&cluster, namespace, None).await?;
    show(&pv, &answers, out)?;
    if taken_over(&answers, &pv, to).is_some() {
        writeln!(out, "PV {name} is on node {to}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let consent = consent(&answers, &pv, to)?;
    if request.dry_run {
        writeln!(out, "the consent would be {consent}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !request.yes {
        out.flush()?;
        ensure_terminal().map_err(|error| UsageError(error.to_string()))?;
        let question = format!(
            "If the former node still uses the disk, its data is destroyed. If the disk is detached from it, type {to}: "
        );
        confirm(question, to.as_bytes(), "that is another answer")
            .await
            .map_err(|error| UsageError(format!("{error}; nothing was changed")))?;
    }
    let metadata = json!({ "annotations": { ANNOTATION_CONSENT: consent } });
    let given = cluster.patch_pv(&pv.reference(), metadata).await;
    given.with_context(|| format!("annotating PV {name}"))?;
    let place = until_taken_over(&cluster, request, &pv).await?;
    writeln!(out, "{}", printable(&format!("PV {name} is on {place}")))?;
    Ok(ExitCode::SUCCESS)
}

/// What each node reports about the PV.
fn show(pv: &PvView, answers: &[Answer], out: &mut dyn Write) -> Result<()> {
    let claim = pv.claim.as_ref().map(ToString::to_string);
    let mut lines = vec![format!("{}: claim {}", pv.name, claim.unwrap_or_default())];
    for (answer, _, report) in volumes(answers) {
        if text(report, "pv") == pv.name || concerns(report, pv) {
            let (place, state) = (place(&answer.node, report), text(report, "state"));
            lines.push(format!("  {place}: {state} {}", cause(report)));
        }
    }
    let errors = answers.iter().filter_map(Answer::error);
    lines.extend(errors.map(|error| format!("  not known: {error}")));
    for line in lines {
        writeln!(out, "{}", printable(line.trim_end()))?;
    }
    Ok(())
}

/// Whether an entry waits because its disk is that of the PV.
fn concerns(report: &Value, pv: &PvView) -> bool {
    text(report, "reason") == "IdentityOnOtherPV"
        && text(report, "detail").contains(&format!("PV {} ", pv.name))
}

/// NODE:PATH of the PV on this node, if its provisioner manages it.
fn taken_over(answers: &[Answer], pv: &PvView, node: &str) -> Option<String> {
    let of_node = answers.iter().filter(|answer| answer.node == node);
    let mut found = volumes(of_node).filter(|(_, _, report)| text(report, "pv") == pv.name);
    found
        .next()
        .map(|(answer, _, report)| place(&answer.node, report))
}

/// The consent for which the provisioner of a node waits.
fn consent(answers: &[Answer], pv: &PvView, node: &str) -> Result<String> {
    let of_node = answers.iter().filter(|answer| answer.node == node);
    let found = volumes(of_node).find(|(_, _, report)| concerns(report, pv));
    let Some((_, _, report)) = found else {
        bail!(
            "node {node} reports no volume with the disk of PV {}: mount it in the directory of class {}, and see list --node {node}",
            pv.name,
            pv.class
        );
    };
    let consents: Vec<_> = consents_in(text(report, "detail")).collect();
    let is_waited_for = consents.iter().any(|consent| consent.starts_with("move:"));
    ensure!(
        is_waited_for,
        "the provisioner of node {node} waits for something else first: {}",
        cause(report)
    );
    Ok(consents.join(","))
}

async fn until_taken_over(cluster: &Cluster, request: &Move, pv: &PvView) -> Result<String> {
    let (node, namespace) = (&*request.to, request.provisioners.namespace.as_deref());
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answers = fleet::ask_all(cluster, namespace, Some(node)).await?;
        if let Some(place) = taken_over(&answers, pv, node) {
            return Ok(place);
        }
        ensure!(
            Instant::now() < deadline,
            "the consent is given, but node {node} has not taken PV {} over yet; see list --node {node}",
            pv.name
        );
        sleep(POLL_PERIOD).await;
    }
}
