//! Runs scenarios and compares how they end with what is on record.

use std::collections::BTreeSet;

use crate::{
    compare::{self, Complaint},
    outcome::Record,
    scenario::Scenario,
};

/// What differs from the record. What differs is run once more: on a machine that is busy with other
/// things something may come late, but what is different stays so.
///
/// # Errors
/// The API server is gone. What a scenario runs into is part of its outcome.
pub async fn against(
    record: &Record,
    scenarios: &[Scenario],
    run: impl AsyncFn(&[Scenario]) -> anyhow::Result<Record>,
) -> anyhow::Result<Vec<Complaint>> {
    let first = compare::complaints(scenarios, record, &run(scenarios).await?);
    let named: BTreeSet<&str> = first.iter().map(|it| it.scenario.as_str()).collect();
    let is_named = |scenario: &&Scenario| named.contains(scenario.name.as_str());
    let again: Vec<Scenario> = scenarios.iter().filter(is_named).cloned().collect();
    if again.is_empty() {
        return Ok(first);
    }
    let second = run(&again).await?;
    let mut complaints = compare::complaints(&again, &record.of(&again), &second);
    for once in first {
        if !again.iter().any(|scenario| scenario.name == once.scenario) {
            // It is on record, and no scenario.
            complaints.push(once);
        } else if complaints.iter().all(|it| it.scenario != once.scenario) {
            eprintln!("once, and not again: {once}");
        }
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path};

    use super::*;
    use crate::{outcome::Outcome, scenario};

    const SCENARIOS: &str = "[{name: steady, says: x, steps: []}, {name: late, says: x, steps: []}, \
                              {name: other, says: x, steps: []}]";

    /// One that says this about itself.
    fn outcome(phase: &str) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.objects.insert("pv a".into(), phase.into());
        outcome
    }

    #[tokio::test]
    async fn only_what_differs_twice_counts() {
        let scenarios = scenario::parse(Path::new("t.yaml"), SCENARIOS).unwrap_or_default();
        let mut record = Record::default();
        for scenario in &scenarios {
            let name = scenario.name.clone();
            record.scenarios.insert(name, outcome("Bound"));
        }
        let runs = Cell::new(Vec::new());
        let run = async |asked: &[Scenario]| {
            let names: Vec<String> = asked.iter().map(|s| s.name.clone()).collect();
            let mut all = runs.take();
            let mut ends = Record::default();
            for name in &names {
                let is_late = name == "t/late" && all.is_empty();
                let phase = if name == "t/other" || is_late {
                    "Lost"
                } else {
                    "Bound"
                };
                ends.scenarios.insert(name.clone(), outcome(phase));
            }
            all.push(names);
            runs.set(all);
            Ok(ends)
        };
        let complaints = against(&record, &scenarios, run).await.unwrap_or_default();
        let told: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["t/other:\n  pv a: real \"Bound\", embedded \"Lost\""]
        );
        assert_eq!(
            runs.take(),
            [
                vec!["t/steady", "t/late", "t/other"],
                vec!["t/late", "t/other"]
            ]
        );
    }
}
