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
use super::volume::{Volume, existing_pv, volumes};
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
    show(&pv, &answers, out)?;
    if taken_over(&answers, &pv, to).is_some() {
        writeln!(out, "PV {name} is on node {to}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let in_use = volumes(&answers).find(|it| {
        let is_out = matches!(
            text(&it.report, "state"),
            "NotMounted" | "Missing" | "Unlinked"
        );
        it.node != *to && text(&it.report, "pv") == pv.name && !is_out
    });
    if let Some(in_use) = in_use {
        bail!(
            "{} reports the disk of PV {name} as in use: unmount it there first; nothing was changed",
            in_use.place()
        );
    }
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

/// What each node reports about the PV.
fn show(pv: &PvView, answers: &[Answer], out: &mut dyn Write) -> Result<()> {
    let claim = pv.claim.as_ref().map(ToString::to_string);
    let mut lines = vec![format!("{}: claim {}", pv.name, claim.unwrap_or_default())];
    for volume in volumes(answers) {
        let report = &volume.report;
        if text(report, "pv") == pv.name || concerns(report, pv) {
            let (place, state) = (volume.place(), text(report, "state"));
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
