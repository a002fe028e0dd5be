//! What may follow on what in the table.

use super::*;

fn tenancy(claim: &str) -> Tenancy {
    Tenancy {
        pv_uid: "pv".into(),
        claim_uid: Some(claim.into()),
    }
}

fn begun(table: &ProcTable, claim: &str, basis: u64) -> Result<Progress, TableError> {
    table.begin(
        &tenancy(claim),
        "pv-1",
        &HostPath::from_api("/mnt/a").unwrap(),
        basis,
    )
}

#[test]
fn a_cleanup_runs_once_and_is_not_forgotten_while_it_runs() {
    let table = ProcTable::new(Instant::now());
    assert_eq!(table.mark_running(&tenancy("a")), Err(TableError::Absent));
    begun(&table, "a", 1).unwrap();
    assert_eq!(
        begun(&table, "a", 1).unwrap_err(),
        TableError::Present("pv-1".into())
    );
    table.mark_running(&tenancy("a")).unwrap();
    assert!(table.is_running(&tenancy("a")));
    assert_eq!(
        table.mark_running(&tenancy("a")),
        Err(TableError::Present("pv-1".into()))
    );
    assert_eq!(
        table.remove_entry(&tenancy("a")).unwrap_err(),
        TableError::StillRunning("pv-1".into())
    );
    table.mark_succeeded(&tenancy("a")).unwrap();
    assert!(begun(&table, "a", 1).is_err(), "a success is not repeated");
    assert!(table.remove_entry(&tenancy("a")).unwrap().is_some());
    assert!(table.is_empty());
}

#[test]
fn fault_2_a_success_does_not_vouch_for_the_next_tenancy() {
    let table = ProcTable::new(Instant::now());
    begun(&table, "first", 1).unwrap();
    table.mark_running(&tenancy("first")).unwrap();
    table.mark_succeeded(&tenancy("first")).unwrap();
    assert!(table.get(&tenancy("second")).is_none());
    begun(&table, "second", 1).unwrap();
    assert_eq!(
        table.stats(),
        Stats {
            waiting: 1,
            succeeded: 1,
            ..Stats::default()
        }
    );
}

#[test]
fn fault_7_each_failure_waits_twice_as_long_until_the_facts_change() {
    let table = ProcTable::new(Instant::now());
    for (basis, seconds) in [
        (1, 10),
        (1, 20),
        (1, 40),
        (1, 80),
        (1, 160),
        (1, 300),
        (1, 300),
        (2, 10),
        (2, 20),
    ] {
        begun(&table, "a", basis).unwrap();
        table.mark_running(&tenancy("a")).unwrap();
        let pause = table
            .mark_failed(&tenancy("a"), "no", Patience::Growing)
            .unwrap();
        assert_eq!(pause, Duration::from_secs(seconds));
    }
}

#[test]
fn of_a_pv_is_told_what_is_under_way_and_not_the_failure_before() {
    // In whatever order the table has them.
    for other in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let table = ProcTable::new(Instant::now());
        let told = || table.by_pv().remove("pv-1").map(|entry| entry.state);
        begun(&table, other, 1).unwrap();
        table.mark_running(&tenancy(other)).unwrap();
        table
            .mark_failed(&tenancy(other), "the first", Patience::Growing)
            .unwrap();
        begun(&table, "now", 1).unwrap();
        assert_eq!(told(), Some(ProcState::Waiting(FOR_A_PERMIT.into())));
        table.mark_running(&tenancy("now")).unwrap();
        assert_eq!(told(), Some(ProcState::Running));
        table
            .mark_failed(&tenancy("now"), "the second", Patience::Growing)
            .unwrap();
        let state = told();
        let is_second =
            matches!(&state, Some(ProcState::Failed { error, .. }) if error == "the second");
        assert!(is_second, "{other}: {state:?}");
    }
}
