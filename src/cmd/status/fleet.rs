//! The list of nodes, one line each.

use std::fmt::Write;

use super::Answer;
use super::document::{Concern, Document, Volume};
use super::node;
use crate::cmd::table::{Tint, render};

const STATE: usize = 1;

/// A summary, and a table of the nodes with problems first. With `problems`, also the volumes with problems.
#[must_use]
pub fn show(answers: &[Answer], problems: bool, colours: bool) -> String {
    let ready = answers.iter().filter(|one| one.is_well()).count();
    let unknown = answers.iter().filter(|one| one.document().is_none());
    let unknown = unknown.count();
    let nodes = if answers.len() == 1 { "node" } else { "nodes" };
    let mut text = format!("{} {nodes}: {ready} ready", answers.len());
    for (count, what) in [
        (answers.len() - ready - unknown, "not ready or degraded"),
        (unknown, "gave no answer"),
    ] {
        if count > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, ", {count} {what}");
        }
    }
    text.push('\n');
    let mut shown: Vec<_> = answers
        .iter()
        .filter(|one| !problems || one.has_problems())
        .collect();
    if shown.is_empty() {
        text.push_str("No problems found.\n");
        return text;
    }
    shown.sort_by_key(|one| (!one.has_problems(), &one.node));
    let heading = ["NODE", "STATE", "VOLUMES", "CLEANING", "TROUBLES", "WHAT"];
    let mut rows = vec![(heading.map(String::from), Tint::Plain)];
    rows.extend(shown.iter().map(|one| row(one)));
    text.push('\n');
    text.push_str(&render(&rows, STATE, colours));
    if problems {
        for document in shown.iter().filter_map(|one| one.document()) {
            text.push('\n');
            text.push_str(&node::show(document, true, colours));
        }
    }
    text
}

fn row(answer: &Answer) -> ([String; 6], Tint) {
    let ((state, tint), counts, what) = match &answer.result {
        Err(why) => {
            let counts = [(); 3].map(|()| "-".to_owned());
            let state = ("no answer".to_owned(), Tint::Bad);
            (state, counts, format!("pod {}: {why}", answer.pod))
        }
        Ok((_, document)) => {
            let count = |wanted: fn(&&Volume) -> bool| document.volumes().filter(wanted).count();
            let counts = [
                count(|it| it.pv.is_some()),
                count(|it| it.cleanup.is_some()),
                document.troubles(),
            ];
            let counts = counts.map(|count| count.to_string());
            (node::verdict(document), counts, what(document))
        }
    };
    let [volumes, cleaning, troubles] = counts;
    let node = answer.node.clone();
    ([node, state, volumes, cleaning, troubles, what], tint)
}

/// The first problem, and the number of further ones.
fn what(document: &Document) -> String {
    let volumes = document
        .volumes()
        .filter(|volume| volume.concern() == Concern::Trouble)
        .map(|volume| format!("{} {}", volume.entry, volume.state));
    let reasons = document.not_ready.iter().chain(&document.degraded).cloned();
    let mut all = reasons.chain(volumes);
    let Some(first) = all.next() else {
        return String::new();
    };
    match all.count() {
        0 => first,
        more => format!("{first} (and {more} more)"),
    }
}
