//! The plan is pure: it has no client, no clock, and reads no file.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::kit::*;
use super::model::apply;
use super::random::any_world;
use crate::plan::CleanupState;

#[test]
fn the_plan_has_no_way_to_the_outside() {
    let forbidden = [
        "kube::Client",
        "kube::Api",
        "kube::client",
        "kube::api",
        "kube::runtime",
        "tokio",
        "std::fs",
        ".is_dir()",
        ".exists()",
        "std::net",
        "std::process",
        "std::env",
        "procfs",
        "nix::",
        "Instant",
        "SystemTime",
        "Timestamp::now",
    ];
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan");
    let mut read = 0;
    for file in fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&file).unwrap();
            for word in forbidden {
                assert!(!text.contains(word), "{} mentions {word}", file.display());
            }
            read += 1;
        }
    }
    assert!(read >= 10, "only {read} files were read");
}

/// Otherwise the main loop would miss what is due.
#[test]
fn settled_plan_does_not_depend_on_the_time() {
    let mut runner = TestRunner::deterministic();
    let mut settled = 0;
    for _ in 0..2000 {
        let mut world = any_world().new_tree(&mut runner).unwrap().current();
        let mut plan = world.plan();
        for _ in 0..10 {
            world = apply(world, plan.actions);
            plan = world.plan();
        }
        if !plan.is_settled(&world.snapshot) {
            continue;
        }
        settled += 1;
        let text = |plan| format!("{plan:#?}");
        let plan = text(plan);
        for hours in [1, 1000] {
            world.snapshot.now += Duration::from_hours(hours);
            let hours = i64::try_from(hours).unwrap();
            world.snapshot.date += SignedDuration::from_hours(hours);
            assert_eq!(text(world.plan()), plan);
        }
    }
    assert!(settled > 100, "only {settled} worlds");
}

#[test]
fn plan_is_not_settled_while_something_may_end_unnoticed() {
    let pv = pv("a", "/mnt/fast/a", &fs(1));
    let settled = || world().fast("a", &fs(1)).pv(pv.clone());
    let is_settled = |world: World| world.plan().is_settled(&world.snapshot);
    assert!(is_settled(settled()));
    let writing = with(settled(), |world| {
        world.snapshot.writing.insert("another".into());
    });
    let failed = CleanupState::Failed {
        error: "no".into(),
        retry_at: Duration::MAX,
    };
    for (what, world) in [
        ("a PV to be created", settled().fast("b", &fs(2))),
        ("a PV that is created", settled().creating("/mnt/x", &fs(2))),
        ("a write", writing),
        ("a cleanup", settled().cleanup(&pv, failed)),
        ("a directory that is not read", settled().incomplete("fast")),
    ] {
        assert!(!is_settled(world), "{what}");
    }
}
