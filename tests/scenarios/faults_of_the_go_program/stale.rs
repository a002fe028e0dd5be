//! Fault 16: a cache that lags behind, in front of each step that destroys.

use std::time::Duration;

use control_plane::requests::{Mark, Verb};
use serde_json::json;
use support::Stage;
use support::stage::name;

use crate::kit::*;
use crate::stage;

const PAUSED: &str = "local-volume-provisioner/paused";

/// Waits for a request of the provisioner's for PVs.
fn request(stage: &Stage, since: Mark, verb: Verb) {
    let wanted = |request: &control_plane::requests::Request| {
        request.verb == verb && request.resource == "persistentvolumes"
    };
    let requests = stage.requests();
    let found = stage.block_on(requests.wait_for(since, stage.patience(), wanted));
    assert!(found.is_some(), "no {verb} of a PV");
}

#[test]
fn fault_16_a_stale_cache_never_wipes_a_volume_that_is_bound_again() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("first", &volume));
    keep_secret(&volume);
    annotate_node(&stage, PAUSED, "true");
    stage.eventually("the pause is seen", || {
        (status(&mut provisioner)["paused"] == true).then_some(())
    });
    stage.delete_claim("first");
    stage.event("CleaningPaused", "");

    let held = stage.faults().hold_watches("persistentvolumes");
    bind_again(&stage, &name(&bound), "second");
    let mark = stage.requests().mark();
    annotate_node(&stage, PAUSED, "false");
    request(&stage, mark, Verb::Get);
    let unharmed = || is_untouched(&stage, &bound, "Bound") && has_secret(&volume);
    stage.stays(
        Duration::from_secs(1),
        "the second tenant's data is safe",
        unharmed,
    );
    held.release();
    stage.stays(
        Duration::from_millis(300),
        "and with a fresh cache too",
        unharmed,
    );

    stage.delete_claim("second");
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn fault_16_a_pv_that_is_bound_again_before_the_delete_arrives_is_kept() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("first", &volume));
    keep_secret(&volume);
    let late = stage
        .faults()
        .on(Verb::Delete)
        .resource("persistentvolumes")
        .hold();
    let mark = stage.requests().mark();
    stage.delete_claim("first");
    request(&stage, mark, Verb::Delete);
    bind_again(&stage, &name(&bound), "second");
    late.clear();
    stage.stays(
        Duration::from_millis(1500),
        "the second tenant's data is safe",
        || is_untouched(&stage, &bound, "Bound") && has_secret(&volume),
    );
    let asked = stage.requests().since(mark);
    let deletes = asked
        .iter()
        .filter(|request| request.verb == Verb::Delete && request.resource == "persistentvolumes");
    assert_eq!(
        deletes.count(),
        1,
        "the late delete met another version and is not repeated"
    );
}

#[test]
fn fault_16_a_pv_that_is_bound_again_before_the_finalizer_is_on_is_kept() {
    let Some(stage) = stage() else { return };
    stage.configure("protectReleasedData", "false").unwrap();
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("first", &volume));
    assert!(!is_protected(&bound));
    keep_secret(&volume);
    let late = stage
        .faults()
        .on(Verb::Patch)
        .resource("persistentvolumes")
        .times(1)
        .hold();
    stage.delete_claim("first");
    stage.eventually("the finalizer's patch is on its way", || {
        (late.hits() == 1).then_some(())
    });
    bind_again(&stage, &name(&bound), "second");
    late.clear();
    stage.stays(
        Duration::from_millis(1500),
        "the second tenant's data is safe",
        || {
            is_untouched(&stage, &bound, "Bound")
                && has_secret(&volume)
                && stage.pv(&name(&bound)).is_some_and(|pv| !is_protected(&pv))
        },
    );
}
