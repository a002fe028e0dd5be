//! `consent`: permits one act on a volume that its provisioner refuses otherwise.
//!
//! It sets the annotation that the provisioner asks for, and touches no disk. A consent names the PV, the disk and the
//! mark that were shown to the operator. So if one of them changes meanwhile, it permits nothing.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::api_server::{cluster, uid_of};
use super::ask::{OTHER_ANSWER, confirm};
use super::explain::{cause, facts};
use super::fleet::{self, Answer};
use super::run::UsageError;
use super::status::show::{printed, text};
use super::volume::{Volume, volumes};
use crate::args::{Consent, Provisioners, Verb};
use crate::cluster::{ApiError, Cluster};
use crate::log::printable;
use crate::names::{ANNOTATION_CONSENT, CONSENT_PREFIX};

/// A volume, and the consent for it.
pub(super) type Decision = (Volume, String);

/// Shows the volume, or all volumes of a former cluster, asks, and sets the annotations.
///
/// # Errors
/// [`UsageError`] if no such consent is waited for; another error if a request failed.
pub async fn command(request: &Consent, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let asks = !request.dry_run && !request.yes;
    let (decisions, verb) = match &request.volume {
        Some(name) => {
            let namespace = request.provisioners.namespace.as_deref();
            let volume = Volume::find(&cluster, namespace, name).await?;
            write!(out, "{}", shown(&volume))?;
            let Some(verb) = request.verb() else {
                return Ok(ExitCode::SUCCESS);
            };
            (vec![decision(volume, verb)?], verb)
        }
        None => all(request, &cluster, out).await?,
    };
    if asks {
        let (question, expected) = question(&decisions, verb);
        confirm(out, question, &expected, OTHER_ANSWER).await?;
    }
    for (volume, consent) in &decisions {
        let name = volume.name();
        if request.dry_run {
            writeln!(out, "{name}: the consent would be {consent}")?;
            continue;
        }
        let given = give(&cluster, volume, consent).await;
        given.with_context(|| format!("annotating for {name}"))?;
        writeln!(out, "{name}: consent given; the provisioner acts within seconds")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The volume as it is recorded, marked and found, and the consents that its provisioner waits for.
fn shown(volume: &Volume) -> String {
    let mut lines = facts(volume);
    let why = Some(cause(&volume.report)).filter(|it| !it.is_empty());
    lines.extend(why.map(|why| format!("  {:<9} {why}", "cause")));
    let consents = volume.consents();
    if consents.is_empty() {
        lines.push("  it waits for no consent".into());
    }
    lines.extend(consents.into_keys().map(|verb| {
        let effect = effect(verb, volume.pv.is_some());
        format!("  --{:<7} {effect}", verb.as_str())
    }));
    lines.push(String::new());
    printed(&lines)
}

fn effect(verb: Verb, has_pv: bool) -> &'static str {
    match verb {
        Verb::Wipe => "the disk that is there is wiped; its data is lost",
        Verb::Adopt => {
            "the volume is offered with its data, to the claim that its mark names and to no other"
        }
        Verb::Accept if has_pv => "the disk that is there is the PV's, and its data is the claim's",
        Verb::Accept => "the volume is offered with its data, which the next tenant can read",
        Verb::Forget => {
            "the PV is deleted and no disk is touched; a volume without a mark is offered with its data"
        }
    }
}

fn decision(volume: Volume, verb: Verb) -> Result<Decision> {
    let Some(consent) = volume.consents().remove(&verb) else {
        let (name, state) = (volume.name(), text(&volume.report, "state"));
        let verb = verb.as_str();
        bail!(UsageError(format!(
            "the provisioner does not wait for a consent to {verb} {name} (state {state}); nothing was changed; see explain {name}"
        )));
    };
    Ok((volume, consent))
}

/// The volumes without a PV of a class whose marks are of a former cluster.
async fn all(
    request: &Consent,
    cluster: &Cluster,
    out: &mut (dyn Write + Send),
) -> Result<(Vec<Decision>, Verb)> {
    let class = request.class.as_deref().unwrap_or_default();
    let former = request.from_cluster.as_deref().unwrap_or_default();
    let Some(verb @ (Verb::Wipe | Verb::Accept)) = request.verb() else {
        bail!(UsageError("--all requires --wipe or --accept; see also adopt".into()));
    };
    let (found, _) = of_former_cluster(cluster, &request.provisioners, former, out).await?;
    let found = found.into_iter().filter(|it| it.class == class);
    let decisions: Vec<_> = found.filter_map(|it| decision(it, verb).ok()).collect();
    ensure!(
        !decisions.is_empty(),
        UsageError(format!(
            "no volume of class {class} waits for a decision and has a mark of cluster {former}; see list"
        ))
    );
    for (volume, _) in &decisions {
        writeln!(out, "{}", printable(&volume.name()))?;
    }
    Ok((decisions, verb))
}

/// The volumes without a PV that wait for a decision and whose marks are of a former cluster, and whether all provisioners
/// answered.
pub(super) async fn of_former_cluster(
    cluster: &Cluster,
    provisioners: &Provisioners,
    former: &str,
    out: &mut (dyn Write + Send),
) -> Result<(Vec<Volume>, bool)> {
    // Marks of this cluster name tenants whose PVs were lost, not those of a cluster that is gone.
    let own = uid_of(cluster).await?.context("the namespace kube-system cannot be read, so the UID of this cluster is unknown: grant get on it")?;
    ensure!(
        own != former,
        UsageError(format!("--from-cluster {former} is this cluster: decide for each volume"))
    );
    let answers = fleet::ask_all(cluster, provisioners.namespace.as_deref(), None).await?;
    for error in answers.iter().filter_map(Answer::error) {
        writeln!(out, "left out: {}", printable(error))?;
    }
    let is_wanted = |volume: &Volume| {
        text(&volume.report, "reason") == "Dirty"
            && text(&volume.report["mark"], "cluster") == former
    };
    let is_complete = answers.iter().all(|it| it.error().is_none());
    Ok((volumes(&answers).filter(is_wanted).collect(), is_complete))
}

/// The question, and the answer that confirms.
pub(super) fn question(decisions: &[Decision], verb: Verb) -> (String, String) {
    let what = match verb {
        Verb::Wipe => "All data in it will be lost.",
        Verb::Adopt => "The claim with the namespace and name in its mark will get its data.",
        Verb::Accept => "Its data will be readable.",
        Verb::Forget => "Its PV will be deleted.",
    };
    match decisions {
        [(one, _)] => {
            let name = one.name();
            (format!("{what} To go on, type {name}: "), name)
        }
        all => {
            let count = all.len().to_string();
            let question = format!("{count} volumes. {what} To go on, type their number: ");
            (question, count)
        }
    }
}

/// Sets the annotation of the PV, or of the Node under a key of the disk.
pub(super) async fn give(
    cluster: &Cluster,
    volume: &Volume,
    consent: &str,
) -> Result<(), ApiError> {
    if let Some(pv) = &volume.pv {
        let metadata = json!({ "annotations": { ANNOTATION_CONSENT: consent } });
        return cluster.patch_pv(&pv.reference(), metadata).await.map(drop);
    }
    let disk = consent.split(':').nth(2).unwrap_or_default();
    let annotations = json!({ format!("{CONSENT_PREFIX}{disk}"): consent });
    cluster.annotate_node(&volume.node, &annotations).await
}
