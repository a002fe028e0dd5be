//! Runs scenarios and compares how they end with what is on record.

use crate::{compare, outcome::Record, scenario::Scenario};

/// What differs from the record, one text each. What differs is run once more: on a machine that is busy
/// with other things something may come late, but what is different stays so.
///
/// # Errors
/// The API server is gone. What a scenario runs into is part of its outcome.
pub async fn against(
    record: &Record,
    scenarios: &[Scenario],
    run: impl AsyncFn(&[Scenario]) -> anyhow::Result<Record>,
) -> anyhow::Result<Vec<String>> {
    let first = compare::complaints(scenarios, record, &run(scenarios).await?);
    let again: Vec<Scenario> = scenarios
        .iter()
        .filter(|scenario| first.iter().any(|complaint| is_about(complaint, scenario)))
        .cloned()
        .collect();
    if again.is_empty() {
        return Ok(first);
    }
    let second = run(&again).await?;
    let (of_none, of_some): (Vec<_>, Vec<_>) = first
        .into_iter()
        .partition(|complaint| !again.iter().any(|scenario| is_about(complaint, scenario)));
    let mut asked = record.clone();
    asked
        .scenarios
        .retain(|name, _| again.iter().any(|scenario| scenario.name == *name));
    let mut complaints = compare::complaints(&again, &asked, &second);
    for once in of_some {
        let repeated = again.iter().any(|scenario| {
            is_about(&once, scenario) && complaints.iter().any(|c| is_about(c, scenario))
        });
        if !repeated {
            eprintln!("once, and not again: {once}");
        }
    }
    complaints.extend(of_none);
    Ok(complaints)
}

fn is_about(complaint: &str, scenario: &Scenario) -> bool {
    complaint
        .strip_prefix(&scenario.name)
        .is_some_and(|rest| rest.starts_with(':'))
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
        assert_eq!(
            complaints,
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
