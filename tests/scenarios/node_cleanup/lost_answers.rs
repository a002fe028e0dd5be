//! The API server carries out a request, and its answer is lost: the next pass sees the result.

use support::names::FINALIZER;

use super::*;

#[test]
fn lost_answers_lose_nothing_and_write_nothing_twice() {
    let (stage, node) = or_skip!(stage_with_node());
    let pv = pv(&stage, "data", &node, |pv| {
        pv["metadata"]["finalizers"] = json!([FINALIZER]);
    });
    stage.claim("data", "fast", Some(&pv));
    stage.in_phase(&pv, "Bound");
    let lost = [
        // Our finalizer.
        (Verb::Patch, PVS, 1),
        (Verb::Delete, CLAIMS, 1),
        (Verb::Delete, PVS, 1),
    ]
    .map(|(verb, resource, times)| {
        let requests = stage.faults().on(verb).resource(resource);
        requests.times(times).reset_after()
    });
    let _cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=1s"]);
    lose(&stage, &node);
    claim_goes(&stage, "data");
    pv_goes(&stage, &pv);
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 1);
    assert_eq!(lost.map(|lost| lost.hits()), [1, 1, 1]);
}
