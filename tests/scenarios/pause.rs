//! Cleaning paused: by the configuration, on one PV, on the Node.

use std::time::Duration;

use serde_json::{Value, json};
use support::stage::name;

use crate::kit::*;
use crate::stage;

const PAUSED: &str = "local-volume-provisioner/paused";

#[test]
fn the_configuration_pauses_the_node() {
    let Some(stage) = stage() else { return };
    stage.configure("pauseCleaning", "true").unwrap();
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.bind("claim", &volume);
    keep_secret(&volume);
    stage.delete_claim("claim");
    stage.event("CleaningPaused", "when it no longer is");
    stage.stays(Duration::from_millis(500), "nothing is cleaned", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    assert_eq!(status(&mut provisioner)["paused"], true);
    in_state(&stage, &mut provisioner, &volume, "Paused");
    // Discovery goes on.
    stage.available(
        &stage.sandbox.tmpfs("disks/fast/vol-2", "size=20m").unwrap(),
        None,
    );

    assert!(provisioner.stop(stage.patience()).unwrap().success());
    stage.configure("pauseCleaning", "false").unwrap();
    let _successor = stage.provisioner().unwrap();
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn an_annotation_pauses_one_pv() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let held = stage.sandbox.tmpfs("disks/fast/held", "size=20m").unwrap();
    let free = stage.sandbox.tmpfs("disks/fast/free", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let (held_pv, free_pv) = (stage.bind("held", &held), stage.bind("free", &free));
    keep_secret(&held);
    keep_secret(&free);
    annotate(&stage, &name(&held_pv), PAUSED, "true");
    stage.delete_claim("held");
    stage.delete_claim("free");
    offered_anew(&stage, &free, &free_pv);
    stage.event("CleaningPaused", "");
    stage.stays(
        Duration::from_millis(300),
        "only the annotated one waits",
        || has_secret(&held) && is_untouched(&stage, &held_pv, "Released"),
    );
    annotate(&stage, &name(&held_pv), PAUSED, Value::Null);
    offered_anew(&stage, &held, &held_pv);
    assert!(entries(&held).is_empty() && entries(&free).is_empty());
}

#[test]
fn an_annotation_on_the_node_pauses_all_and_ends_at_once() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    annotate_node(&stage, PAUSED, "true");
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.bind("claim", &volume);
    keep_secret(&volume);
    stage.delete_claim("claim");
    stage.event("CleaningPaused", "");
    stage.stays(Duration::from_millis(300), "nothing is cleaned", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    annotate_node(&stage, PAUSED, Value::Null);
    stage.within(Duration::from_secs(8), "it goes on at once", || {
        (!has_secret(&volume)).then_some(())
    });
    offered_anew(&stage, &volume, &bound);
}

#[test]
fn a_pause_comes_in_time_for_a_cleanup_that_waits() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.bind("claim", &volume);
    keep_secret(&volume);
    let mounted = mounted_by_kubelet(&stage, &bound);
    stage.delete_claim("claim");
    stage.eventually("the cleanup waits", || {
        (status_of(&mut provisioner, &volume)["cleanup"]["state"] == "Waiting").then_some(())
    });
    annotate(&stage, &name(&bound), PAUSED, "true");
    stage.eventually("the pause is there", || {
        let pv = stage.pv(&name(&bound))?;
        support::stage::annotation(&pv, PAUSED).map(drop)
    });
    std::fs::remove_dir(&mounted).unwrap();
    stage.event("CleaningPaused", "");
    stage.stays(Duration::from_millis(1500), "nothing is cleaned", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    annotate(&stage, &name(&bound), PAUSED, "false");
    offered_anew(&stage, &volume, &bound);
}
