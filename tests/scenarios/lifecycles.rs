//! Whole lives: a shutdown in the middle, and a StatefulSet that comes back at once.

use std::fs::{self, File};
use std::path::Path;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::Stage;
use support::stage::{is_terminating, name};

use crate::kit::*;
use crate::lively_stage;

#[test]
fn sigterm_in_the_middle_of_a_wipe_ends_it_soon_and_the_next_process_goes_on() {
    let (stage, []) = or_skip!(fast_stage([]));
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m,nr_inodes=0").unwrap();
    // On a busy machine a wipe may be over before the signal comes: the next one takes longer.
    let bound = [60_000, 120_000, 240_000, 480_000]
        .into_iter()
        .find_map(|files| stopped_amid_wipe(&stage, &volume, files))
        .expect("the signal came in the middle");
    let held = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&held) && is_protected(&held), "no claim can bind what is half clean");

    let _successor = stage.provisioner();
    offered_again(&stage, &volume, &bound);
    assert_eq!(fs::read_dir(&volume).unwrap().count(), 0);
}

/// Ends a provisioner that wipes so many files; the PV, unless the wipe was over by then.
fn stopped_amid_wipe(stage: &Stage, volume: &Path, files: usize) -> Option<PersistentVolume> {
    let mut provisioner = stage.provisioner();
    let claim = format!("claim-{files}");
    let bound = stage.used(&stage.bind(&claim, volume));
    for number in 0..files {
        File::create(volume.join(number.to_string())).unwrap();
    }
    stage.delete_claim(&claim);
    // Asked of the program: a directory that a process reads is in use.
    stage.eventually("the wipe is under way, or over", || {
        let cleanup = &status_of(&mut provisioner, volume)["cleanup"];
        let is_begun = cleanup["entriesRemoved"].as_u64() > Some(0);
        let now = stage.pv(&name(&bound));
        let is_over = now.is_none_or(|pv| pv.metadata.uid != bound.metadata.uid);
        is_begun || is_over
    });
    let status = provisioner.stop(stage.timeout()).unwrap();
    assert!(status.success(), "{status}");
    let is_amid = fs::read_dir(volume).unwrap().next().is_some();
    is_amid.then_some(bound)
}

#[test]
fn a_claim_made_again_at_once_with_its_pod_gets_a_clean_volume() {
    let stage = or_skip!(lively_stage());
    let [volume] = fast_volumes(&stage, ["vol-1"]);
    let _provisioner = stage.provisioner();
    let mut pv = stage.available(&volume, None);
    stage.claim("data-web-0", "fast", None);
    stage.pod("web-0", "data-web-0");
    for life in 0..5 {
        stage.pod_in_phase("web-0", "Running");
        assert_eq!(stage.pvs_at(&volume).len(), 1, "life {life}");
        assert!(entries(&volume).is_empty(), "life {life} begins with {:?}", entries(&volume));
        keep_secret(&volume);
        stage.delete_claim("data-web-0");
        stage.delete_pod("web-0", false);
        stage.eventually("both are gone", || claim_phase(&stage, "data-web-0").is_empty());
        stage.claim("data-web-0", "fast", None);
        stage.pod("web-0", "data-web-0");
        pv = stage.eventually("the new claim is bound to the new PV", || {
            let bound = claim_phase(&stage, "data-web-0") == "Bound";
            stage.pvs_at(&volume).pop().filter(|now| bound && now.metadata.uid != pv.metadata.uid)
        });
    }
    assert!(
        stage.events("VolumeInUse").is_empty(),
        "the new pod was taken for a user of the old claim"
    );
}

#[test]
fn an_old_volume_is_cleaned_while_a_new_claim_of_the_same_name_uses_another() {
    let stage = or_skip!(lively_stage());
    stage.class("fast", &json!({}));
    let [first, second] = ["first", "second"].map(|entry| fast(&stage, entry));
    let _provisioner = stage.provisioner();
    let spare = stage.available(&second, None);
    let old = stage.used(&stage.bind("data-web-0", &first));
    keep_secret(&first);
    stage.delete_claim("data-web-0");
    stage.eventually("the claim is gone", || claim_phase(&stage, "data-web-0").is_empty());
    stage.claim("data-web-0", "fast", Some(&name(&spare)));
    stage.pod("web-0", "data-web-0");
    stage.pod_in_phase("web-0", "Running");
    keep_secret(&second);
    offered_again(&stage, &first, &old);
    assert!(entries(&first).is_empty());
    assert!(has_secret(&second), "the new tenant's data");
}
