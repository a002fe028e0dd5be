//! `protectReleasedData`: whatever is deleted first, the data goes before the object does.

use std::time::Duration;

use serde_json::{Value, json};
use support::stage::{annotation, is_terminating, name};

use crate::kit::*;
use crate::stage;

const PAUSED: &str = "local-volume-provisioner/paused";

#[test]
fn the_claim_first_and_then_the_pv() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    // The provisioner is not there when it happens.
    provisioner.kill();
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.delete_pv(&name(&bound)).unwrap();
    stage.stays(
        Duration::from_millis(300),
        "the finalizer holds the object",
        || {
            stage
                .pv(&name(&bound))
                .is_some_and(|pv| is_terminating(&pv))
                && has_secret(&volume)
        },
    );
    let _successor = stage.provisioner().unwrap();
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn the_pv_first_and_then_the_claim_with_a_pod() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    stage.pod("pod", "claim");
    stage.pod_in_phase("pod", "Running");
    keep_secret(&volume);
    stage.delete_pv(&name(&bound)).unwrap();
    stage.delete_claim("claim");
    stage.stays(
        Duration::from_millis(500),
        "the pod keeps all of it",
        || has_secret(&volume) && claim_phase(&stage, "claim") == "Bound",
    );
    stage.delete_pod("pod", false);
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn both_at_once() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let mut pv = stage.used(&stage.bind("claim-0", &volume));
    for round in 0..5 {
        keep_secret(&volume);
        let claim = format!("claim-{round}");
        // The two requests follow each other at once, in either order.
        if round % 2 == 0 {
            stage.delete_claim(&claim);
            // It may be clean, and gone, already.
            let _ = stage.delete_pv(&name(&pv));
        } else {
            stage.delete_pv(&name(&pv)).unwrap();
            stage.delete_claim(&claim);
        }
        offered_anew(&stage, &volume, &pv);
        assert!(entries(&volume).is_empty(), "round {round}");
        pv = stage.used(&stage.bind(&format!("claim-{}", round + 1), &volume));
    }
}

#[test]
fn a_pv_that_nobody_used_goes_at_once_and_unwiped() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    keep_secret(&volume);
    let _provisioner = stage.provisioner().unwrap();
    let unused = stage.available(&volume, None);
    assert!(is_protected(&unused));
    stage.delete_pv(&name(&unused)).unwrap();
    let fresh = offered_anew(&stage, &volume, &unused);
    assert!(is_protected(&fresh));
    assert!(
        has_secret(&volume),
        "what an administrator put there was nobody's to wipe"
    );
    stage.event("VolumeDelete", "never used");
}

#[test]
fn a_pv_once_used_is_cleaned_even_when_its_claim_ref_was_taken_off() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    annotate(&stage, &name(&bound), PAUSED, "true");
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    clear_claim_ref(&stage, &name(&bound));
    stage.in_phase(&name(&bound), "Available");
    annotate(&stage, &name(&bound), PAUSED, Value::Null);
    stage.stays(
        Duration::from_millis(300),
        "it is offered with its data, as told",
        || has_secret(&volume),
    );
    stage.delete_pv(&name(&bound)).unwrap();
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn without_it_the_finalizer_is_on_only_while_cleaning() {
    let Some(stage) = stage() else { return };
    stage.configure("protectReleasedData", "false").unwrap();
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    assert!(!is_protected(&bound));
    keep_secret(&volume);
    // It is there as soon as, and as long as, the PV is Terminating with data.
    stage.delete_claim("claim");
    stage.eventually("a fresh PV", || {
        let pv = stage.pv(&name(&bound));
        if let Some(pv) = pv.as_ref().filter(|pv| is_terminating(pv)) {
            assert!(is_protected(pv));
        }
        pv.filter(|pv| pv.metadata.uid != bound.metadata.uid)
    });
    let fresh = offered_anew(&stage, &volume, &bound);
    assert!(!is_protected(&fresh));
    assert!(entries(&volume).is_empty());
}

#[test]
fn switched_off_it_comes_off_what_lives_and_never_off_what_terminates() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let [free_at, bound_at, deleted_at] = ["free", "bound", "deleted"].map(|entry| {
        stage
            .sandbox
            .tmpfs(&format!("disks/fast/{entry}"), "size=20m")
            .unwrap()
    });
    let mut provisioner = stage.provisioner().unwrap();
    let free = stage.available(&free_at, None);
    let bound = stage.used(&stage.bind("claim", &bound_at));
    let deleted = stage.used(&stage.bind("deleted", &deleted_at));
    keep_secret(&deleted_at);
    assert!([&free, &bound, &deleted].into_iter().all(is_protected));
    annotate(&stage, &name(&deleted), PAUSED, "true");
    stage.delete_pv(&name(&deleted)).unwrap();
    stage.delete_claim("deleted");
    stage.in_phase(&name(&deleted), "Released");
    assert!(provisioner.stop(stage.patience()).unwrap().success());

    stage.configure("protectReleasedData", "false").unwrap();
    let mut second = stage.provisioner().unwrap();
    for pv in [&free, &bound] {
        stage.eventually("the finalizer is off", || {
            let now = stage.pv(&name(pv))?;
            assert_eq!(now.metadata.uid, pv.metadata.uid);
            (!is_protected(&now)).then_some(())
        });
    }
    stage.stays(
        Duration::from_millis(300),
        "a Terminating one keeps it",
        || {
            stage
                .pv(&name(&deleted))
                .is_some_and(|pv| is_protected(&pv))
                && has_secret(&deleted_at)
        },
    );
    assert!(second.stop(stage.patience()).unwrap().success());

    stage.configure("protectReleasedData", "true").unwrap();
    let _third = stage.provisioner().unwrap();
    for pv in [&free, &bound] {
        stage.eventually("the finalizer is on again", || {
            stage.pv(&name(pv)).filter(is_protected)
        });
    }
    annotate(&stage, &name(&deleted), PAUSED, Value::Null);
    let fresh = offered_anew(&stage, &deleted_at, &deleted);
    assert_eq!(annotation(&fresh, PAUSED), None);
    assert!(entries(&deleted_at).is_empty());
}
