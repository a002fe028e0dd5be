//! PVs that the Go provisioner made: no hostname label, no identity, no finalizer.

use std::path::Path;

use k8s_openapi::api::core::v1::PersistentVolume;
use support::Stage;
use support::names::{ANNOTATION_CONSENT, LABEL_HOSTNAME, pv_name};
use support::stage::name;

use crate::kit::*;

/// The PV that the Go provisioner would have made for an entry of the class `fast`.
fn go_made(stage: &Stage, entry: &str, capacity: &str) -> PersistentVolume {
    let path = Path::new("/mnt/disks/fast").join(entry);
    let name = pv_name(entry, &stage.node(), &stage.named("fast"));
    let pv = pv_by_hand(stage, &name, "fast", &path, capacity);
    stage.create_pv(pv);
    stage.in_phase(&name, "Available")
}

#[test]
fn released_ones_are_cleaned_if_their_size_is_what_would_be_offered() {
    let (stage, [same_at, other_at]) = or_skip!(fast_stage(["same", "other"]));
    let made = [("same", "20Mi", &same_at), ("other", "21Mi", &other_at)];
    let [same, mut other] = made.map(|(entry, capacity, volume)| {
        let pv = go_made(&stage, entry, capacity);
        keep_secret(volume);
        bind_and_release(&stage, entry, &name(&pv), "fast")
    });
    let mut provisioner = stage.provisioner();
    offered_again(&stage, &same_at, &same);
    assert!(entries(&same_at).is_empty());

    let text = stage.event("VolumeIdentityMismatch", "its capacity 21Mi is not what");
    // It gets only the label by which the provisioner watches it.
    other.metadata.labels = Some([(LABEL_HOSTNAME.to_owned(), stage.node())].into());
    stage.still(&mut provisioner, "the other one is left alone", || {
        has_secret(&other_at) && is_untouched(&stage, &other, "Released")
    });
    let status = status_of(&mut provisioner, &other_at);
    let consent = format!("wipe:{}", status["identity"].as_str().unwrap());
    assert!(text.contains(&consent), "{text}");
    annotate(&stage, &name(&other), ANNOTATION_CONSENT, consent);
    offered_again(&stage, &other_at, &other);
    assert!(entries(&other_at).is_empty());
}

#[test]
fn one_that_appears_while_we_run_is_no_reason_for_a_second_pv() {
    let (stage, []) = or_skip!(fast_stage([]));
    let mut provisioner = stage.provisioner();
    stage.available(&fast(&stage, "first"), None);
    // The Go program is still there, and faster.
    let theirs = go_made(&stage, "second", "20Mi");
    let second = fast(&stage, "second");
    keep_secret(&second);
    stage.eventually("the PV is adopted", || {
        let now = stage.pv(&name(&theirs))?;
        assert_eq!(now.metadata.uid, theirs.metadata.uid);
        let labels = now.metadata.labels.clone().unwrap_or_default();
        let complete = labels.get(LABEL_HOSTNAME) == Some(&stage.node())
            && identity(&now).starts_with("v1:")
            && is_protected(&now);
        complete.then_some(())
    });
    stage.still(&mut provisioner, "nothing is wiped or made twice", || {
        has_secret(&second) && stage.pvs_at(&second).len() == 1 && stage.pvs().len() == 2
    });
}

#[test]
fn those_of_another_node_are_none_of_ours() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol-1"]));
    let theirs = foreign_pv(&stage, &stage.named("of-node-2"), "vol-1");
    let _provisioner = stage.provisioner();
    stage.eventually("a PV of our own for the same path on our node", || {
        stage.pvs_at(&volume).len() == 2
    });
    assert!(is_untouched(&stage, &theirs, "Available"));
}
