//! The volume is still in use: by a pod, its containers, another cleaner.

mod claims;
mod other_names;
mod pods;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use support::stage::name;
use support::{LoopDevice, Stage};

use crate::kit::*;
use crate::stage;

#[test]
fn a_pod_that_uses_the_claim_keeps_the_data() {
    let mut volume = or_skip!(occupied());
    let stage = &volume.stage;
    stage.pod("pod", "claim");
    stage.pod_in_phase("pod", "Running");
    stage.delete_claim("claim");
    // Kubernetes would wait for the pod. An operator does not.
    drop_claim_protection(stage, "claim");
    stage.in_phase(&name(&volume.pv), "Released");
    let text = stage.event("VolumeInUse", "Volume is used by pods");
    assert!(text.contains(&format!("{}/pod", stage.namespace())), "{text}");
    volume.waits();
    volume.is_kept("Released", "the pod keeps its data");
    assert_eq!(volume.stage.events("VolumeInUse").len(), 1, "reported once");
    let log = volume.provisioner.log();
    assert!(!log.contains("the problem is resolved"), "{log}");
    volume.stage.delete_pod("pod", false);
    volume.is_cleaned();
}

#[test]
fn pod_on_another_node_keeps_a_volume_that_other_nodes_reach() {
    let stage = or_skip!(stage_with(&["--release-quiet-period=1s"]));
    let shared = json!({ "matchExpressions": [{ "key": "shared", "operator": "Exists" }] });
    stage.class("fast", &json!({ "selector": [shared] }));
    let path = fast(&stage, "disk");
    let mut volume = Occupied::at(stage, path);
    let stage = &volume.stage;
    stage.pod_on(&stage.named("another-node"), "pod", "claim");
    stage.delete_claim("claim");
    drop_claim_protection(stage, "claim");
    stage.in_phase(&name(&volume.pv), "Released");
    stage.event("VolumeInUse", "Volume is used by pods");
    volume.is_kept("Released", "the pod keeps its data");
    volume.stage.delete_pod("pod", true);
    volume.is_cleaned();
}

#[test]
fn a_pod_that_has_ended_protects_nothing() {
    let volume = or_skip!(occupied());
    let stage = &volume.stage;
    stage.pod_with("pod", "claim", &json!({ "control-plane/run": "succeed" }));
    stage.pod_in_phase("pod", "Succeeded");
    stage.delete_claim("claim");
    drop_claim_protection(stage, "claim");
    volume.is_cleaned();
    assert!(stage.events("VolumeInUse").is_empty());
}

#[test]
fn containers_of_a_pod_deleted_by_force_keep_the_data() {
    let mut volume = or_skip!(occupied());
    volume.stage.pod("pod", "claim");
    volume.stage.pod_in_phase("pod", "Running");
    let mounted = mounted_by_kubelet(&volume.stage, &volume.pv);
    volume.stage.delete_pod("pod", true);
    volume.release();
    waits_for(&mut volume, mounted.to_str().unwrap(), 0);
    volume.is_kept("Released", "the containers still write");
    assert!(volume.stage.events("VolumeInUse").is_empty(), "a short wait is not reported");
    fs::remove_dir(&mounted).unwrap();
    volume.is_cleaned();
}

/// A pod's raw device stays as it is until the kubelet has unmapped it, for at least this number of seconds.
fn a_mapped_device_keeps_its_data(stage: Stage, seconds: u64) {
    let mut volume = Occupied::raw(stage, &json!({}));
    let mapped = mapped_by_kubelet(&volume.stage, &volume.pv, volume.device());
    volume.release();
    waits_for(&mut volume, mapped.to_str().unwrap(), seconds);
    volume.is_kept("Released", "the pod still writes");
    fs::remove_file(&mapped).unwrap();
    volume.is_cleaned();
}

/// Waits until `/status` reports that the volume has waited for this for a number of seconds.
fn waits_for(volume: &mut Occupied, named: &str, seconds: u64) {
    volume.stage.eventually(&format!("/status names {named}"), || {
        let cleanup = status_of(&mut volume.provisioner, &volume.path)["cleanup"].clone();
        let is_named = cleanup["waitingFor"].as_str()?.contains(named);
        (is_named && cleanup["seconds"].as_u64()? >= seconds).then_some(())
    });
}

#[test]
fn a_raw_device_that_the_kubelet_has_mapped_keeps_its_data() {
    let stage = or_skip!(stage());
    a_mapped_device_keeps_its_data(stage, 0);
}

