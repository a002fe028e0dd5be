//! Cleaning paused: by the configuration, on one PV, on the Node.

use serde_json::Value;

use crate::kit::*;

/// The cleanup is refused with an event, and neither the PV nor its data changes.
fn is_paused(volume: &mut Occupied) {
    volume.stage.event("CleaningPaused", "when it no longer is");
    volume.is_kept("Released", "nothing is cleaned");
}

#[test]
fn the_configuration_pauses_the_node() {
    let mut volume = or_skip!(occupied());
    volume.stage.configure("pauseCleaning", "true");
    volume
        .stage
        .eventually("the pause is in force", || status(&mut volume.provisioner)["paused"] == true);
    volume.release();
    is_paused(&mut volume);
    in_state(&volume.stage, &mut volume.provisioner, &volume.path, "Paused");
    // Discovery goes on.
    let another = fast(&volume.stage, "vol-2");
    volume.stage.available(&another, None);

    let key = volume.stage.config_dir().join("pauseCleaning");
    std::fs::remove_file(key).unwrap();
    volume.is_cleaned();
    assert_eq!(status(&mut volume.provisioner)["paused"], false);
}

#[test]
fn an_annotation_pauses_one_pv() {
    let mut held = or_skip!(occupied());
    let free = fast(&held.stage, "free");
    let free_pv = held.stage.used(&held.stage.bind("free", &free));
    keep_secret(&free);
    held.annotate(PAUSED, "true");
    held.release();
    held.stage.delete_claim("free");
    offered_again(&held.stage, &free, &free_pv);
    assert!(entries(&free).is_empty());
    is_paused(&mut held);
    held.annotate(PAUSED, Value::Null);
    held.is_cleaned();
}

#[test]
fn a_pause_comes_in_time_for_a_cleanup_that_waits() {
    let mut volume = or_skip!(occupied());
    let mounted = mounted_by_kubelet(&volume.stage, &volume.pv);
    volume.release();
    volume.waits();
    volume.annotate(PAUSED, "true");
    std::fs::remove_dir(&mounted).unwrap();
    is_paused(&mut volume);
    volume.annotate(PAUSED, "false");
    volume.is_cleaned();
}
