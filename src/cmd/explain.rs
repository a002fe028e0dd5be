//! `explain`: each check of a volume with its result, what happens next, and the commands that change it. It changes
//! nothing.

mod checks;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api_server::cluster;
use super::status::show::{self, Severity, text};
use super::table::structured;
use super::volume::Volume;
use crate::args::{Explain, OutputFormat, Verb};
use crate::names::ANNOTATION_CONSENT;
use crate::plan::{TO_DECIDE, TO_DECIDE_FIRST, consents_in};
use checks::{Check, checks, next};

/// Explains the volume. The exit code is 1 if it has a problem.
///
/// # Errors
/// When the volume is not found, or the output cannot be written.
pub async fn command(request: &Explain, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let namespace = request.provisioners.namespace.as_deref();
    let volume = Volume::find(&cluster, namespace, &request.volume).await?;
    let text = match request.output {
        OutputFormat::Table => explained(&volume),
        format => structured(format, &document(&volume))?,
    };
    out.write_all(text.as_bytes()).context("writing the result")?;
    let is_problem = show::severity(&volume.report) == Severity::Problem;
    Ok(ExitCode::from(u8::from(is_problem)))
}

fn document(volume: &Volume) -> Value {
    let checks = checks(&volume.report);
    let checks = checks.iter().map(|it| json!({ "name": it.name, "passed": it.passed }));
    json!({
        "node": volume.node,
        "class": volume.class,
        "volume": volume.report,
        "checks": checks.collect::<Vec<_>>(),
        "next": next(&volume.report),
        "commands": commands(volume),
    })
}

fn explained(volume: &Volume) -> String {
    let report = &volume.report;
    let mut lines = facts(volume);
    lines.push(String::new());
    let checks = checks(report);
    let width = checks.iter().map(|it| it.name.chars().count()).max().unwrap_or_default();
    for Check { name, passed } in checks {
        let (sign, why) = match passed {
            Some(true) => ('✔', String::new()),
            Some(false) => ('✘', cause(report)),
            None => ('-', "not checked yet".into()),
        };
        lines.push(format!("{sign} {name:<width$} {why}").trim_end().to_owned());
    }
    lines.extend([String::new(), format!("next: {}", next(report))]);
    lines.extend(commands(volume).iter().map(|it| format!("  $ {it}")));
    show::printed(&lines)
}

/// The lines with its names, its state, and what is recorded, marked and there.
pub(super) fn facts(volume: &Volume) -> Vec<String> {
    let (report, pv) = (&volume.report, volume.pv.as_ref());
    let claim = pv.and_then(|pv| pv.claim.as_ref()).map(ToString::to_string);
    let [_, _, state, capacity, since, _] = show::row(report);
    let mark = &report["mark"];
    let mark = mark["state"].as_str().map(|state| {
        let [uid, cluster] = ["pvUid", "cluster"].map(|key| text(mark, key));
        match uid {
            "" => format!("{state}, of no PV, cluster {cluster}"),
            uid => format!("{state}, of PV UID {uid}, cluster {cluster}"),
        }
    });
    let since = Some(since).filter(|it| it != "-");
    let facts = [
        ("state", Some(state)),
        ("since", since),
        ("claim", claim),
        ("size", Some(capacity)),
        ("recorded", pv.and_then(|pv| pv.identity.clone())),
        ("marked", mark),
        ("there", report["identity"].as_str().map(str::to_owned)),
    ];
    let facts = facts.into_iter().filter_map(|(key, value)| Some(format!("  {key:<9} {}", value?)));
    std::iter::once(volume.heading()).chain(facts).collect()
}

/// Why the volume is not offered or cleaned, without the annotations that permit it: commands set them.
pub(super) fn cause(report: &Value) -> String {
    let what = show::what(report);
    if let Some((cause, _)) = what.split_once(TO_DECIDE) {
        return cause.to_owned();
    }
    // Events are cut, so in their texts the consents precede the cause.
    let start = what.find(TO_DECIDE_FIRST).or_else(|| what.find(ANNOTATION_CONSENT));
    let consent = consents_in(&what).last();
    let end = consent.and_then(|it| what.rsplit_once(it)?.1.split_once(": "));
    match (start, end) {
        (Some(start), Some((_, cause))) => format!("{}{cause}", &what[..start]),
        _ => what,
    }
}

/// The commands that change the state, the safe ones first.
fn commands(volume: &Volume) -> Vec<String> {
    let name = volume.name();
    let consents = volume.consents().into_keys().map(Verb::as_str);
    let consents = consents.map(|verb| format!("kubectl local-volume consent {name} --{verb}"));
    let mut commands: Vec<_> = consents.collect();
    // Its provisioner knows the former hostname.
    let detail = text(&volume.report, "detail");
    let label = detail.find("kubectl label node ");
    commands.extend(label.map(|at| detail[at..].to_owned()));
    let job = volume.report["cleanup"]["job"].as_str().and_then(|job| job.split_once('/'));
    if let (Some((namespace, job)), "CleaningFailed" | "Waiting") =
        (job, text(&volume.report, "state"))
    {
        commands.push(format!("kubectl --namespace {namespace} delete job {job}"));
    }
    if let Some(pv) = &volume.pv {
        match text(&volume.report, "state") {
            "Paused" => {
                let node = &volume.node;
                let paused = [
                    (pv.paused, format!("kubectl local-volume resume {name}")),
                    (
                        volume.is_node_paused,
                        format!("kubectl local-volume resume --node {node}"),
                    ),
                ];
                commands.extend(paused.into_iter().filter(|it| it.0).map(|it| it.1));
            }
            "Due" | "Waiting" | "Cleaning" | "CleaningFailed" => {
                commands.push(format!("kubectl local-volume pause {name}"));
            }
            "Retained" => commands.push(format!(
                "kubectl patch pv {name} --patch '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Delete\"}}}}'"
            )),
            _ => {}
        }
        commands.push(format!("kubectl describe pv {}", pv.name));
    }
    commands
}

#[cfg(test)]
mod tests;
