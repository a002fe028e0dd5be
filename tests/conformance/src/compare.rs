//! How two outcomes differ.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    outcome::{Outcome, Record},
    scenario::Scenario,
};

/// Where the outcome of the embedded control plane differs from the real one, as text.
pub fn complaints(scenarios: &[Scenario], real: &Record, embedded: &Record) -> Vec<String> {
    let all = scenarios.iter().filter_map(|scenario| {
        let text = complaint(&scenario.name, real, embedded)?;
        Some(format!("{}:{text}", scenario.name))
    });
    all.collect()
}

fn complaint(name: &str, real: &Record, embedded: &Record) -> Option<String> {
    let Some(real) = real.scenarios.get(name) else {
        return Some(format!(
            " it is not on record; `scripts/conformance {name}` asks the real one (which takes root \
             and Go)"
        ));
    };
    if let Some(failed) = &real.failed {
        return Some(format!(" it is not so on the real one: {failed}"));
    }
    let Some(embedded) = embedded.scenarios.get(name) else {
        return Some(" it was not run on the embedded one".into());
    };
    let lines = differences(real, embedded);
    (!lines.is_empty()).then(|| format!("\n  {}", lines.join("\n  ")))
}

/// What differs, value by value: where, and what there is on both.
fn differences(real: &Outcome, embedded: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(failed) = &embedded.failed {
        found.push(format!("embedded: {failed}"));
    }
    for (there, here) in [(&real.answers, &embedded.answers), (&real.objects, &embedded.objects)] {
        let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        for key in keys {
            walk(key, there.get(key), here.get(key), &mut found);
        }
    }
    found
}

fn walk(path: &str, real: Option<&Value>, embedded: Option<&Value>, found: &mut Vec<String>) {
    match (real, embedded) {
        (Some(Value::Object(there)), Some(Value::Object(here))) => {
            let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
            for key in keys {
                let path = format!("{path}: {key}");
                walk(&path, there.get(key), here.get(key), found);
            }
        }
        (there, here) if there == here => {}
        (there, here) => {
            let text = |value: Option<&Value>| value.map_or("-".into(), Value::to_string);
            let (there, here) = (text(there), text(here));
            found.push(format!("{path}: real {there}, embedded {here}"));
        }
    }
}
