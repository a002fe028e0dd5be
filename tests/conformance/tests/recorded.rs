//! The embedded control plane against what is on record of the real one.

use std::{fs, path::PathBuf};

use conformance::{check, embedded, outcome::Record, report, scenario};

fn recorded() -> anyhow::Result<Record> {
    Record::read(&embedded::directory().join("real-1.36"))
}

fn scenarios() -> anyhow::Result<Vec<scenario::Scenario>> {
    Ok(scenario::load(&embedded::directory().join("scenarios"))?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_control_plane_ends_where_the_real_one_does() -> anyhow::Result<()> {
    let scenarios = scenarios()?;
    let complaints = check::against(&recorded()?, &scenarios, embedded::run).await?;
    let told: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(
        told.is_empty(),
        "{}\n\nscripts/conformance asks the real one again",
        told.join("\n")
    );
    Ok(())
}

#[test]
fn the_report_is_what_the_record_says() -> anyhow::Result<()> {
    let path = PathBuf::from(embedded::directory()).join("../../docs/conformance.md");
    let report = report::render(&scenarios()?, &recorded()?);
    assert!(
        fs::read_to_string(path)? == report,
        "docs/conformance.md is not made of the scenarios and the record as they are; \
         scripts/conformance --report writes it"
    );
    Ok(())
}
