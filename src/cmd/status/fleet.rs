//! Many nodes, for people: a line for each.

use std::fmt::Write;

use super::Answer;
use super::document::{Concern, Document};
use super::node;
use crate::cmd::table::{Look, Row, Tint, render};

const STATE: usize = 1;

/// A summary, a table of the nodes with those first that need somebody, and, if only problems are
/// wanted, what they are.
#[must_use]
pub fn show(answers: &[Answer], problems: bool, look: Look) -> String {
    let count = |wanted: &dyn Fn(&Answer) -> bool| answers.iter().filter(|one| wanted(one)).count();
    let ready = count(&|one| one.document().is_some_and(Document::is_well));
    let unknown = count(&|one| one.document().is_none());
    let rest = answers.len() - ready - unknown;
    let nodes = if answers.len() == 1 { "node" } else { "nodes" };
    let mut text = format!("{} {nodes}: {ready} ready", answers.len());
    // Writing to a String cannot fail.
    if rest > 0 {
        let _ = write!(text, ", {rest} not ready or degraded");
    }
    if unknown > 0 {
        let _ = write!(text, ", {unknown} gave no answer");
    }
    text.push('\n');
    let mut shown: Vec<_> = answers
        .iter()
        .filter(|one| !problems || one.has_problems())
        .collect();
    if shown.is_empty() {
        text.push_str("Nothing needs anybody.\n");
        return text;
    }
    shown.sort_by_key(|one| (!one.has_problems(), &one.node));
    let heading = ["NODE", "STATE", "VOLUMES", "CLEANING", "TROUBLES", "WHAT"];
    let mut rows = vec![Row {
        cells: heading.map(String::from),
        tint: (STATE, Tint::Plain),
    }];
    rows.extend(shown.iter().map(|one| row(one)));
    text.push('\n');
    text.push_str(&render(&rows, look));
    if problems {
        for document in shown.iter().filter_map(|one| one.document()) {
            text.push('\n');
            text.push_str(&node::show(document, true, look));
        }
    }
    text
}

fn row(answer: &Answer) -> Row<6> {
    let dash = || "-".to_owned();
    match &answer.result {
        Err(why) => Row {
            cells: [
                answer.node.clone(),
                "no answer".into(),
                dash(),
                dash(),
                dash(),
                format!("pod {}: {why}", answer.pod),
            ],
            tint: (STATE, Tint::Bad),
        },
        Ok((_, document)) => {
            let (state, tint) = node::verdict(document);
            let with_pv = document.volumes().filter(|one| one.pv.is_some()).count();
            let cleaning = document
                .volumes()
                .filter(|one| one.cleanup.is_some())
                .count();
            Row {
                cells: [
                    answer.node.clone(),
                    state,
                    with_pv.to_string(),
                    cleaning.to_string(),
                    document.troubles().to_string(),
                    what(document),
                ],
                tint: (STATE, tint),
            }
        }
    }
}

/// The first thing that is amiss, and how many more there are.
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
