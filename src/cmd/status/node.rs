//! One node, for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::document::{Class, Concern, Document, Volume};
use crate::cmd::table::{Look, Row, Tint, printable, render};
use crate::quantity;

/// The column that says how a volume is.
const STATE: usize = 2;

/// How a node and its volumes are, those first that need somebody; or only these.
#[must_use]
pub fn show(document: &Document, problems: bool, look: Look) -> String {
    let mut text = heading(document, look);
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
            Tint::Heading.paint(&class_heading(class), look)
        );
        for fault in &class.faults {
            let _ = writeln!(
                text,
                "{} {}",
                Tint::Bad.paint("fault:", look),
                printable(fault)
            );
        }
        if !volumes.is_empty() {
            text.push_str(&table(&volumes, look));
        }
    }
    if problems && shown == 0 && document.is_well() {
        text.push_str("Nothing needs anybody.\n");
    } else if document.classes.is_empty() {
        text.push_str("No class has been looked at yet.\n");
    }
    text
}

/// In words whether a node is ready, and whether somebody or something is amiss.
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

fn heading(document: &Document, look: Look) -> String {
    let (words, tint) = verdict(document);
    let node = Tint::Heading.paint(&printable(&document.node), look);
    let mut text = format!("{node}: {}\n", tint.paint(&words, look));
    let mut say = |what: &str, words: &str| {
        let _ = writeln!(text, "  {what:<11} {}", printable(words));
    };
    for reason in &document.not_ready {
        say("not ready:", reason);
    }
    for reason in &document.degraded {
        say("degraded:", reason);
    }
    if document.paused {
        say(
            "paused:",
            "nothing new is wiped, by pauseCleaning or an annotation of the Node",
        );
    }
    if let Some(level) = document
        .log_level
        .as_deref()
        .filter(|level| *level != "info")
    {
        say("log level:", level);
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

fn table(volumes: &[&Volume], look: Look) -> String {
    let heading = ["ENTRY", "PV", "STATE", "CAPACITY", "SINCE", "WHAT"];
    let mut rows = vec![Row {
        cells: heading.map(String::from),
        tint: (STATE, Tint::Plain),
    }];
    rows.extend(volumes.iter().map(|volume| row(volume)));
    render(&rows, look)
}

fn row(volume: &Volume) -> Row<6> {
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
    Row {
        cells: [
            volume.entry.clone(),
            or_dash(volume.pv.clone()),
            state,
            or_dash(volume.capacity.map(quantity::offered)),
            or_dash(volume.since()),
            volume.what(),
        ],
        tint: (STATE, tint),
    }
}
