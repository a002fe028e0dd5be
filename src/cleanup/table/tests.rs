//! The transitions between the states of a cleanup.

use super::*;
use crate::retry::SHORT_USE;
use crate::types::HostPath;

fn tenancy(claim: &str) -> Tenancy {
    Tenancy { pv_uid: "pv".into(), claim_uid: Some(claim.into()) }
}

fn tracked(table: &ProcTable, claim: &str, state: CleanupState) {
    table.track(Track {
        tenancy: tenancy(claim),
        pv: "pv-1".into(),
        path: HostPath::from_api("/mnt/a").unwrap(),
        state,
        basis: 1,
    });
}

fn waiting() -> CleanupState {
    CleanupState::Waiting { reason: FOR_A_SLOT.into(), job: None }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn fault_7_pause_doubles_after_each_failure() {
    let table = ProcTable::new(Instant::now());
    tracked(&table, "a", waiting());
    for pause in [10, 20, 40, 80, 160, 300, 300] {
        let failed = table.mark_failed(&tenancy("a"), "no");
        assert_eq!(failed, seconds(pause));
    }
}

#[test]
fn volume_in_use_is_checked_each_second_and_later_less_often() {
    let ages = [(0, 1), (59, 1), (61, 10), (600, 100), (4000, 300)];
    for (age, pause) in ages {
        // Table and use started that long ago.
        let table = ProcTable::new(Instant::now().checked_sub(seconds(age)).unwrap());
        tracked(&table, "a", waiting());
        let blocked = || table.mark_blocked(&tenancy("a"), "a pod uses it", Some(SHORT_USE));
        blocked();
        table.change(&tenancy("a"), |entry, _| {
            entry.cleanup.since = Duration::ZERO;
        });
        blocked();
        let cleanup = table.get(&tenancy("a")).unwrap().cleanup;
        let CleanupState::Blocked { retry_at, notify_at, .. } = cleanup.state else {
            panic!("{cleanup:?}");
        };
        assert_eq!(notify_at, Some(SHORT_USE));
        let wanted = seconds(age + pause);
        assert!(retry_at.abs_diff(wanted) < seconds(1), "{retry_at:?} {wanted:?}");
    }
}

#[test]
fn job_that_is_created_after_a_long_use_is_followed_at_once() {
    let table = ProcTable::new(Instant::now().checked_sub(seconds(4000)).unwrap());
    tracked(&table, "a", waiting());
    table.mark_blocked(&tenancy("a"), "a pod uses it", Some(SHORT_USE));
    table.change(&tenancy("a"), |entry, _| {
        entry.cleanup.since = Duration::ZERO;
    });
    table.mark_job(&tenancy("a"), "cleanup-a");
    let entry = table.get(&tenancy("a")).unwrap();
    assert!(entry.lasted(&table) < seconds(1), "{entry:?}");
    let CleanupState::Blocked { retry_at, .. } = entry.cleanup.state else {
        panic!("{entry:?}");
    };
    assert!(retry_at <= table.now() + seconds(1), "{retry_at:?}");
}

#[test]
fn running_cleanup_of_a_pv_is_shown_instead_of_an_earlier_failure() {
    // The order of the entries in the table depends on the names.
    for other in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let table = ProcTable::new(Instant::now());
        let shown = || table.by_pv().remove("pv-1").map(|entry| entry.cleanup.state);
        tracked(&table, other, waiting());
        table.mark_failed(&tenancy(other), "the first");
        tracked(&table, "now", waiting());
        assert_eq!(shown(), Some(waiting()));
        table.mark_wiping(&tenancy("now"));
        assert_eq!(shown(), Some(CleanupState::Wiping));
        table.mark_failed(&tenancy("now"), "the second");
        let state = shown();
        let is_second =
            matches!(&state, Some(CleanupState::Failed { error, .. }) if error == "the second");
        assert!(is_second, "{other}: {state:?}");
    }
}

#[test]
fn running_cleanup_is_neither_removed_nor_overwritten() {
    let table = ProcTable::new(Instant::now());
    tracked(&table, "a", waiting());
    table.change(&tenancy("a"), |entry, _| entry.cleanup.running = true);
    table.mark_wiping(&tenancy("a"));
    table.forget(&tenancy("a"));
    tracked(&table, "a", waiting());
    let state = table.get(&tenancy("a")).unwrap().cleanup.state;
    assert_eq!(state, CleanupState::Wiping);
    assert!(table.is_running());
    table.mark_released(&tenancy("a"));
    assert!(!table.is_running());
    table.forget(&tenancy("a"));
    assert!(table.get(&tenancy("a")).is_none());
}

#[test]
fn a_wait_for_a_job_does_not_begin_with_the_wait_for_a_slot() {
    let table = ProcTable::new(Instant::now().checked_sub(seconds(600)).unwrap());
    tracked(&table, "a", waiting());
    table.change(&tenancy("a"), |entry, _| {
        entry.cleanup.since = Duration::ZERO;
    });
    let for_job = |reason: &str| CleanupState::Waiting {
        reason: reason.into(),
        job: Some("storage/cleanup-a".into()),
    };
    tracked(&table, "a", for_job("to start"));
    let since = table.get(&tenancy("a")).unwrap().cleanup.since;
    assert!(since >= seconds(600), "{since:?}");
    tracked(&table, "a", for_job("for two minutes"));
    assert_eq!(table.get(&tenancy("a")).unwrap().cleanup.since, since);
}