/// Where only `pods` was mounted into the container, what it shows counts all the same.
#[test]
fn a_raw_device_that_is_seen_in_use_keeps_its_data_although_not_all_can_be_seen() {
    let stage = or_skip!(stage_with(&["--release-quiet-period=1s"]));
    fs::remove_dir(stage.kubelet_dir().join("plugins")).unwrap();
    // The quiet period is over by then.
    a_mapped_device_keeps_its_data(stage, 3);
}

/// Clocks differ, and Kubernetes before 1.29 records no date.
#[test]
fn quiet_period_ignores_the_date_of_the_release() {
    let hours = |hours| jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
    for date in [Value::Null, json!(hours(-1)), json!(hours(1))] {
        let stage = or_skip!(stage_with(&["--release-quiet-period=1500ms"]));
        fs::remove_dir(stage.kubelet_dir().join("pods/of-something-else")).unwrap();
        let volume = Occupied::fast(stage);
        let (stage, pv) = (&volume.stage, name(&volume.pv));
        let pause = |value| annotate(stage, &pv, PAUSED, value);
        pause(json!("true"));
        stage.delete_claim("claim");
        stage.in_phase(&pv, "Released");
        let dated = json!({ "status": { "lastPhaseTransitionTime": date } });
        let api: Api<PersistentVolume> = Api::all(stage.client.clone());
        stage.request(api.patch_status(&pv, &PatchParams::default(), &Patch::Merge(&dated)));
        let resumed = Instant::now();
        pause(Value::Null);
        stage.eventually("the volume is cleaned", || !has_secret(&volume.path));
        let passed = resumed.elapsed();
        assert!(passed >= Duration::from_millis(1500), "{date}: {passed:?}");
        volume.is_cleaned();
    }
}

#[test]
fn a_lock_of_another_cleaner_is_waited_for_and_reported() {
    let mut volume = or_skip!(occupied());
    let locked = Flock::lock(File::open(&volume.path).unwrap(), FlockArg::LockExclusive).unwrap();
    volume.release();
    let text = volume.stage.event("VolumeInUse", "is locked by another process");
    assert!(text.contains(volume.path.to_str().unwrap()), "{text}");
    volume.waits();
    volume.is_kept("Released", "the other cleaner has it");
    drop(locked);
    volume.is_cleaned();
    let total = "persistentvolume_delete_total{mode=\"Filesystem\",type=\"process\"}";
    assert_eq!(metric(&mut volume.provisioner, total), Some(1));
    assert_eq!(volume.stage.events("VolumeInUse").len(), 1, "reported once");
}

/// A volume stays as it is and its user is named, until it is gone.
fn is_kept_for_its_user<T>(mut volume: Occupied, (user, named): (T, String)) {
    volume.note_data();
    volume.release();
    waits_and_is_told(&mut volume, &named);
    let events = volume.stage.events("VolumeInUse");
    assert_eq!(events.len(), 1, "reported once: {events:?}");
    volume.is_kept("Released", "it is in use");
    drop(user);
    volume.is_cleaned();
}

fn a_user_of_the_device_is_waited_for<T>(use_it: impl FnOnce(&LoopDevice) -> (T, String)) {
    let volume = or_skip!(occupied_raw(&json!({})));
    let used = use_it(volume.device());
    is_kept_for_its_user(volume, used);
}

fn a_user_of_the_filesystem_is_waited_for<T>(use_it: impl FnOnce(&Path) -> (T, String)) {
    let volume = or_skip!(occupied());
    let used = use_it(&volume.path);
    is_kept_for_its_user(volume, used);
}

fn waits_and_is_told(volume: &mut Occupied, named: &str) {
    waits_for(volume, named, 0);
    volume.stage.event("VolumeInUse", named);
    let status = status_of(&mut volume.provisioner, &volume.path);
    let waited = status["cleanup"]["seconds"].as_u64();
    assert!(waited >= Some(3), "udev and the like look at disks and go: {waited:?}");
}

#[test]
fn a_loop_device_over_the_raw_device_is_waited_for_and_named() {
    a_user_of_the_device_is_waited_for(|device| {
        let upper = LoopDevice::over(&File::open(device.path()).unwrap()).unwrap();
        let name = upper.path().file_name().unwrap().to_str().unwrap();
        let named = format!("{name} lies on it");
        (upper, named)
    });
}

#[test]
fn a_loop_device_over_a_file_is_waited_for_and_named() {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let path = volume.join("image");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let device = LoopDevice::over(&file).unwrap();
        // `/status` does not name the file of a tenant.
        (device, "is a loop device over “".to_owned())
    });
}
