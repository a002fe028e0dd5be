//! How two outcomes differ.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::{
    outcome::{Outcome, Record},
    scenario::Scenario,
};

/// What is wrong with the outcome of one scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Its name.
    pub scenario: String,
    /// In words, for people.
    pub text: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scenario, self.text)
    }
}

/// Where the embedded control plane does not end as the real one, and nothing says that it may; and
/// where something says so, and it does.
#[must_use]
pub fn complaints(scenarios: &[Scenario], real: &Record, embedded: &Record) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for scenario in scenarios {
        if let Some(text) = complaint(scenario, real, embedded) {
            let scenario = scenario.name.clone();
            complaints.push(Complaint { scenario, text });
        }
    }
    let known: BTreeSet<&String> = scenarios.iter().map(|s| &s.name).collect();
    for name in real.scenarios.keys().filter(|name| !known.contains(name)) {
        complaints.push(Complaint {
            scenario: name.clone(),
            text: " it is on record, but there is no such scenario".into(),
        });
    }
    complaints
}

fn complaint(scenario: &Scenario, real: &Record, embedded: &Record) -> Option<String> {
    let name = &scenario.name;
    let Some(real) = real.scenarios.get(name) else {
        return Some(format!(
            " it is not on record; `scripts/conformance {name}` asks the real one (which takes root \
             and Go)"
        ));
    };
    let Some(embedded) = embedded.scenarios.get(name) else {
        return Some(" it was not run on the embedded one".into());
    };
    if let Some(failed) = &real.failed {
        return Some(format!(" it is not so on the real one: {failed}"));
    }
    let mut differences = differences(real, embedded);
    if let Some(differs) = &scenario.differs {
        let is_there = |path: &&String| differences.iter().any(|it| it.is_below(path));
        let gone: Vec<&String> = differs.at.iter().filter(|path| !is_there(path)).collect();
        if !gone.is_empty() {
            return Some(format!(
                " `differs` is no longer true at {gone:?}; remove that"
            ));
        }
        differences.retain(|it| !differs.at.iter().any(|path| it.is_below(path)));
    }
    let lines: Vec<String> = differences.iter().map(|it| format!("\n  {it}")).collect();
    (!lines.is_empty()).then(|| lines.concat())
}

/// One value that is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where: a step or an object, then keys.
    path: String,
    /// What there is on both.
    text: String,
}

impl Difference {
    fn is_below(&self, path: &str) -> bool {
        let rest = self.path.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// What differs, value by value.
#[must_use]
pub fn differences(real: &Outcome, embedded: &Outcome) -> Vec<Difference> {
    let mut found = Vec::new();
    if let Some(failed) = &embedded.failed {
        let (path, text) = ("embedded".into(), failed.clone());
        found.push(Difference { path, text });
    }
    for (there, here) in [
        (&real.answers, &embedded.answers),
        (&real.objects, &embedded.objects),
    ] {
        let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        for key in keys {
            walk(key, there.get(key), here.get(key), &mut found);
        }
    }
    found
}

fn walk(path: &str, real: Option<&Value>, embedded: Option<&Value>, found: &mut Vec<Difference>) {
    match (real, embedded) {
        (Some(Value::Object(there)), Some(Value::Object(here))) => {
            let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
            for key in keys {
                walk(
                    &format!("{path}: {key}"),
                    there.get(key),
                    here.get(key),
                    found,
                );
            }
        }
        (there, here) if there == here => {}
        (there, here) => {
            let text = |value: Option<&Value>| value.map_or("-".into(), Value::to_string);
            found.push(Difference {
                path: path.to_owned(),
                text: format!("real {}, embedded {}", text(there), text(here)),
            });
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
                              {name: known, says: x, steps: [], differs: {why: slower, at: ['pv a: phase']}}]";

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
        let complaints = complaints(&scenarios, &record(0), &record(1));
        complaints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_what_is_not_listed_is_complained_of() {
        let differs = "t/same:\n  pv a: phase: real \"Bound\", embedded \"Available\"";
        let no_more = "t/known: `differs` is no longer true at [\"pv a: phase\"]; remove that";
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
        let told = complaints(&scenarios, &real, &real);
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        let told = told.join("\n");
        assert_eq!(
            told.matches("it is not so on the real one: step 1").count(),
            2,
            "{told}"
        );
        assert!(told.contains("t/gone: it is on record"), "{told}");
    }
}
