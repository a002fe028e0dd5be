//! How two outcomes differ.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    outcome::{Outcome, Record},
    scenario::Scenario,
};

/// Where the embedded control plane does not end as the real one, and nothing says that it may; and
/// where something says so, and it does. One text each, for people.
#[must_use]
pub fn complaints(scenarios: &[Scenario], real: &Record, embedded: &Record) -> Vec<String> {
    let mut complaints = Vec::new();
    for scenario in scenarios {
        let name = &scenario.name;
        let Some(real) = real.scenarios.get(name) else {
            complaints.push(format!(
                "{name}: it is not on record; `scripts/conformance {name}` asks the real one (which \
                 takes root and Go)"
            ));
            continue;
        };
        let Some(embedded) = embedded.scenarios.get(name) else {
            complaints.push(format!("{name}: it was not run on the embedded one"));
            continue;
        };
        if let Some(failed) = &real.failed {
            complaints.push(format!("{name}: it is not so on the real one: {failed}"));
            continue;
        }
        let differences = differences(real, embedded);
        match &scenario.differs {
            None if differences.is_empty() => {}
            None => complaints.push(format!("{name}:\n{}", differences.join("\n"))),
            Some(_) if differences.is_empty() => {
                complaints.push(format!("{name}: `differs` is no longer true; remove it"));
            }
            Some(_) => {}
        }
    }
    let known: BTreeSet<&String> = scenarios.iter().map(|s| &s.name).collect();
    for name in real.scenarios.keys().filter(|name| !known.contains(name)) {
        complaints.push(format!(
            "{name}: it is on record, but there is no such scenario"
        ));
    }
    complaints
}

/// What differs, line by line.
#[must_use]
pub fn differences(real: &Outcome, embedded: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(failed) = &embedded.failed {
        lines.push(format!("  embedded: {failed}"));
    }
    for (there, here) in [
        (&real.answers, &embedded.answers),
        (&real.objects, &embedded.objects),
    ] {
        let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        for key in keys {
            walk(key, there.get(key), here.get(key), &mut lines);
        }
    }
    lines
}

fn walk(path: &str, real: Option<&Value>, embedded: Option<&Value>, lines: &mut Vec<String>) {
    match (real, embedded) {
        (Some(Value::Object(there)), Some(Value::Object(here))) => {
            let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
            for key in keys {
                walk(
                    &format!("{path}: {key}"),
                    there.get(key),
                    here.get(key),
                    lines,
                );
            }
        }
        (there, here) if there == here => {}
        (there, here) => {
            let text = |value: Option<&Value>| value.map_or("-".into(), Value::to_string);
            lines.push(format!(
                "  {path}: real {}, embedded {}",
                text(there),
                text(here)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::scenario;

    const SCENARIOS: &str = "[{name: same, says: x, steps: []}, \
                              {name: known, says: x, steps: [], differs: slower}]";

    /// What is complained of when the volume ends in these phases.
    fn complained(same: [&str; 2], known: [&str; 2]) -> Vec<String> {
        let scenarios = scenario::parse(Path::new("t.yaml"), SCENARIOS).unwrap_or_default();
        let record = |i: usize| {
            let mut record = Record::default();
            for (name, phases) in [("t/same", same), ("t/known", known)] {
                let mut outcome = Outcome::default();
                let object = json!({"phase": phases[i]});
                outcome.objects.insert("pv a".into(), object);
                record.scenarios.insert(name.into(), outcome);
            }
            record
        };
        complaints(&scenarios, &record(0), &record(1))
    }

    #[test]
    fn only_what_is_not_listed_is_complained_of() {
        let differs = "t/same:\n  pv a: phase: real \"Bound\", embedded \"Available\"";
        let no_more = "t/known: `differs` is no longer true; remove it";
        for (same, known, expected) in [
            (["Bound"; 2], ["Bound", "Lost"], vec![]),
            (["Bound", "Available"], ["Bound", "Lost"], vec![differs]),
            (["Bound"; 2], ["Bound"; 2], vec![no_more]),
        ] {
            assert_eq!(complained(same, known), expected);
        }
    }

    #[test]
    fn a_scenario_that_the_real_one_does_not_follow_proves_nothing() {
        let scenarios = scenario::parse(Path::new("t.yaml"), SCENARIOS).unwrap_or_default();
        let mut real = Record::default();
        for name in ["t/same", "t/known", "t/gone"] {
            let failed = Some("step 1".into());
            let outcome = Outcome {
                failed,
                ..Outcome::default()
            };
            real.scenarios.insert(name.into(), outcome);
        }
        let told = complaints(&scenarios, &real, &real).join("\n");
        assert_eq!(
            told.matches("it is not so on the real one: step 1").count(),
            2,
            "{told}"
        );
        assert!(told.contains("t/gone: it is on record"), "{told}");
    }
}
