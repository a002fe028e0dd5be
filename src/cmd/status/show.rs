//! The tables: of one node, of its classes, and of all nodes.
//!
//! The document may come from another version. An unknown field is ignored, and a missing one is empty.

use std::time::Duration;

use serde_json::Value;

use crate::cmd::fleet::Answer;
use crate::cmd::table::{or_dash, render};
use crate::config::duration;
use crate::log::printable;
use crate::quantity;
use crate::wipe::pace::Pace;

/// A longer wait is a problem.
const LONG_WAIT_SECONDS: u64 = 600;
/// Skipped entries that an operator may have meant to offer, and that are no danger.
const MINOR_SKIPS: [&str; 8] = [
    "NotMounted",
    "NotADirectoryOrBlockDevice",
    "ModeMismatch",
    "NameNotUtf8",
    "NestedVolume",
    "SystemStorage",
    "NotLocal",
    "NotEmpty",
];
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
pub(in crate::cmd) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

pub(in crate::cmd) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

pub(in crate::cmd) fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    list(value, key).filter_map(Value::as_str)
}

/// What a volume requires of an operator; the first comes first in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cmd) enum Severity {
    /// To act: a disk, or its data, is not where it belongs, or capacity is lost.
    Problem,
    /// To look at the entry.
    Attention,
    None,
}

/// Whether a node is ready, not degraded, and without a problem, which decides the exit code.
pub(in crate::cmd) fn is_well(document: &Value) -> bool {
    document["ready"] == true && problems(document).is_empty()
}

/// Why a node is not well, and its volumes with a problem.
fn problems(document: &Value) -> Vec<String> {
    let reasons = texts(document, "notReady").chain(texts(document, "degraded"));
    let volumes = volume_problems(document).map(|it| {
        let (entry, state, reason) = (text(it, "entry"), text(it, "state"), text(it, "reason"));
        format!("{entry} {state} {reason}").trim_end().to_owned()
    });
    reasons.map(str::to_owned).chain(volumes).collect()
}

fn volume_problems(document: &Value) -> impl Iterator<Item = &Value> {
    let volumes = list(document, "classes").flat_map(|class| list(class, "volumes"));
    volumes.filter(|volume| severity(volume) == Severity::Problem)
}

/// What a volume requires of an operator.
pub(in crate::cmd) fn severity(volume: &Value) -> Severity {
    let waited = volume["cleanup"]["seconds"].as_u64();
    match (text(volume, "state"), text(volume, "reason")) {
        ("Waiting", _) if waited < Some(LONG_WAIT_SECONDS) => Severity::None,
        ("Skipped", "NamePatternMismatch" | "CleanupRunning") => Severity::None,
        ("Skipped", reason) if MINOR_SKIPS.contains(&reason) => Severity::Attention,
        (state, _) if GOOD_STATES.contains(&state) => Severity::None,
        _ => Severity::Problem,
    }
}

/// The state of a node and its volumes.
pub(in crate::cmd) fn node(document: &Value) -> String {
    let problems = match volume_problems(document).count() {
        0 => String::new(),
        1 => ", 1 volume with a problem".to_owned(),
        count => format!(", {count} volumes with problems"),
    };
    let (name, state) = (text(document, "node"), state(document));
    let mut lines = vec![format!("{name}: {state}{problems}")];
    for (key, heading) in
        [("notReady", "not ready:"), ("degraded", "degraded:"), ("unprotected", "warning:")]
    {
        lines.extend(texts(document, key).map(|reason| format!("  {heading:<11} {reason}")));
    }
    if document["paused"] == true {
        let why = "nothing new is wiped, by pauseCleaning or an annotation of the Node";
        lines.push(format!("  paused:     {why}"));
    }
    printed(&lines) + &classes(document)
}

/// The volumes of each class: problems first, then cleanups.
pub fn classes(document: &Value) -> String {
    let mut lines = Vec::new();
    for class in list(document, "classes") {
        lines.extend([String::new(), format!("class {}", text(class, "name"))]);
        lines.extend(texts(class, "faults").map(|fault| format!("fault: {fault}")));
        let mut volumes: Vec<_> = list(class, "volumes").collect();
        volumes.sort_by_key(|volume| (severity(volume), volume["cleanup"].is_null()));
        if !volumes.is_empty() {
            let heading = ["ENTRY", "PV", "STATE", "CAPACITY", "SINCE", "WHAT"];
            let table = render(heading, volumes.into_iter().map(row));
            lines.extend(table.lines().map(String::from));
        }
        if list(class, "disks").next().is_some() {
            lines.extend(disks(class).lines().map(String::from));
        }
        let fault = text(class, "disksFault");
        if !fault.is_empty() {
            lines.push(format!("no disk is taken in: {fault}"));
        }
        let hash = text(class, "toApprove");
        if !hash.is_empty() {
            let (node, class) = (document["node"].as_str(), text(class, "name"));
            let node = node.unwrap_or("NODE");
            lines.push(format!(
                "to approve: kubectl local-volume approve {node} --class {class} --plan {hash}"
            ));
        }
    }
    printed(&lines)
}

/// The disks that the rule of a class matches, without its volumes.
pub(in crate::cmd) fn disks(class: &Value) -> String {
    let rows = list(class, "disks").map(|disk| {
        let size = disk["capacity"].as_u64().map(quantity::offered);
        let what = match &disk["leftAlone"] {
            Value::String(why) => format!("left alone: {why}"),
            _ => "to be taken in".to_owned(),
        };
        let [link, name] = ["link", "name"].map(|key| text(disk, key).to_owned());
        [name, or_dash(size), or_dash(disk["model"].as_str()), link, what]
    });
    render(["DISK", "SIZE", "MODEL", "LINK", "WHAT"], rows)
}

/// The lines with escaped control characters.
pub(in crate::cmd) fn printed(lines: &[String]) -> String {
    lines.iter().map(|line| printable(line) + "\n").collect()
}

/// The nodes, those with problems first.
pub(in crate::cmd) fn nodes(answers: &[Answer]) -> String {
    let ready = answers.iter().filter(|it| is_well(&it.document)).count();
    let nodes = if answers.len() == 1 { "node" } else { "nodes" };
    let mut shown: Vec<_> = answers.iter().map(|it| (problems(&it.document), it)).collect();
    shown.sort_by_key(|(problems, it)| (problems.is_empty(), &it.node));
    let rows = shown.into_iter().map(|(problems, it)| {
        let count = problems.len().to_string();
        let first = problems.into_iter().next().unwrap_or_default();
        [it.node.clone(), state(&it.document), count, first]
    });
    let table = render(["NODE", "STATE", "PROBLEMS", "FIRST PROBLEM"], rows);
    format!("{} {nodes}: {ready} ready\n\n{table}", answers.len())
}

/// Whether a node is ready, degraded or paused.
fn state(document: &Value) -> String {
    let is_degraded = texts(document, "degraded").next().is_some();
    let is_ready = document["ready"] == true;
    let mut words = vec![if is_ready { "ready" } else { "NOT READY" }];
    words.extend(is_degraded.then_some("DEGRADED"));
    words.extend((document["paused"] == true).then_some("PAUSED"));
    words.join(", ")
}

pub(in crate::cmd) fn row(volume: &Value) -> [String; 6] {
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
pub(in crate::cmd) fn what(volume: &Value) -> String {
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
