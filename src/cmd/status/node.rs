//! The state of one node.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::document::{Class, Concern, Document, Volume};
use crate::cmd::table::{Tint, printable, render};
use crate::quantity;

/// The column of the volume's state.
const STATE: usize = 2;

/// The state of a node and its volumes, problems first. With `problems`, only the volumes with problems.
#[must_use]
pub fn show(document: &Document, problems: bool, colours: bool) -> String {
    let mut text = heading(document, colours);
    let mut shown = 0;
    for class in &document.classes {
        let mut volumes: Vec<_> = class
            .volumes
            .iter()
            .filter(|volume| !problems || volume.concern() == Concern::Trouble)
            .collect();
        if problems && volumes.is_empty() && class.faults.is_empty() {
            continue;
        }
        volumes.sort_by_key(|volume| volume.concern());
        shown += 1;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n{}",
            Tint::Heading.paint(&class_heading(class), colours)
        );
        for fault in &class.faults {
            let _ = writeln!(
                text,
                "{} {}",
                Tint::Bad.paint("fault:", colours),
                printable(fault)
            );
        }
        if !volumes.is_empty() {
            text.push_str(&table(&volumes, colours));
        }
    }
    if problems && shown == 0 && document.is_well() {
        text.push_str("No problems found.\n");
    } else if document.classes.is_empty() {
        text.push_str("No class has been scanned yet.\n");
    }
    text
}

/// A label and its colour: whether a node is ready, degraded or paused.
#[must_use]
pub fn verdict(document: &Document) -> (String, Tint) {
    let mut words = vec![if document.ready { "ready" } else { "NOT READY" }];
    if !document.degraded.is_empty() {
        words.push("DEGRADED");
    }
    if document.paused {
        words.push("PAUSED");
    }
    let tint = match (document.is_well(), document.paused) {
        (false, _) => Tint::Bad,
        (true, true) => Tint::Busy,
        (true, false) => Tint::Good,
    };
    (words.join(", "), tint)
}

fn heading(document: &Document, colours: bool) -> String {
    let (words, tint) = verdict(document);
    let node = Tint::Heading.paint(&printable(&document.node), colours);
    let mut text = format!("{node}: {}\n", tint.paint(&words, colours));
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "  {key:<11} {}", printable(value));
    };
    for reason in &document.not_ready {
        line("not ready:", reason);
    }
    for reason in &document.degraded {
        line("degraded:", reason);
    }
    if document.paused {
        line(
            "paused:",
            "nothing new is wiped, by pauseCleaning or an annotation of the Node",
        );
    }
    if let Some(level) = document
        .log_level
        .as_deref()
        .filter(|level| *level != "info")
    {
        line("log level:", level);
    }
    text
}

fn class_heading(class: &Class) -> String {
    let mut counts: BTreeMap<&str, (Concern, usize)> = BTreeMap::new();
    for volume in &class.volumes {
        let (concern, count) = counts.entry(&volume.state).or_insert((volume.concern(), 0));
        *concern = volume.concern().min(*concern);
        *count += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, (concern, _))| *concern);
    let counts: Vec<_> = counts
        .iter()
        .map(|(state, (_, count))| format!("{count} {state}"))
        .collect();
    let ready = if class.ready { "ready" } else { "not ready" };
    let counts = match counts.as_slice() {
        [] => "no volumes".to_owned(),
        counts => counts.join(", "),
    };
    printable(&format!("class {}: {ready}; {counts}", class.name))
}

fn table(volumes: &[&Volume], colours: bool) -> String {
    let heading = ["ENTRY", "PV", "STATE", "CAPACITY", "SINCE", "WHAT"];
    let mut rows = vec![(heading.map(String::from), Tint::Plain)];
    rows.extend(volumes.iter().map(|volume| row(volume)));
    render(&rows, STATE, colours)
}

fn row(volume: &Volume) -> ([String; 6], Tint) {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let state = match volume.phase.as_deref() {
        Some(phase) if phase != volume.state => format!("{phase}/{}", volume.state),
        _ => volume.state.clone(),
    };
    let tint = match volume.concern() {
        Concern::Trouble => Tint::Bad,
        Concern::Busy => Tint::Busy,
        Concern::Calm => Tint::Plain,
    };
    let cells = [
        volume.entry.clone(),
        or_dash(volume.pv.clone()),
        state,
        or_dash(volume.capacity.map(quantity::offered)),
        or_dash(volume.since()),
        volume.what(),
    ];
    (cells, tint)
}
