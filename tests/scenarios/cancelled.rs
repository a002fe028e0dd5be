//! A running wipe ends when its reason ends, and waits while it is paused.

use control_plane::requests::Verb;
use control_plane::resource;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::{Value, json};
use support::names::LABEL_HOSTNAME;
use support::skip;
use support::stage::{is_terminating, name, phase};

use crate::kit::*;

const PVS: &str = "persistentvolumes";
/// What a wipe still writes after it was paused: its two threads stop between chunks of 1 MiB.
const CHUNKS: u64 = 2 << 20;

/// A device that a wipe of 32 TiB overwrites, again and again, and the objects from before its release.
fn wiping() -> Option<(Occupied, PersistentVolumeClaim)> {
    let settings = json!({ "blockCleanerCommand": ["/scripts/shred.sh", "1000000"] });
    let mut volume = occupied_raw(&settings)?;
    let claims = Api::namespaced(volume.stage.client.clone(), &volume.stage.namespace());
    let claim = volume.stage.request(claims.get("claim"));
    volume.stage.delete_claim("claim");
    wiped_more(&mut volume, 0);
    Some((volume, claim))
}

/// The bytes that the current attempt has wiped.
fn wiped(volume: &mut Occupied) -> u64 {
    let cleanup = &status_of(&mut volume.provisioner, &volume.path)["cleanup"];
    cleanup["bytesWiped"].as_u64().unwrap_or_default()
}

/// Waits until more bytes are wiped.
fn wiped_more(volume: &mut Occupied, than: u64) -> u64 {
    let (stage, provisioner, path) = (&volume.stage, &mut volume.provisioner, &volume.path);
    stage.eventually("bytes are wiped", || {
        let cleanup = &status_of(provisioner, path)["cleanup"];
        cleanup["bytesWiped"].as_u64().filter(|bytes| *bytes > than)
    })
}

/// The wipe was cancelled for this reason, once, and what a tenant writes now stays.
fn is_cancelled(volume: &mut Occupied, because: &str) {
    let stage = &volume.stage;
    stage.event("CleaningCancelled", because);
    scribble(volume.device().path());
    let spots = secrets_on(volume.device().path());
    let device = volume.device().path().to_owned();
    stage.still(&mut volume.provisioner, "nothing is wiped", || secrets_on(&device) == spots);
    assert_eq!(stage.events("CleaningCancelled").len(), 1);
    assert_eq!(stage.events("VolumeFailedDelete"), [""; 0]);
    let failed = "persistentvolume_delete_failed_total{mode=\"Block\",type=\"process\"}";
    let failures = metric(&mut volume.provisioner, failed);
    assert_eq!(failures.unwrap_or_default(), 0);
}

#[test]
fn wipe_ends_when_a_restored_etcd_has_its_pv_bound() {
    let (mut volume, claim) = or_skip!(wiping());
    let Some(control_plane) = volume.stage.embedded() else {
        return skip("the etcd of a cluster that others use is not restored");
    };
    let store = control_plane.store();
    store.restore(&resource::PERSISTENT_VOLUME_CLAIMS, json!(claim));
    store.restore(&resource::PERSISTENT_VOLUMES, json!(volume.pv));
    is_cancelled(&mut volume, "is Bound again");
    let pv = volume.stage.pv(&name(&volume.pv)).unwrap();
    assert!(phase(&pv) == "Bound" && !is_terminating(&pv));
    assert_eq!(pv.metadata.uid, volume.pv.metadata.uid);
}

#[test]
fn wipe_ends_when_another_pv_has_its_path() {
    let (mut volume, _) = or_skip!(wiping());
    let none = json!({ "metadata": { "finalizers": null } });
    volume.stage.patch_pv(&name(&volume.pv), &none);
    is_gone(&volume.stage, &volume.pv);
    let mut other = pv_by_hand(&volume.stage, "by-hand", "raw", &volume.path, "32Mi");
    other["spec"]["volumeMode"] = json!("Block");
    let labels = json!({ LABEL_HOSTNAME: volume.stage.node() });
    other["metadata"]["labels"] = labels;
    let other = volume.stage.create_pv(other);
    let because = format!("PV {} has the same path", name(&other));
    is_cancelled(&mut volume, &because);
}

#[test]
fn wipe_ends_when_its_policy_becomes_retain() {
    let (mut volume, _) = or_skip!(wiping());
    set_policy(&volume.stage, &volume.pv, "Retain");
    is_cancelled(&mut volume, "is Retain now");
    // The rest of the data is the tenant's.
    volume.stage.event("VolumeDirty", "disk");
    assert!(volume.stage.pvs_at(&volume.path).is_empty());
}

#[test]
fn paused_wipe_goes_on_from_where_it_was() {
    let (mut volume, _) = or_skip!(wiping());
    volume.annotate(PAUSED, "true");
    volume.stage.event("CleaningPaused", "when it no longer is");
    let (stage, path) = (&volume.stage, &volume.path);
    in_state(stage, &mut volume.provisioner, path, "Paused");
    let before = wiped(&mut volume);
    let provisioner = &mut volume.provisioner;
    let passed = || true;
    volume.stage.still_cleaning(provisioner, "two passes", passed);
    let paused_at = wiped(&mut volume);
    assert!(paused_at <= before + CHUNKS, "{before} to {paused_at}");
    volume.annotate(PAUSED, Value::Null);
    let (stage, path) = (&volume.stage, &volume.path);
    in_state(stage, &mut volume.provisioner, path, "Cleaning");
    assert!(wiped(&mut volume) >= paused_at);
    wiped_more(&mut volume, paused_at);
    assert_eq!(volume.stage.events("CleaningCancelled"), [""; 0]);
}

/// Of the two changes of the policy, the watch has shown only the first.
#[test]
fn wipe_goes_on_when_only_a_late_watch_shows_another_policy() {
    let (mut volume, _) = or_skip!(wiping());
    let faults = volume.stage.faults();
    let pv = name(&volume.pv);
    let get = faults.on(Verb::Get).resource(PVS).name(&pv).times(1);
    let held_up = get.hold();
    set_policy(&volume.stage, &volume.pv, "Retain");
    let asked = || held_up.hits() == 1;
    volume.stage.eventually("the PV is read", asked);
    let hold = faults.hold_watches(PVS);
    set_policy(&volume.stage, &volume.pv, "Delete");
    held_up.clear();
    let late = || volume.provisioner.log().contains("the watch is late");
    volume.stage.eventually("the policy is read again", late);
    let before = wiped(&mut volume);
    wiped_more(&mut volume, before);
    drop(hold);
    assert_eq!(volume.stage.events("CleaningCancelled"), [""; 0]);
}
