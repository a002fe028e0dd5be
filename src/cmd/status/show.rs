//! The tables: of one node, and of all nodes.

use std::collections::BTreeMap;

use super::Answer;
use super::document::{Class, Document, Volume, time};
use crate::cmd::table::{or_dash, printable, render};
use crate::quantity;

const NO_PROBLEMS: &str = "No problems found.";

/// The state of a node and its volumes: problems first, then cleanups. With `problems`, only the volumes with problems.
#[must_use]
pub fn node(document: &Document, problems: bool) -> String {
    let mut lines = vec![format!("{}: {}", document.node, state(document))];
    for (key, reasons) in [
        ("not ready:", &document.not_ready),
        ("degraded:", &document.degraded),
    ] {
        lines.extend(reasons.iter().map(|reason| format!("  {key:<11} {reason}")));
    }
    if document.paused {
        lines.push(
            "  paused:     nothing new is wiped, by pauseCleaning or an annotation of the Node"
                .into(),
        );
    }
    let heading = lines.len();
    for class in &document.classes {
        let volumes = class.volumes.iter();
        let mut volumes: Vec<_> = volumes.filter(|it| !problems || it.is_problem()).collect();
        if problems && volumes.is_empty() && class.faults.is_empty() {
            continue;
        }
        volumes.sort_by_key(|volume| (!volume.is_problem(), volume.cleanup.is_none()));
        lines.extend([String::new(), class_heading(class)]);
        lines.extend(class.faults.iter().map(|fault| format!("fault: {fault}")));
        if !volumes.is_empty() {
            let heading = ["ENTRY", "PV", "STATE", "CAPACITY", "SINCE", "WHAT"];
            let table = render(heading, volumes.into_iter().map(row));
            lines.extend(table.lines().map(String::from));
        }
    }
    if lines.len() == heading && document.is_well() {
        lines.push(NO_PROBLEMS.into());
    }
    let lines = lines.iter().map(|line| printable(line) + "\n");
    lines.collect()
}

/// The nodes, those with problems first. With `problems`, only these, each also with its volumes with problems.
#[must_use]
pub fn nodes(answers: &[Answer], problems: bool) -> String {
    let ready = answers.iter().filter(|one| one.is_well()).count();
    let nodes = if answers.len() == 1 { "node" } else { "nodes" };
    let summary = format!("{} {nodes}: {ready} ready", answers.len());
    let answers = answers.iter().map(|one| (one, one.problems()));
    let mut shown: Vec<_> = answers
        .filter(|(one, found)| !problems || !one.is_well() || !found.is_empty())
        .collect();
    if shown.is_empty() {
        return format!("{summary}\n{NO_PROBLEMS}\n");
    }
    shown.sort_by_key(|(one, found)| (one.is_well() && found.is_empty(), &one.node));
    let rows = shown.iter().map(|(one, found)| {
        let state = match &one.result {
            Ok(document) => state(document),
            Err(_) => "no answer".into(),
        };
        let first = found.first().cloned().unwrap_or_default();
        [one.node.clone(), state, found.len().to_string(), first]
    });
    let table = render(["NODE", "STATE", "PROBLEMS", "FIRST PROBLEM"], rows);
    let documents = shown.iter().filter_map(|(one, _)| one.result.as_ref().ok());
    let documents = documents.filter(|_| problems);
    let details: Vec<_> = documents
        .map(|it| format!("\n{}", node(it, true)))
        .collect();
    format!("{summary}\n\n{table}{}", details.concat())
}

/// Whether a node is ready, degraded or paused.
fn state(document: &Document) -> String {
    let mut words = vec![if document.ready { "ready" } else { "NOT READY" }];
    words.extend((!document.degraded.is_empty()).then_some("DEGRADED"));
    words.extend(document.paused.then_some("PAUSED"));
    words.join(", ")
}

fn class_heading(class: &Class) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for volume in &class.volumes {
        *counts.entry(&volume.state).or_default() += 1;
    }
    let counts = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let ready = if class.ready { "ready" } else { "not ready" };
    let counts = if counts.is_empty() {
        "no volumes"
    } else {
        &counts
    };
    format!("class {}: {ready}; {counts}", class.name)
}

fn row(volume: &Volume) -> [String; 6] {
    let state = match volume.phase.as_deref() {
        Some(phase) if phase != volume.state => format!("{phase}/{}", volume.state),
        _ => volume.state.clone(),
    };
    let cleanup = volume.cleanup.as_ref();
    [
        volume.entry.clone(),
        or_dash(volume.pv.as_ref()),
        state,
        or_dash(volume.capacity.map(quantity::offered)),
        or_dash(cleanup.map(|cleanup| time(cleanup.seconds))),
        volume.what(),
    ]
}
