//! `protectReleasedData`: whatever is deleted first, the data goes before the object does.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::Value;
use support::stage::{annotation, is_terminating, name};

use crate::kit::*;
use crate::stage;

#[test]
fn the_claim_first_and_then_the_pv() {
    let mut volume = or_skip!(occupied());
    // The provisioner is not there when it happens.
    volume.provisioner.kill();
    volume.release();
    volume.delete_pv();
    let held = volume.stage.pv(&name(&volume.pv)).unwrap();
    assert!(is_terminating(&held) && is_protected(&held));
    assert!(has_secret(&volume.path));
    volume.start();
    volume.is_cleaned();
}

#[test]
fn the_pv_first_and_then_the_claim_with_a_pod() {
    let mut volume = or_skip!(occupied());
    let stage = &volume.stage;
    stage.pod("pod", "claim");
    stage.pod_in_phase("pod", "Running");
    volume.delete_pv();
    stage.delete_claim("claim");
    stage.still(&mut volume.provisioner, "the pod keeps all of it", || {
        has_secret(&volume.path) && claim_phase(stage, "claim") == "Bound"
    });
    stage.delete_pod("pod", false);
    volume.is_cleaned();
}

#[test]
fn both_at_once() {
    let mut volume = or_skip!(occupied());
    for round in 0..5 {
        // The two requests follow each other at once, in either order.
        if round % 2 == 0 {
            volume.stage.delete_claim("claim");
            // It may be clean, and gone, already.
            let pvs: Api<PersistentVolume> = Api::all(volume.stage.client.clone());
            let (pv, params) = (name(&volume.pv), DeleteParams::default());
            let _ = volume.stage.block_on(pvs.delete(&pv, &params));
        } else {
            volume.delete_pv();
            volume.stage.delete_claim("claim");
        }
        volume.is_cleaned();
        volume.occupy_again();
    }
}

#[test]
fn an_unused_pv_is_deleted_at_once_and_unwiped() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol-1"]));
    keep_secret(&volume);
    let _provisioner = stage.provisioner();
    let unused = stage.available(&volume, None);
    assert!(!is_protected(&unused), "its mark protects it");
    stage.delete_pv(&name(&unused));
    let fresh = offered_again(&stage, &volume, &unused);
    assert!(!is_protected(&fresh));
    assert!(has_secret(&volume), "what an administrator put there is not to be wiped");
}

#[test]
fn a_pv_once_used_is_cleaned_even_when_its_claim_ref_was_taken_off() {
    let mut volume = or_skip!(occupied());
    volume.annotate(PAUSED, "true");
    volume.release();
    clear_claim_ref(&volume.stage, &name(&volume.pv));
    volume.stage.in_phase(&name(&volume.pv), "Available");
    volume.annotate(PAUSED, Value::Null);
    volume.is_kept("Available", "it is offered with its data");
    volume.delete_pv();
    volume.is_cleaned();
}

#[test]
fn without_it_the_finalizer_is_on_only_while_cleaning() {
    let stage = or_skip!(stage());
    stage.configure("protectReleasedData", "false");
    let volume = Occupied::fast(stage);
    assert!(!is_protected(&volume.pv));
    // It is there as soon as, and as long as, the PV is Terminating with data.
    volume.stage.delete_claim("claim");
    volume.stage.eventually("a fresh PV", || {
        let pv = volume.stage.pv(&name(&volume.pv));
        if let Some(pv) = pv.as_ref().filter(|pv| is_terminating(pv)) {
            assert!(is_protected(pv) || entries(&volume.path).is_empty());
        }
        pv.filter(|pv| pv.metadata.uid != volume.pv.metadata.uid)
    });
    assert!(!is_protected(&volume.is_cleaned()));
}

#[test]
fn disabled_it_is_removed_from_live_pvs_and_never_from_terminating_ones() {
    let (stage, [free_at, bound_at, deleted_at]) =
        or_skip!(fast_stage(["free", "bound", "deleted"]));
    let mut provisioner = stage.provisioner();
    let free = stage.available(&free_at, None);
    let bound = stage.used(&stage.bind("claim", &bound_at));
    let deleted = stage.used(&stage.bind("deleted", &deleted_at));
    keep_secret(&deleted_at);
    assert!(!is_protected(&free));
    assert!([&bound, &deleted].into_iter().all(is_protected));
    annotate(&stage, &name(&deleted), PAUSED, "true");
    stage.delete_pv(&name(&deleted));
    stage.delete_claim("deleted");
    stage.in_phase(&name(&deleted), "Released");
    assert!(provisioner.stop(stage.timeout()).unwrap().success());

    stage.configure("protectReleasedData", "false");
    let mut second = stage.provisioner();
    for pv in [&free, &bound] {
        stage.eventually("the finalizer is off", || {
            let now = stage.pv(&name(pv))?;
            assert_eq!(now.metadata.uid, pv.metadata.uid);
            (!is_protected(&now)).then_some(())
        });
    }
    stage.still(&mut second, "a Terminating one keeps it", || {
        has_secret(&deleted_at) && stage.pv(&name(&deleted)).is_some_and(|pv| is_protected(&pv))
    });
    assert!(second.stop(stage.timeout()).unwrap().success());

    stage.configure("protectReleasedData", "true");
    let _third = stage.provisioner();
    stage.eventually("the finalizer is on again", || stage.pv(&name(&bound)).filter(is_protected));
    annotate(&stage, &name(&deleted), PAUSED, Value::Null);
    let fresh = offered_again(&stage, &deleted_at, &deleted);
    assert_eq!(annotation(&fresh, PAUSED), None);
    assert!(entries(&deleted_at).is_empty());
}
