//! The embedded control plane against what is on record of the real one.

use std::fs;

use crate::{compare, embedded, outcome::Record, report, scenario};

fn recorded() -> anyhow::Result<Record> {
    Record::read(&embedded::record())
}

fn scenarios() -> anyhow::Result<Vec<scenario::Scenario>> {
    scenario::load(&embedded::directory().join("scenarios"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_control_plane_ends_where_the_real_one_does() -> anyhow::Result<()> {
    let (scenarios, recorded) = (scenarios()?, recorded()?);
    let mut embedded = embedded::run(&scenarios).await?;
    let complaints = compare::complaints(&scenarios, &recorded, &embedded);
    assert!(
        complaints.is_empty(),
        "{}\n\nscripts/conformance asks the real one again",
        complaints.join("\n")
    );
    // The comparison sees a difference in each scenario.
    embedded.scenarios.values_mut().for_each(|outcome| {
        outcome.objects.insert("pv x".into(), "new".into());
    });
    let complaints = compare::complaints(&scenarios, &recorded, &embedded);
    assert_eq!(complaints.len(), scenarios.len());
    Ok(())
}

#[test]
fn the_report_is_what_the_record_says() -> anyhow::Result<()> {
    let (scenarios, recorded) = (scenarios()?, recorded()?);
    let names = recorded.scenarios.keys();
    let gone: Vec<_> =
        names.filter(|name| scenarios.iter().all(|scenario| scenario.name != **name)).collect();
    assert!(gone.is_empty(), "on record, and no scenario: {gone:?}");
    let path = embedded::directory().join("../../docs/develop/conformance.md");
    assert!(
        fs::read_to_string(path)? == report::render(&scenarios, &recorded),
        "docs/develop/conformance.md is not made of the scenarios and the record as they are; \
         scripts/conformance --report writes it"
    );
    Ok(())
}
