//! PVs that the Go provisioner made: no hostname label, no identity, no finalizer.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use local_volume_provisioner::names::pv_name;
use serde_json::json;
use support::Stage;
use support::stage::{annotation, name};

use crate::kit::*;
use crate::stage;

/// The PV that the Go provisioner would have made for an entry of the class `fast`.
fn go_made(stage: &Stage, entry: &str, capacity: &str) -> PersistentVolume {
    let path = Path::new("/mnt/disks/fast").join(entry);
    let name = pv_name(entry, &stage.node(), &stage.named("fast"));
    let pv = pv_by_hand(stage, &name, "fast", &path, capacity);
    stage.create_pv(pv).unwrap();
    stage.in_phase(&name, "Available")
}

/// Waits until a PV has all that ours have.
fn adopted(stage: &Stage, pv: &PersistentVolume) -> PersistentVolume {
    stage.eventually("the PV is adopted", || {
        let now = stage.pv(&name(pv))?;
        assert_eq!(now.metadata.uid, pv.metadata.uid);
        let label = now
            .metadata
            .labels
            .as_ref()
            .and_then(|all| all.get("kubernetes.io/hostname"));
        let complete = label.is_some_and(|hostname| *hostname == stage.node())
            && identity(&now).starts_with("v1:")
            && is_protected(&now);
        complete.then_some(now)
    })
}

#[test]
fn available_and_bound_ones_are_adopted_and_cleaned_in_their_turn() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let free_at = stage.sandbox.tmpfs("disks/fast/free", "size=20m").unwrap();
    let bound_at = stage.sandbox.tmpfs("disks/fast/bound", "size=20m").unwrap();
    let (free, bound) = (
        go_made(&stage, "free", "20Mi"),
        go_made(&stage, "bound", "20Mi"),
    );
    stage.claim("claim", "fast", Some(&name(&bound))).unwrap();
    stage.in_phase(&name(&bound), "Bound");
    keep_secret(&bound_at);
    keep_secret(&free_at);

    let _provisioner = stage.provisioner().unwrap();
    adopted(&stage, &free);
    adopted(&stage, &bound);
    stage.used(&bound);
    stage.event("VolumeAdopted", "without a hostname label");
    assert_eq!(stage.pvs().len(), 2, "no second PV for either path");
    assert!(has_secret(&free_at) && has_secret(&bound_at));
    assert_eq!(
        annotation(
            &stage.pv(&name(&free)).unwrap(),
            "local-volume-provisioner/used"
        ),
        None
    );

    stage.delete_claim("claim");
    let fresh = offered_anew(&stage, &bound_at, &bound);
    assert_eq!(
        name(&fresh),
        name(&bound),
        "both programs give the same name"
    );
    assert!(entries(&bound_at).is_empty());
}

#[test]
fn released_ones_are_cleaned_if_their_size_is_what_would_be_offered() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let same_at = stage.sandbox.tmpfs("disks/fast/same", "size=20m").unwrap();
    let other_at = stage.sandbox.tmpfs("disks/fast/other", "size=20m").unwrap();
    let (same, other) = (
        go_made(&stage, "same", "20Mi"),
        go_made(&stage, "other", "21Mi"),
    );
    for (claim, pv, volume) in [("first", &same, &same_at), ("second", &other, &other_at)] {
        bind_and_release(&stage, claim, &name(pv), "fast");
        keep_secret(volume);
    }
    let mut provisioner = stage.provisioner().unwrap();
    offered_anew(&stage, &same_at, &same);
    assert!(entries(&same_at).is_empty());

    let text = stage.event("VolumeIdentityMismatch", "its capacity 21Mi is not what");
    stage.stays(
        Duration::from_millis(500),
        "the other one is left alone",
        || has_secret(&other_at) && is_untouched(&stage, &other, "Released"),
    );
    let observed = status_of(&mut provisioner, &other_at)["identity"]
        .as_str()
        .unwrap()
        .to_owned();
    let consent = format!("wipe:{observed}");
    assert!(text.contains(&consent), "the way out is told: {text}");
    annotate(
        &stage,
        &name(&other),
        "local-volume-provisioner/consent",
        consent,
    );
    offered_anew(&stage, &other_at, &other);
    assert!(entries(&other_at).is_empty());
}

#[test]
fn one_that_appears_while_we_run_is_no_reason_for_a_second_pv() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let first = stage.sandbox.tmpfs("disks/fast/first", "size=20m").unwrap();
    stage.available(&first, None);
    // The Go program is still there, and faster.
    let theirs = go_made(&stage, "second", "20Mi");
    let second = stage
        .sandbox
        .tmpfs("disks/fast/second", "size=20m")
        .unwrap();
    adopted(&stage, &theirs);
    assert_eq!(stage.pvs_at(&second).len(), 1);
    assert_eq!(stage.pvs().len(), 2);
}

#[test]
fn those_of_another_node_are_none_of_ours() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut theirs = pv_by_hand(&stage, &stage.named("of-node-2"), "fast", &volume, "20Mi");
    let term = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
    *theirs.pointer_mut(term).unwrap() = json!(["node-2"]);
    theirs["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] =
        json!("local-volume-provisioner-node-2-uid");
    let theirs = stage.create_pv(theirs).unwrap();
    let _provisioner = stage.provisioner().unwrap();
    stage.eventually("a PV of our own for the same path on our node", || {
        (stage.pvs_at(&volume).len() == 2).then_some(())
    });
    let now = stage.pv(&name(&theirs)).unwrap();
    assert_eq!(now.metadata.labels, theirs.metadata.labels);
    assert_eq!(now.metadata.annotations, theirs.metadata.annotations);
}
