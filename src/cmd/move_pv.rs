//! `move`: confirms that the disk of a PV was moved to another node, for classes with `binding: disk`.
//!
//! The provisioner of the other node compares disk, mark and PV, and names the consent that it requires. The command only
//! sets that.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::api_server::cluster;
use super::ask::{OTHER_ANSWER, confirm};
use super::explain::cause;
use super::fleet::{self, Answer};
use super::progress::Progress;
use super::status::show::text;
use super::volume::{Volume, ensure_detached, existing_pv, volumes};
use crate::args::Move;
use crate::log::printable;
use crate::names::ANNOTATION_CONSENT;
use crate::plan::consents_in;
use crate::view::PvView;

/// A provisioner takes a PV over in its next pass.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Shows both nodes, asks, and sets the consent.
///
/// # Errors
/// A usage error if the operator answers no; another error if the other node does not wait for this, or a request failed.
pub async fn command(request: &Move, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let namespace = request.provisioners.namespace.as_deref();
    let pv = existing_pv(&cluster, &request.pv).await?;
    let (name, to) = (&pv.name, &request.to);
    ensure!(
        pv.link.is_some(),
        "PV {name} names a path, not a disk (binding: path), so it cannot move with its disk; nothing was changed"
    );
    let answers = fleet::ask_all(&cluster, namespace, None).await?;
    let claim = pv.claim.as_ref().map(ToString::to_string);
    writeln!(out, "{name}: claim {}", claim.unwrap_or_default())?;
    for line in places(name, &answers, |report| concerns(report, &pv)) {
        writeln!(out, "{}", printable(&line))?;
    }
    if taken_over(&answers, &pv, to).is_some() {
        writeln!(out, "PV {name} is on node {to}")?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure_detached(&answers, name, |it| it.node == *to)?;
    let consent = consent(&answers, &pv, to)?;
    if request.dry_run {
        writeln!(out, "the consent would be {consent}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !request.yes {
        let question = format!(
            "If the former node still uses the disk, its data is destroyed. If the disk is detached from it, type {to}: "
        );
        confirm(out, question, to, OTHER_ANSWER).await?;
    }
    let metadata = json!({ "annotations": { ANNOTATION_CONSENT: consent } });
    let given = cluster.patch_pv(&pv.reference(), metadata).await;
    given.with_context(|| format!("annotating PV {name}"))?;
    let mut progress = Progress::new(out, TIMEOUT);
    let late = format!(
        "the consent is given, but node {to} has not taken PV {name} over yet; see list --node {to}"
    );
    loop {
        let answers = fleet::ask_all(&cluster, namespace, Some(to)).await?;
        if let Some(place) = taken_over(&answers, &pv, to) {
            progress.line(&format!("PV {name} is on {place}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        progress.wait(&late).await?;
    }
}

/// What each node reports about a PV, and about volumes without one that may have its disk.
pub(super) fn places(
    pv: &str,
    answers: &[Answer],
    may_be_its: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let its = volumes(answers).filter(|it| text(&it.report, "pv") == pv || may_be_its(&it.report));
    let its = its.map(|it| {
        let state = text(&it.report, "state");
        let line = format!("  {}: {state} {}", it.place(), cause(&it.report));
        line.trim_end().to_owned()
    });
    let errors =
        answers.iter().filter_map(Answer::error).map(|error| format!("  not known: {error}"));
    its.chain(errors).collect()
}

/// Whether an entry waits because its disk is that of the PV.
fn concerns(report: &Value, pv: &PvView) -> bool {
    text(report, "reason") == "IdentityOnOtherPV"
        && text(report, "detail").contains(&format!("PV {} ", pv.name))
}

/// NODE:PATH of the PV on this node, if its provisioner manages it.
fn taken_over(answers: &[Answer], pv: &PvView, node: &str) -> Option<String> {
    let of_node = answers.iter().filter(|answer| answer.node == node);
    let found = volumes(of_node).find(|it| text(&it.report, "pv") == pv.name);
    found.map(|it| it.place())
}

/// The consent for which the provisioner of a node waits.
fn consent(answers: &[Answer], pv: &PvView, node: &str) -> Result<String> {
    let of_node = answers.iter().filter(|answer| answer.node == node);
    let found = volumes(of_node).find(|it| concerns(&it.report, pv));
    let Some(Volume { report, .. }) = &found else {
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
