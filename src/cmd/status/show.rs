//! The tables: of one node, and of all nodes.
//!
//! The document may come from another version. An unknown field is ignored, and a missing one is empty.

use std::time::Duration;

use serde_json::Value;

use super::Answer;
use crate::cmd::table::{or_dash, render};
use crate::config::duration;
use crate::log::printable;
use crate::quantity;
use crate::wipe::pace::Pace;

const NO_PROBLEMS: &str = "No problems found.";
/// A longer wait is a problem.
const LONG_WAIT_SECONDS: u64 = 600;
/// The states that require nothing of an operator. An unknown state counts as a problem, so that it is never hidden.
const GOOD_STATES: [&str; 9] = [
    "Available",
    "Bound",
    "Retained",
    "Creating",
    "Due",
    "Cleaning",
    "Cleaned",
    "Paused",
    "Terminating",
];

/// A text; empty if it is missing.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    list(value, key).filter_map(Value::as_str)
}

/// Whether a node is ready and not degraded, which decides the exit code.
pub(super) fn is_well(document: &Value) -> bool {
    document["ready"] == true && texts(document, "degraded").next().is_none()
}

/// Why a node is not well, and its volumes that require an operator.
pub(super) fn problems(document: &Value) -> Vec<String> {
    let reasons = texts(document, "notReady").chain(texts(document, "degraded"));
    let volumes = list(document, "classes").flat_map(|class| list(class, "volumes"));
    let volumes = volumes.filter(|volume| is_problem(volume));
    let volumes = volumes.map(|it| format!("{} {}", text(it, "entry"), text(it, "state")));
    reasons.map(str::to_owned).chain(volumes).collect()
}

/// Whether an operator must act on a volume.
pub(super) fn is_problem(volume: &Value) -> bool {
    match text(volume, "state") {
        "Waiting" => volume["cleanup"]["seconds"].as_u64() >= Some(LONG_WAIT_SECONDS),
        "Skipped" => !["NamePatternMismatch", "CleanupRunning"].contains(&text(volume, "reason")),
        state => !GOOD_STATES.contains(&state),
    }
}

/// The state of a node and its volumes: problems first, then cleanups. With `problems`, only the volumes with problems.
pub(super) fn node(document: &Value, problems: bool) -> String {
    let mut lines = vec![format!("{}: {}", text(document, "node"), state(document))];
    for (key, heading) in [("notReady", "not ready:"), ("degraded", "degraded:")] {
        lines.extend(texts(document, key).map(|reason| format!("  {heading:<11} {reason}")));
    }
    if document["paused"] == true {
        let text =
            "  paused:     nothing new is wiped, by pauseCleaning or an annotation of the Node";
        lines.push(text.into());
    }
    let heading = lines.len();
    for class in list(document, "classes") {
        let volumes = list(class, "volumes");
        let mut volumes: Vec<_> = volumes.filter(|it| !problems || is_problem(it)).collect();
        if problems && volumes.is_empty() && texts(class, "faults").next().is_none() {
            continue;
        }
        volumes.sort_by_key(|volume| (!is_problem(volume), volume["cleanup"].is_null()));
        lines.extend([String::new(), class_heading(class)]);
        lines.extend(texts(class, "faults").map(|fault| format!("fault: {fault}")));
        if !volumes.is_empty() {
            let heading = ["ENTRY", "PV", "STATE", "CAPACITY", "SINCE", "WHAT"];
            let table = render(heading, volumes.into_iter().map(row));
            lines.extend(table.lines().map(String::from));
        }
    }
    if lines.len() == heading && is_well(document) {
        lines.push(NO_PROBLEMS.into());
    }
    let lines = lines.iter().map(|line| printable(line) + "\n");
    lines.collect()
}

