//! `missingVolumePolicy: Delete`: an unused PV is deleted when its disk is gone, and no other is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control_plane::faults::Fault;
use control_plane::requests::Verb;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::Stage;
use support::stage::{is_terminating, name, uid};

use crate::kit::*;
use crate::stage;

/// Three of these is what a volume has to be missing for.
const PERIOD: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(6);
const PVS: &str = "persistentvolumes";

/// A class with the policy and these volumes.
fn set<const N: usize>(volumes: [&str; N]) -> Option<(Stage, [PathBuf; N])> {
    let mut stage = stage()?;
    stage.add_arg(&format!("--discovery-period={PERIOD:?}"));
    let settings = json!({ "missingVolumePolicy": "Delete" });
    stage.class("fast", &settings);
    let volumes = volumes.map(|entry| fast(&stage, entry));
    Some((stage, volumes))
}

/// Denies what marks require, so that the finalizer is on every PV.
fn without_marks(stage: &Stage) -> Fault {
    stage.faults().on(Verb::Get).resource("namespaces").forbid()
}

/// Holds the request that takes the finalizer off the PV of a volume that is missing.
fn hold_release(stage: &Stage, pv: &PersistentVolume, volume: &Path) -> Fault {
    let patch = stage.faults().on(Verb::Patch).resource(PVS);
    let held = patch.name(&name(pv)).times(1).hold();
    stage.sandbox.umount(volume).unwrap();
    stage.eventually("it releases the PV", || held.hits() > 0);
    held
}

#[test]
fn an_unused_pv_is_deleted_with_its_disk_and_created_with_a_new_one() {
    let (stage, [lost, unmounted, kept]) = or_skip!(set(["lost", "unmounted", "kept"]));
    let mut provisioner = stage.provisioner();
    let [first, second, third] = [&lost, &unmounted, &kept].map(|at| stage.available(at, None));
    let begun = Instant::now();
    stage.sandbox.umount(&lost).unwrap();
    fs::remove_dir(&lost).unwrap();
    stage.sandbox.umount(&unmounted).unwrap();
    let reasons = [(&first, &lost, "VolumeMissing"), (&second, &unmounted, "VolumeNotMounted")];
    let series = reasons.map(|(pv, path, reason)| {
        let (pv, path) = (name(pv), path.display());
        format!("unhealthy_persistentvolume{{path=\"{path}\",pv=\"{pv}\",reason=\"{reason}\"}}")
    });
    // Both at once: there is not much time until the PVs are gone.
    stage.eventually(&series.join(" and "), || {
        let is_told = |series: &String| metric(&mut provisioner, series) == Some(1);
        series.iter().all(is_told)
    });
    stage.event("VolumeMissing", "the PV was never used");
    stage.event("VolumeNotMounted", "the PV was never used");
    for pv in [&first, &second] {
        is_gone(&stage, pv);
    }
    assert!(begun.elapsed() >= LIMIT, "{:?}", begun.elapsed());
    stage.event("VolumeMissing", "so the PV is deleted");
    assert!(is_untouched(&stage, &third, "Available"));

    fast(&stage, "lost");
    assert_ne!(uid(&stage.available(&lost, None)), uid(&first));
}

/// As the protection controller does, which takes its own finalizer off what is being deleted.
#[test]
fn a_deletion_is_announced_although_the_pv_changes_meanwhile() {
    let (stage, [lost, _]) = or_skip!(set(["lost", "other"]));
    let _denied = without_marks(&stage);
    let mut provisioner = stage.provisioner();
    let pv = stage.available(&lost, None);
    let held = hold_release(&stage, &pv, &lost);
    let change = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
    stage.patch_pv(&name(&pv), &change);
    held.clear();
    is_gone(&stage, &pv);
    let event = stage.event("VolumeMissing", "so the PV is deleted");
    provisioner.stop(stage.timeout()).unwrap();
    let texts = stage.events("VolumeMissing");
    assert_eq!(texts.iter().filter(|text| **text == event).count(), 1);
}

/// The version that was judged holds for the deletion only.
#[test]
fn a_pv_that_is_used_after_all_keeps_its_finalizer() {
    let (stage, [lost, _]) = or_skip!(set(["lost", "other"]));
    let _denied = without_marks(&stage);
    let mut provisioner = stage.provisioner();
    let pv = stage.available(&lost, None);
    let held = hold_release(&stage, &pv, &lost);
    let claim = json!({ "namespace": "default", "name": "a-claim", "uid": "a-uid" });
    let used = json!({ "spec": { "claimRef": claim } });
    stage.patch_pv(&name(&pv), &used);
    held.clear();
    stage.still(&mut provisioner, "its data may be a tenant's", || {
        let now = stage.pv(&name(&pv));
        now.is_some_and(|now| is_terminating(&now) && is_protected(&now))
    });
}

#[test]
fn a_device_that_was_pulled_counts_as_missing() {
    let (stage, []) = or_skip!(set([]));
    let settings = json!({ "missingVolumePolicy": "Delete" });
    let dir = raw_class(&stage, &settings);
    let [disk, other] = [raw(&stage), raw(&stage)];
    // As udev has them: when the disk goes, its link goes, and ours leads to nothing.
    let by_id = stage.sandbox.dir("by-id").unwrap();
    let name_of_disk = link(&disk, &by_id, "a-disk");
    let entry = dir.join("entry");
    std::os::unix::fs::symlink(&name_of_disk, &entry).unwrap();
    link(&other, &dir, "other");
    let _provisioner = stage.provisioner();
    let pv = stage.available(&entry, None);
    fs::remove_file(&name_of_disk).unwrap();
    is_gone(&stage, &pv);
    link(&disk, &by_id, "a-disk");
    stage.available(&entry, None);
}
