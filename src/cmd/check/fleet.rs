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
use crate::cmd::volume::volumes;
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
        let count = counted(asked.len(), "provisioner");
        findings.good(format!("status received from {count}"));
    }
    versions(&asked, findings);
    for (key, what) in [
        ("notReady", "not ready"),
        ("degraded", "degraded"),
        ("unprotected", "a protection is off"),
    ] {
        for (reason, nodes) in nodes_by(&asked, |document| texts(document, key)) {
            let text = format!("{what} on {}: {reason}", some_of(&nodes));
            findings.bad(&text, "do what the text says; status --node shows more");
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
    let versions: Vec<_> =
        nodes.iter().map(|(version, nodes)| format!("{version} on {}", some_of(nodes))).collect();
    if versions.len() > 1 {
        let text = format!("the provisioners have several versions: {}", versions.join("; "));
        let remedy =
            "wait for the rollout, or find what stops it: kubectl rollout status daemonset";
        findings.bad(&text, remedy);
    } else if let Some(version) = nodes.keys().next() {
        findings.good(format!("all have the version {version}"));
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
            let remedy = "correct the class in the configuration, or its StorageClass";
            findings.bad(&format!("class {name}: {fault}"), remedy);
        }
        if let Some(known) = known {
            let found = known.iter().find(|it| it.name_any() == name);
            storage_class(name, found, findings);
        }
        let entries: Vec<_> = of_class().flat_map(|it| list(it, "volumes")).collect();
        if entries.is_empty() {
            let remedy = "mount disks below its hostDir, or correct hostDir (docs/why-no-pv.md)";
            findings.bad(&format!("class {name} has no entry on any node"), remedy);
        } else if entries.iter().all(|it| text(it, "state") == "Skipped") {
            let reasons: BTreeSet<_> = entries.iter().map(|it| text(it, "reason")).collect();
            let reasons = some_of(&Vec::from_iter(reasons));
            let count = entries.len();
            let entries = if count == 1 { "entry" } else { "entries" };
            let text = format!("class {name} offers none of its {count} {entries}: {reasons}");
            let remedy =
                format!("kubectl local-volume list --class {name}, then explain one of them");
            findings.bad(&text, &remedy);
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
        let remedy = "create it (docs/install.md), or remove the class from the configuration";
        findings.bad(&format!("class {name} has no StorageClass"), remedy);
        return;
    };
    for [text, remedy] in faults(class) {
        findings.bad(&text, &remedy);
    }
}

/// The volumes with problems, by what is wrong.
fn of_volumes(asked: &[&Answer], findings: &mut Findings) {
    let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for volume in volumes(asked.iter().copied()) {
        count += 1;
        if show::severity(&volume.report) == Severity::Problem {
            let what = ["state", "reason"].map(|key| text(&volume.report, key));
            let what = what.join(" ").trim_end().to_owned();
            problems.entry(what).or_default().push(volume.name());
        }
    }
    if problems.is_empty() && !asked.is_empty() {
        findings.good(format!("no problem in {}", counted(count, "volume")));
    }
    for (what, names) in problems {
        let count = counted(names.len(), "volume");
        let text = format!("{count} with the state {what}: {}", some_of(&names));
        let first = names.first().map_or("", String::as_str);
        findings.bad(&text, &format!("kubectl local-volume explain {first}"));
    }
}
