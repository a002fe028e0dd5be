//! What the provisioners report: whether each answers and is ready, the StorageClasses of their classes, and the volumes
//! with problems.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use serde_json::Value;

use super::findings::{Findings, counted};
use crate::cmd::fleet::Answer;
use crate::cmd::status::show::{self, Severity, list, text, texts};
use crate::cmd::storage_class::faults;
use crate::cmd::volume::{place, volumes};
use crate::plan::some_of;

/// Checks what the provisioners report.
pub(super) fn check(answers: &[Answer], classes: Option<&[StorageClass]>, findings: &mut Findings) {
    let (silent, asked): (Vec<_>, Vec<_>) = answers.iter().partition(|it| it.error().is_some());
    for answer in &silent {
        let (namespace, pod) = answer.pod.split_once('/').unwrap_or_default();
        let remedy = format!(
            "kubectl --namespace {namespace} logs {pod}; if it runs, allow get on pods/proxy, and let the API server reach its port"
        );
        findings.bad(answer.error().unwrap_or_default(), &remedy);
    }
    if !asked.is_empty() {
        findings.good(format!(
            "status received from {}",
            counted(asked.len(), "provisioner")
        ));
    }
    versions(&asked, findings);
    for (key, what, remedy) in [
        (
            "notReady",
            "not ready",
            "do what the text says; kubectl local-volume list --node shows the volumes",
        ),
        ("degraded", "degraded", "do what the text says"),
        (
            "unprotected",
            "a protection is off",
            "do what the text says",
        ),
    ] {
        for (reason, nodes) in nodes_by(&asked, |document| texts(document, key)) {
            findings.bad(&format!("{what} on {}: {reason}", some_of(&nodes)), remedy);
        }
    }
    let paused = asked.iter().filter(|it| it.document["paused"] == true);
    let paused: Vec<_> = paused.map(|it| it.node.as_str()).collect();
    if !paused.is_empty() {
        let text = format!("cleaning is paused on {}", some_of(&paused));
        let which = match &paused[..] {
            [node] => format!("--node {node}"),
            _ => "--node <NAME>, or --all".into(),
        };
        let remedy = format!(
            "kubectl local-volume resume {which}; if pauseCleaning is set in the configuration, remove it"
        );
        findings.bad(&text, &remedy);
    }
    storage_classes(&asked, classes, findings);
    of_volumes(&asked, findings);
}

/// The nodes whose documents have each text.
fn nodes_by<'a, T: Iterator<Item = &'a str>>(
    asked: &[&'a Answer],
    texts: impl Fn(&'a Value) -> T,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut nodes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for answer in asked {
        for text in texts(&answer.document) {
            nodes.entry(text).or_default().push(&*answer.node);
        }
    }
    nodes
}

fn versions(asked: &[&Answer], findings: &mut Findings) {
    let nodes = nodes_by(asked, |document| std::iter::once(text(document, "version")));
    match nodes.len() {
        0 => {}
        1 => findings.good(format!(
            "all have the version {}",
            nodes.keys().next().unwrap_or(&"")
        )),
        _ => {
            let versions = nodes
                .iter()
                .map(|(version, nodes)| format!("{version} on {}", some_of(nodes)));
            let text = format!(
                "the provisioners have several versions: {}",
                versions.collect::<Vec<_>>().join("; ")
            );
            findings.bad(
                &text,
                "wait for the rollout, or find what stops it: kubectl rollout status daemonset",
            );
        }
    }
}

/// Whether each configured class has a StorageClass that binds late, and a volume.
fn storage_classes(asked: &[&Answer], known: Option<&[StorageClass]>, findings: &mut Findings) {
    let classes = || asked.iter().flat_map(|it| list(&it.document, "classes"));
    let names: BTreeSet<_> = classes().map(|it| text(it, "name")).collect();
    for name in names {
        let before = findings.failed();
        let of_class = || classes().filter(|it| text(it, "name") == name);
        let faults: BTreeSet<_> = of_class().flat_map(|it| texts(it, "faults")).collect();
        for fault in faults {
            findings.bad(
                &format!("class {name}: {fault}"),
                "correct the class in the configuration, or its StorageClass",
            );
        }
        if let Some(known) = known {
            storage_class(
                name,
                known.iter().find(|it| it.name_any() == name),
                findings,
            );
        }
        let entries: Vec<_> = of_class().flat_map(|it| list(it, "volumes")).collect();
        let is_skipped = |it: &&&Value| text(it, "state") == "Skipped";
        let skipped: BTreeSet<_> = entries
            .iter()
            .filter(is_skipped)
            .map(|it| text(it, "reason"))
            .collect();
        let skipped: Vec<_> = skipped.into_iter().collect();
        if entries.is_empty() {
            findings.bad(
                &format!("class {name} has no entry on any node"),
                "mount disks below its hostDir, or correct hostDir (docs/why-no-pv.md)",
            );
        } else if entries.iter().all(|it| is_skipped(&it)) {
            let (count, skipped) = (entries.len(), some_of(&skipped));
            let entries = if count == 1 { "entry" } else { "entries" };
            findings.bad(
                &format!("class {name} offers none of its {count} {entries}: {skipped}"),
                &format!("kubectl local-volume list --class {name}, then explain one of them"),
            );
        }
        if findings.failed() == before {
            let count = counted(entries.len(), "volume");
            findings.good(format!("class {name}: {count} found"));
        }
    }
}

/// Checks the StorageClass of a class.
pub(super) fn storage_class(name: &str, found: Option<&StorageClass>, findings: &mut Findings) {
    let Some(class) = found else {
        findings.bad(
            &format!("class {name} has no StorageClass"),
            "create it (docs/install.md), or remove the class from the configuration",
        );
        return;
    };
    for [text, remedy] in faults(class) {
        findings.bad(&text, &remedy);
    }
}

/// The volumes with problems, by what is wrong.
fn of_volumes(asked: &[&Answer], findings: &mut Findings) {
    let mut problems: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for (answer, _, volume) in volumes(asked.iter().copied()) {
        count += 1;
        if show::severity(volume) == Severity::Problem {
            let names = problems
                .entry((text(volume, "state"), text(volume, "reason")))
                .or_default();
            let place = || place(&answer.node, volume);
            names.push(volume["pv"].as_str().map_or_else(place, str::to_owned));
        }
    }
    if problems.is_empty() && !asked.is_empty() {
        findings.good(format!("no problem in {}", counted(count, "volume")));
    }
    for ((state, reason), names) in problems {
        let what = format!("{state} {reason}");
        let what = what.trim_end();
        let count = counted(names.len(), "volume");
        let text = format!("{count} with the state {what}: {}", some_of(&names));
        let first = names.first().map_or("", String::as_str);
        findings.bad(&text, &format!("kubectl local-volume explain {first}"));
    }
}