/// The nodes, those with problems first. With `problems`, only these, each also with its volumes with problems.
pub(super) fn nodes(answers: &[Answer], problems: bool) -> String {
    let ready = answers.iter().filter(|it| is_well(&it.document)).count();
    let nodes = if answers.len() == 1 { "node" } else { "nodes" };
    let summary = format!("{} {nodes}: {ready} ready", answers.len());
    let answers = answers.iter().map(|it| {
        let found = self::problems(&it.document);
        (found.is_empty() && is_well(&it.document), it, found)
    });
    let mut shown: Vec<_> = answers
        .filter(|(is_fine, ..)| !problems || !is_fine)
        .collect();
    if shown.is_empty() {
        return format!("{summary}\n{NO_PROBLEMS}\n");
    }
    shown.sort_by_key(|(is_fine, it, _)| (*is_fine, &it.node));
    let rows = shown.iter().map(|(_, it, found)| {
        let first = found.first().cloned().unwrap_or_default();
        let count = found.len().to_string();
        [it.node.clone(), state(&it.document), count, first]
    });
    let table = render(["NODE", "STATE", "PROBLEMS", "FIRST PROBLEM"], rows);
    let details = shown.iter().filter(|_| problems);
    let details = details.map(|(_, it, _)| format!("\n{}", node(&it.document, true)));
    let details: Vec<_> = details.collect();
    format!("{summary}\n\n{table}{}", details.concat())
}

/// Whether a node is ready, degraded or paused.
fn state(document: &Value) -> String {
    let is_degraded = texts(document, "degraded").next().is_some();
    let mut words = vec![if document["ready"] == true {
        "ready"
    } else {
        "NOT READY"
    }];
    words.extend(is_degraded.then_some("DEGRADED"));
    words.extend((document["paused"] == true).then_some("PAUSED"));
    words.join(", ")
}

fn class_heading(class: &Value) -> String {
    let ready = if class["ready"] == true {
        "ready"
    } else {
        "not ready"
    };
    let empty = if list(class, "volumes").next().is_none() {
        "; no volumes"
    } else {
        ""
    };
    format!("class {}: {ready}{empty}", text(class, "name"))
}

fn row(volume: &Value) -> [String; 6] {
    let state = match (text(volume, "phase"), text(volume, "state")) {
        (phase, state) if phase.is_empty() || phase == state => state.to_owned(),
        (phase, state) => format!("{phase}/{state}"),
    };
    [
        text(volume, "entry").to_owned(),
        or_dash(volume["pv"].as_str()),
        state,
        or_dash(volume["capacity"].as_u64().map(quantity::offered)),
        or_dash(volume["cleanup"]["seconds"].as_u64().map(time)),
        what(volume),
    ]
}

/// The reason, a description of the cleanup, and the detail.
fn what(volume: &Value) -> String {
    let cleanup = cleanup(&volume["cleanup"]);
    let detail = Some(text(volume, "detail")).filter(|detail| !cleanup.contains(detail));
    let parts = [text(volume, "reason"), &cleanup, detail.unwrap_or_default()];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

fn cleanup(cleanup: &Value) -> String {
    match (text(cleanup, "state"), text(cleanup, "job")) {
        ("", _) => String::new(),
        ("Waiting", _) => format!("waiting: {}", text(cleanup, "waitingFor")),
        ("Running", "") => pace(cleanup).to_string(),
        ("Running", job) => format!("by Job {job}"),
        ("Succeeded", _) => "clean".into(),
        _ => {
            let retry = cleanup["retryInSeconds"].as_u64().map(time);
            let retry = retry.map_or_else(String::new, |it| format!("; next try in {it}"));
            let (attempts, error) = (&cleanup["attempts"], text(cleanup, "lastError"));
            format!("attempt {attempts} failed: {error}{retry}")
        }
    }
}

fn pace(cleanup: &Value) -> Pace {
    let number = |key| cleanup[key].as_u64().unwrap_or_default();
    Pace {
        entries: number("entriesRemoved"),
        bytes_done: number("bytesWiped"),
        bytes_total: number("bytesTotal"),
        elapsed: Duration::from_secs(number("seconds")),
    }
}

/// A duration as in the configuration.
fn time(seconds: u64) -> String {
    duration::format(Duration::from_secs(seconds))
}
