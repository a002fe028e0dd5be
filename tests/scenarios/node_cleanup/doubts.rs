//! Whatever is not certain does nothing.

use control_plane::faults::Answer;

use super::*;
use support::skip;

/// An empty list must never count as the loss of all nodes.
#[test]
fn without_any_node_nothing_is_deleted() {
    let (stage, node) = or_skip!(stage_with_node());
    if stage.embedded().is_none() {
        return skip("a cluster that others use always has a Node");
    }
    let bound = bound(&stage, "data", &node);
    let free = pv(&stage, "free", &node, |_| {});
    let mut cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=0s"]);
    let late = pv_object(&stage, "late", &node, |_| {});
    // Ours first, so that the last one that is deleted is theirs.
    delete_node(&stage);
    lose(&stage, &node);
    stage.eventually("it says why", || cleanup.log().contains("lists no Node at all"));
    stage.create_pv(late);
    counts(&stage, &mut cleanup, "unclear_persistentvolumes", 3);
    assert_eq!(stage.claim_phase("data"), "Bound");
    stay(&stage, &[&bound, &free]);
    register_node(&stage);
    claim_goes(&stage, "data");
    pv_goes(&stage, &free);
}

/// All Nodes were deleted, and they are registered again one after the other.
#[test]
fn a_node_that_is_not_the_first_to_come_back_has_its_time() {
    let (stage, node) = or_skip!(stage_with_node());
    if stage.embedded().is_none() {
        return skip("a cluster that others use always has a Node");
    }
    let pv = bound(&stage, "data", &node);
    let mut cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=10s"]);
    lose(&stage, &node);
    timer_starts(&stage, &cleanup, &pv);
    delete_node(&stage);
    stage.eventually("it says why it waits", || cleanup.log().contains("lists no Node at all"));
    std::thread::sleep(Duration::from_secs(11));
    register_node(&stage);
    reconciles_again(&stage);
    assert_eq!(stage.claim_phase("data"), "Bound");
    stage.register_node(&node, Some(&node));
    counts(&stage, &mut cleanup, "pending_persistentvolumeclaims", 0);
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 0);
}

/// The watch is behind: it has seen the node's deletion and not its return.
#[test]
fn a_node_that_the_watch_has_lost_is_read() {
    let (stage, node) = or_skip!(stage_with_node());
    bound(&stage, "data", &node);
    let mut cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=0s"]);
    let asking = stage.faults().on(Verb::Get).resource("nodes").hold();
    lose(&stage, &node);
    stage.eventually("it asks", || asking.hits() > 0);
    let held = stage.faults().hold_watches("nodes");
    stage.register_node(&node, Some(&node));
    asking.clear();
    stage.eventually("it is reported, and nothing is done", || {
        cleanup.log().contains(&format!("there is the Node {node}"))
    });
    assert_eq!(stage.claim_phase("data"), "Bound");
    drop(held);
    counts(&stage, &mut cleanup, "pending_persistentvolumeclaims", 0);
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 0);
}

#[test]
fn an_error_about_a_node_does_not_count_as_its_absence() {
    let (stage, node) = or_skip!(stage_with_node());
    bound(&stage, "data", &node);
    let free = pv(&stage, "free", &node, |_| {});
    let mut cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=0s"]);
    let fault = stage.faults().on(Verb::Get).resource("nodes").answer(Answer::code(500));
    lose(&stage, &node);
    stage.eventually("it has asked for both", || fault.hits() >= 2);
    assert_eq!(stage.claim_phase("data"), "Bound");
    assert!(stage.pv(&free).is_some());
    let failed = metric(&mut cleanup, "persistentvolumeclaim_delete_failed_total");
    assert_eq!(failed, Some(0), "it was not even tried");
    stage.eventually("it says when it tries again", || {
        cleanup.log().contains("step failed; retried in 2s")
    });
}

/// There is no news that would wake it.
#[test]
fn a_delayed_key_is_reconciled_again_after_its_delay() {
    let (stage, node) = or_skip!(stage_with_node());
    bound(&stage, "data", &node);
    let conflict =
        stage.faults().on(Verb::Delete).resource(CLAIMS).times(1).answer(Answer::code(409));
    let args = ["--pvc-deletion-delay=0s", "--stale-pv-discovery-interval=1h"];
    let _cleanup = synced(&stage, "cleanup", &args);
    lose(&stage, &node);
    claim_goes(&stage, "data");
    assert_eq!(conflict.hits(), 1);
}

/// Between the read of the PV and the deletion the claim becomes another one's.
#[test]
fn a_claim_that_was_not_warned_is_not_deleted() {
    let (stage, node) = or_skip!(stage_with_node());
    let pv = bound(&stage, "first", &node);
    let delay = delay(&stage);
    let cleanup = synced(&stage, "cleanup", &[&delay_flag(&stage)]);
    lose(&stage, &node);
    timer_starts(&stage, &cleanup, &pv);
    // The watch does not show what follows.
    let held = stage.faults().hold_watches(PVS);
    stage.delete_claim("first");
    stage.in_phase(&pv, "Released");
    clear_claim_ref(&stage, &pv);
    stage.in_phase(&pv, "Available");
    stage.claim("second", "fast", Some(&pv));
    stage.claim_in_phase("second", "Bound");
    std::thread::sleep(delay);
    assert_eq!(stage.claim_phase("second"), "Bound");
    assert_eq!(timers(&cleanup, &pv), 1);
    let begun = Instant::now();
    drop(held);
    stage.eventually("it gets a time of its own", || (timers(&cleanup, &pv) > 1).then_some(()));
    claim_goes(&stage, "second");
    assert!(begun.elapsed() >= delay, "all of it: {:?}", begun.elapsed());
}

#[test]
fn a_missing_permission_is_named_and_the_rest_continues() {
    let (stage, node) = or_skip!(stage_with_node());
    let _pv = bound(&stage, "data", &node);
    let free = pv(&stage, "free", &node, |_| {});
    let mut cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=0s"]);
    let fault = stage.faults().on(Verb::Delete).resource(CLAIMS).forbid();
    lose(&stage, &node);
    pv_goes(&stage, &free);
    stage.eventually("the right is named", || {
        let log = cleanup.log();
        let line = log.lines().find(|line| line.contains("is missing: "))?;
        (line.contains("delete persistentvolumeclaims")
            && line.contains("deploy/node-cleanup.yaml"))
        .then_some(())
    });
    let missing = "missing_permission{resource=\"persistentvolumeclaims\",verb=\"delete\"}";
    counts(&stage, &mut cleanup, missing, 1);
    let failed = "persistentvolumeclaim_delete_failed_total";
    assert!(metric(&mut cleanup, failed) >= Some(1));
    stage.eventually("there is an event on the Pod", || events(&stage, "PermissionMissing").pop());
    assert_eq!(stage.claim_phase("data"), "Bound");
    fault.clear();
    stage.within(Duration::from_secs(15), "it goes on once it is granted", || {
        claim(&stage, "data").is_none()
    });
    counts(&stage, &mut cleanup, missing, 0);
}
