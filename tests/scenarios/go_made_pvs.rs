//! PVs that the Go provisioner made: no hostname label, no identity, no finalizer.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::Stage;
use support::names::{ANNOTATION_CONSENT, ANNOTATION_IDENTITY, LABEL_HOSTNAME, pv_name};
use support::stage::{annotation, name};

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
    let wipe = consent_in(&text, "wipe:");
    annotate(&stage, &name(&other), ANNOTATION_CONSENT, wipe);
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
            && annotation(&now, "local-volume-provisioner/offer").is_some();
        complete.then_some(())
    });
    stage.still(&mut provisioner, "nothing is wiped or made twice", || {
        has_secret(&second) && stage.pvs_at(&second).len() == 1 && stage.pvs().len() == 2
    });
}

/// The watch, which selects by the label, reports it as deleted.
#[test]
fn one_that_loses_its_hostname_label_gets_it_back_and_no_second_pv() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol"]));
    let pv = pv_by_hand(&stage, &stage.named("by-hand"), "fast", &volume, "20Mi");
    let theirs = stage.create_pv(pv);
    stage.in_phase(&name(&theirs), "Available");
    let mut provisioner = stage.provisioner();
    let labelled = || {
        let now = stage.pv(&name(&theirs))?;
        (now.metadata.labels?.get(LABEL_HOSTNAME) == Some(&stage.node())).then_some(())
    };
    stage.eventually("it has the label", labelled);
    keep_secret(&volume);
    let without = json!({ "metadata": { "labels": { LABEL_HOSTNAME: null } } });
    stage.patch_pv(&name(&theirs), &without);
    stage.eventually("it has the label again", labelled);
    stage.still(&mut provisioner, "there is no other PV", || {
        has_secret(&volume) && stage.pvs_at(&volume).len() == 1
    });
}

/// Two programs that each insist on their own metadata must not write for ever.
#[test]
fn another_writer_that_reverts_our_metadata_costs_few_writes() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol"]));
    let provisioner = stage.provisioner();
    let pv = name(&stage.available(&volume, None));
    let mark = stage.requests().mark();
    let mut reverted = 0;
    stage.eventually("the PV backs off", || {
        let now = stage.pv(&pv).unwrap();
        if annotation(&now, ANNOTATION_IDENTITY).is_some() {
            reverted += 1;
            let without = json!({ "metadata": { "annotations": { ANNOTATION_IDENTITY: null } } });
            stage.patch_pv(&pv, &without);
        }
        provisioner.log().contains("another writer reverts")
    });
    std::thread::sleep(Duration::from_secs(2));
    let writes = stage.requests().since(mark);
    let writes = writes.iter().filter(|it| it.writes() && it.resource == "persistentvolumes");
    let writes = writes.count();
    assert!(writes <= 10, "{writes} writes, of which {reverted} were reverted");
}
