//! What happens to a PV while it is being written: nothing is decided about it then, so that the end of
//! the write must be a reason to look again. The next pass is an hour away.

use control_plane::requests::Request;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::*;
use crate::kit::{fast, is_asked, is_same, offered_again, status, status_of};

fn unhurried_stage() -> Option<Stage> {
    let mut stage = stage()?;
    stage.add_arg("--discovery-period=1h");
    stage.class("fast", &json!({}));
    Some(stage)
}

/// The PV is released while the patch that marks it as used is held by this fault. Then it is released.
fn a_release_amid_the_mark(fault: fn(FaultBuilder) -> Fault) {
    let stage = or_skip!(unhurried_stage());
    let volume = fast(&stage, "vol");
    let mut provisioner = stage.provisioner();
    let pv = name(&stage.available(&volume, None));
    let patch = stage.faults().on(Verb::Patch).resource(PVS).name(&pv);
    let held = fault(patch.times(1));
    let bound = stage.bind("claim", &volume);
    stage.eventually("it is being marked as used", || held.hits() == 1);
    stage.delete_claim("claim");
    stage.eventually("it was seen released", || {
        status_of(&mut provisioner, &volume)["phase"] == "Released"
    });
    // And whatever else the release brings.
    let version = |pv: &PersistentVolume| pv.metadata.resource_version.clone().unwrap();
    stage.eventually("all of it was seen", || {
        let newest = version(&stage.pv(&pv)?);
        (status(&mut provisioner)["pass"]["resourceVersion"] == newest.as_str()).then_some(())
    });
    assert!(is_same(&stage, &bound, "Released"), "it is left alone");
    // Only the write's end can be the reason to look again.
    let silence = stage.faults().hold_watches(PVS);
    let mark = stage.requests().mark();
    held.clear();
    let is_deletion = |request: &Request| request.verb == Verb::Delete && request.name == pv;
    is_asked(&stage, mark, "its deletion", is_deletion);
    silence.release();
    offered_again(&stage, &volume, &bound);
}

#[test]
fn what_was_seen_before_a_write_was_answered_is_acted_on_after_it() {
    a_release_amid_the_mark(FaultBuilder::hold_answer);
}

#[test]
fn what_was_seen_before_a_write_met_a_conflict_is_acted_on_after_it() {
    a_release_amid_the_mark(FaultBuilder::hold);
}
