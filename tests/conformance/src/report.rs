//! `docs/develop/conformance.md`, made of the scenarios and of what is on record of the real one.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    outcome::{Outcome, Record},
    scenario::Scenario,
};

pub fn render(scenarios: &[Scenario], real: &Record) -> String {
    let mut text = format!(
        "# Conformance of the embedded control plane\n\n\
         <!-- Made by scripts/conformance of tests/conformance; do not edit. -->\n\n\
         {} scenarios were run on Kubernetes {}, with its own kube-controller-manager and scheduler, and \
         what they left is on record: phases, `claimRef`, annotations, finalizers, conditions, events by \
         reason, and what the API answered. The embedded control plane leaves the same: `scripts/test` \
         compares it with the record on every run. How a scenario is written: \
         [tests/conformance](../../tests/conformance/README.md).\n",
        scenarios.len(),
        real.server,
    );
    let mut topic = "";
    for scenario in scenarios {
        let (of, name) = scenario.name.split_once('/').unwrap_or_default();
        if of != topic {
            topic = of;
            let _ = write!(text, "\n## {topic}\n\n| scenario | | ends as |\n|---|---|---|\n");
        }
        let end =
            real.scenarios.get(&scenario.name).map_or_else(|| "not on record".into(), ends_as);
        let (says, end) = (cell(&scenario.says), cell(&end));
        let _ = writeln!(text, "| {name} | {says} | {end} |");
    }
    text
}

fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
}

/// In a few words: the answers, then the phases.
fn ends_as(outcome: &Outcome) -> String {
    let mut words = Vec::new();
    for answer in outcome.answers.values() {
        let code = &answer["code"];
        let reason = answer["reason"].as_str().unwrap_or_default();
        words.push(format!("{code} {reason}").trim_end().to_owned());
    }
    words.dedup();
    for (name, object) in &outcome.objects {
        let state = match object {
            Value::String(gone) => gone.clone(),
            object => state(object),
        };
        words.push(format!("{name} {state}").trim_end().to_owned());
    }
    if words.is_empty() {
        // Its steps wait for its end, and leave nothing.
        return "as its steps say".into();
    }
    words.join(", ")
}

fn state(object: &Value) -> String {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let mut state = match (text("phase"), text("node")) {
        (phase, node) if !node.is_empty() => format!("{phase} on {node}").trim().to_owned(),
        (phase, _) => phase,
    };
    if object["terminating"] == true {
        state += " (terminating)";
    }
    state
}
