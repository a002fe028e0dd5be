//! The API server does what it is asked, and its answer is lost.

use control_plane::faults::Fault;
use support::names::FINALIZER;

use super::*;

fn unheard(stage: &Stage, verb: Verb, resource: &str, times: usize) -> Fault {
    let requests = stage.faults().on(verb).resource(resource);
    requests.times(times).reset_after()
}

#[test]
fn what_was_done_is_told_and_counted_once_and_as_no_failure() {
    let (stage, node) = or_skip!(ground());
    let pv = pv(&stage, "data", &node, |pv| {
        pv["metadata"]["finalizers"] = json!([FINALIZER]);
    });
    stage.claim("data", "fast", Some(&pv)).unwrap();
    stage.in_phase(&pv, "Bound");
    let unheard = [
        // The timer starts, and our finalizer goes.
        (Verb::Patch, PVS, 2),
        (Verb::Delete, CLAIMS, 1),
        (Verb::Delete, PVS, 1),
    ]
    .map(|(verb, resource, times)| unheard(&stage, verb, resource, times));
    let mut cleanup = leader(&stage, "cleanup", &["--pvc-deletion-delay=1s"]);
    lose(&stage, &node);
    stage.eventually("the claim's owner is warned", || {
        events(&stage, "ReferencedNodeDeleted").pop()
    });
    claim_goes(&stage, "data");
    pv_goes(&stage, &pv);
    for (series, value) in [
        ("persistentvolumeclaim_delete_total", 1),
        ("persistentvolume_delete_total{phase=\"Released\"}", 1),
        ("persistentvolume_finalizer_removed_total", 1),
    ] {
        counts(&stage, &mut cleanup, series, value);
    }
    // In a real cluster, controllers may write right before us: then the answer that is lost is a
    // conflict, nothing has come of the write, and it counts as failed.
    if stage.embedded().is_some() {
        for failures in [
            "persistentvolumeclaim_delete_failed_total",
            "persistentvolume_delete_failed_total{phase=\"Released\"}",
        ] {
            assert_eq!(metric(&mut cleanup, failures).unwrap_or(0), 0, "{failures}");
        }
    }
    assert_eq!(events(&stage, "ReferencedNodeDeleted").len(), 1);
    assert_eq!(unheard.map(|lost| lost.hits()), [2, 1, 1]);
}

#[test]
fn who_was_warned_hears_that_the_node_is_back() {
    let (stage, node) = or_skip!(ground());
    let pv = bound(&stage, "data", &node);
    let _cleanup = leader(&stage, "cleanup", &["--pvc-deletion-delay=1h"]);
    lose(&stage, &node);
    timer_starts(&stage, &pv);
    let unheard = unheard(&stage, Verb::Patch, PVS, 1);
    stage.register_node(&node, Some(&node)).unwrap();
    stage.eventually("the claim's owner hears of it", || {
        events(&stage, "ReferencedNodeReturned").pop()
    });
    assert_eq!(unheard.hits(), 1);
    assert_eq!(gone_since(&stage, &pv), None);
}

/// It takes the fifteen seconds for which an answer is waited for, which is longer than a leader acts
/// without having renewed its lease. It does renew it.
#[test]
fn a_claims_owner_is_warned_although_no_answer_comes_for_the_timer() {
    let (stage, node) = or_skip!(ground());
    let pv = bound(&stage, "data", &node);
    let timer = stage.faults().on(Verb::Patch).resource(PVS).name(&pv);
    let unanswered = timer.times(1).hold_answer();
    let _cleanup = leader(&stage, "cleanup", &["--pvc-deletion-delay=1h"]);
    lose(&stage, &node);
    timer_starts(&stage, &pv);
    stage.within(Duration::from_secs(30), "its owner is warned", || {
        events(&stage, "ReferencedNodeDeleted").pop()
    });
    assert_eq!(unanswered.hits(), 1);
}
