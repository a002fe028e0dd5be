//! Object and disk disagree: nothing is wiped or offered until an operator decides as in docs/marks.md.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use control_plane::faults::{Answer, Fault};
use control_plane::requests::Verb;
use control_plane::resource;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt};
use local_volume_provisioner::names::FINALIZER;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::{Value, json};
use support::names::{ANNOTATION_CONSENT, second_pv_name};
use support::stage::name;
use support::{killed_by, skip};

use crate::kit::*;

/// The PV is lost, as with a cluster, although its data is on the disk.
fn remove(volume: &Occupied) {
    volume.delete_pv();
    let none = json!({ "metadata": { "finalizers": null } });
    volume.stage.patch_pv(&name(&volume.pv), &none);
    is_gone(&volume.stage, &volume.pv);
}

/// Makes a backup of the PV. Claim and PV are lost while no provisioner runs.
pub(crate) fn lose(volume: &mut Occupied) -> PersistentVolume {
    let backup = volume.stage.pv(&name(&volume.pv)).unwrap();
    volume.stop();
    volume.release();
    remove(volume);
    backup
}

/// Creates a PV from a backup: it has another UID.
pub(crate) fn restore(
    volume: &mut Occupied,
    backup: &PersistentVolume,
    change: impl FnOnce(&mut Value),
) {
    let mut pv = json!(backup);
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        pv["metadata"][key] = Value::Null;
    }
    pv["status"] = Value::Null;
    change(&mut pv);
    volume.pv = volume.stage.create_pv(pv);
}

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or(("", text));
    rest.split_once(after).unwrap_or((text, "")).0
}

/// Waits until the volume is dirty, and returns the annotation of the Node and its value that consent to a wipe.
fn consent_of_node(volume: &mut Occupied) -> (String, String) {
    volume.stage.event("VolumeDirty", "vol-1");
    let (stage, provisioner, path) = (&volume.stage, &mut volume.provisioner, &volume.path);
    skipped(stage, provisioner, path, "Dirty");
    let status = status_of(provisioner, path);
    let detail = status["detail"].as_str().unwrap();
    let key = between(detail, "kubectl annotate --overwrite node ", "=wipe:");
    let (_, key) = key.split_once(' ').unwrap();
    let value = between(detail, "=wipe:", " ");
    (key.to_owned(), format!("wipe:{value}"))
}

/// The watch shows the PV as it was before its claim, and the root as its tenant has changed it.
#[test]
fn stalled_watch_does_not_record_the_tenants_root() {
    let stage = or_skip!(stage_with(&["--discovery-period=300ms"]));
    let [path] = fast_volumes(&stage, ["vol"]);
    let mut provisioner = stage.provisioner();
    let pv = stage.available(&path, None);
    let hold = stage.faults().hold_watches("persistentvolumes");
    stage.claim("claim", "fast", Some(&name(&pv)));
    stage.in_phase(&name(&pv), "Bound");
    let own = fs::metadata(&path).unwrap();
    chown(&path, Some(1234), Some(1234)).unwrap();
    stage.still_unwatched(&mut provisioner, "nothing fails", || true);
    drop(hold);
    stage.used(&stage.pv(&name(&pv)).unwrap());
    stage.delete_claim("claim");
    offered_again(&stage, &path, &pv);
    assert_eq!(fs::metadata(&path).unwrap().uid(), own.uid());
}

fn empty(path: &Path) {
    for entry in entries(path) {
        let entry = path.join(entry);
        let removed = fs::remove_file(&entry).or_else(|_| fs::remove_dir(&entry));
        removed.unwrap();
    }
}

/// A tenant may have emptied it, too.
#[test]
fn volume_that_was_emptied_by_hand_is_offered_with_the_root_of_its_offer() {
    let mut volume = or_skip!(occupied());
    lose(&mut volume);
    empty(&volume.path);
    let own = fs::metadata(&volume.path).unwrap();
    chown(&volume.path, Some(1234), Some(1234)).unwrap();
    fs::set_permissions(&volume.path, Permissions::from_mode(0o1777)).unwrap();
    setxattr(&volume.path, "user.tenant", b"data", XattrFlags::empty()).unwrap();
    volume.start();
    volume.stage.available(&volume.path, None);
    let attribute = getxattr(&volume.path, "user.tenant", &mut [0; 8]);
    assert_eq!(attribute, Err(Errno::NODATA));
    let found = fs::metadata(&volume.path).unwrap();
    assert_eq!((found.uid(), found.mode()), (own.uid(), own.mode()));
}

/// An administrator moves the data away and back, with a scan in between.
#[test]
fn data_that_comes_back_before_the_offer_is_not_offered() {
    let mut volume = or_skip!(occupied());
    lose(&mut volume);
    empty(&volume.path);
    chown(&volume.path, Some(1234), Some(1234)).unwrap();
    let stage = &volume.stage;
    // It is read in the search for the PV of the mark, and before the offer.
    let second = second_pv_name("vol-1", &stage.node(), &stage.named("fast"));
    let hold = || {
        let get = volume.stage.faults().on(Verb::Get).resource("persistentvolumes");
        get.name(&second).times(1).hold()
    };
    let searched = hold();
    let mut provisioner = stage.provisioner();
    stage.eventually("it searches", || searched.hits() > 0);
    let offered = hold();
    searched.clear();
    stage.eventually("it is about to offer it", || offered.hits() > 0);
    fs::write(volume.path.join("data"), "a tenant's").unwrap();
    offered.clear();
    skipped(stage, &mut provisioner, &volume.path, "Dirty");
    assert!(stage.pvs_at(&volume.path).is_empty());
    assert_eq!(fs::metadata(&volume.path).unwrap().uid(), 1234, "not reset");
}

#[test]
fn pv_restored_from_a_backup_is_not_cleaned_without_consent() {
    let mut volume = or_skip!(occupied());
    let backup = lose(&mut volume);
    restore(&mut volume, &backup, |_| {});
    volume.pv = volume.stage.in_phase(&name(&volume.pv), "Released");
    volume.start();
    let text = volume.stage.event("VolumeMarkMismatch", "its mark is used");
    volume.is_kept("Released", "the disk names another PV");
    volume.annotate(ANNOTATION_CONSENT, consent_in(&text, "wipe:"));
    volume.is_cleaned();
}

#[test]
fn pv_of_an_old_backup_is_deleted_and_its_volume_is_not_offered_without_consent() {
    let mut volume = or_skip!(occupied());
    let backup = lose(&mut volume);
    restore(&mut volume, &backup, |pv| {
        pv["spec"]["claimRef"] = Value::Null;
        let annotations = pv["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|key, _| key.ends_with("/identity") || key.contains("provisioned-by"));
    });
    volume.stage.in_phase(&name(&volume.pv), "Available");
    volume.start();
    is_gone(&volume.stage, &volume.pv);
    let (key, consent) = consent_of_node(&mut volume);
    let (stage, path) = (&volume.stage, &volume.path);
    stage.still(&mut volume.provisioner, "it is not offered", || {
        has_secret(path) && stage.pvs_at(path).is_empty()
    });
    annotate_node(stage, &key, consent);
    volume.is_cleaned();
}

/// A rescuer mounts the disk to copy what is left.
#[test]
fn interrupted_wipe_whose_pv_is_lost_waits_for_consent() {
    let mut volume = or_skip!(occupied());
    volume.stop();
    let environment = [("CRASH_AT", "remove-entry")];
    let mut program = volume.stage.provisioner_with(&environment);
    volume.release();
    let status = program.wait(volume.stage.timeout()).unwrap();
    assert_eq!(killed_by(status), Some(9), "{status}");
    remove(&volume);
    assert!(has_secret(&volume.path));
    volume.start();
    let (_, consent) = consent_of_node(&mut volume);
    let status = status_of(&mut volume.provisioner, &volume.path);
    let detail = status["detail"].as_str().unwrap();
    assert!(detail.contains("a wipe of it was interrupted"), "{detail}");
    let (stage, path) = (&volume.stage, &volume.path);
    stage.still(&mut volume.provisioner, "it is not cleaned", || {
        has_secret(path) && stage.pvs_at(path).is_empty()
    });
    let key = "consent.local-volume-provisioner/interrupted";
    stage.pod("user", "claim");
    annotate_node(stage, key, format!("wipe:-:0:0,{consent}"));
    stage.event("VolumeInUse", "used by pods");
    assert!(has_secret(path));
    stage.delete_pod("user", true);
    volume.is_cleaned();
    volume.stage.event("VolumeDelete", "cleaning");
}

/// The state that the API server is restored to: before the release.
struct Backup {
    claim: PersistentVolumeClaim,
    pv: Value,
}

impl Backup {
    fn of(volume: &Occupied) -> Self {
        let claims = Api::namespaced(volume.stage.client.clone(), &volume.stage.namespace());
        let pv = json!(volume.pv);
        let claim = volume.stage.request(claims.get("claim"));
        Self { claim, pv }
    }

    fn restore(&self, volume: &Occupied) {
        let store = volume.stage.embedded().unwrap().store();
        store.restore(&resource::PERSISTENT_VOLUME_CLAIMS, json!(self.claim));
        store.restore(&resource::PERSISTENT_VOLUMES, self.pv.clone());
    }
}

/// The volume is wiped, and its PV stays: a policy refuses the removal of the finalizer.
fn wiped_and_kept() -> Option<(Occupied, Backup, Fault)> {
    let volume = occupied()?;
    if volume.stage.embedded().is_none() {
        skip("the etcd of a cluster that others use is not restored");
        return None;
    }
    let backup = Backup::of(&volume);
    let of_pv = volume.stage.faults().on(Verb::Patch).name(&name(&volume.pv));
    let refused = of_pv.skip(1).answer(Answer::code(403).message("a policy"));
    volume.release();
    let stage = &volume.stage;
    stage.eventually("the release is refused", || refused.hits() > 0);
    assert!(entries(&volume.path).is_empty());
    Some((volume, backup, refused))
}

#[test]
fn finished_wipe_vouches_for_nothing_after_a_restore_of_the_api() {
    for is_restarted in [false, true] {
        let (mut volume, backup, refused) = or_skip!(wiped_and_kept());
        if is_restarted {
            volume.stop();
        }
        backup.restore(&volume);
        refused.clear();
        if is_restarted {
            volume.start();
        }
        let what = "the mark is that of a used volume again";
        let path = volume.path.clone();
        volume.stage.eventually(what, || mark_at(&path)["state"] == "used");
        volume.stage.event("VolumeMarkMismatch", "it is empty");
        volume.pv = volume.stage.pv(&name(&volume.pv)).unwrap();
        keep_secret(&volume.path);
        volume.note_data();
        volume.is_kept("Bound", "its claim is back");
        volume.release();
        volume.is_cleaned();
    }
}

#[test]
fn volume_that_was_used_and_released_again_is_wiped_again() {
    let (mut volume, mut backup, refused) = or_skip!(wiped_and_kept());
    volume.stop();
    backup.pv["metadata"]["finalizers"] = json!([FINALIZER]);
    backup.restore(&volume);
    refused.clear();
    keep_secret(&volume.path);
    // The API has whole seconds.
    let released = Timestamp::now().as_second();
    volume.stage.eventually("another second", || Timestamp::now().as_second() > released);
    volume.release();
    volume.delete_pv();
    volume.start();
    volume.is_cleaned();
}

/// The mark of a filesystem, as it lies there.
fn mark_at(path: &Path) -> Value {
    let mut bytes = vec![0; 4096];
    let length = getxattr(path, "security.local-volume", &mut bytes[..]).unwrap();
    let text = String::from_utf8_lossy(&bytes[..length]);
    let json = text.lines().nth(1).unwrap();
    serde_json::from_str::<Value>(json).unwrap()["mark"].take()
}

#[test]
fn disk_that_was_moved_gets_the_mark_of_its_new_pv() {
    let mut volume = or_skip!(occupied());
    let backup = lose(&mut volume);
    let offer = &backup.annotations()["local-volume-provisioner/offer"];
    let from = format!("{}:{offer}", backup.uid().unwrap());
    restore(&mut volume, &backup, |pv| {
        pv["metadata"]["annotations"]["local-volume-provisioner/moved-from"] = json!(from);
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    });
    volume.start();
    let uid = volume.pv.uid().unwrap();
    let what = "the mark names the new PV";
    volume.stage.eventually(what, || mark_at(&volume.path)["pvUid"] == uid);
    set_policy(&volume.stage, &volume.pv, "Delete");
    volume.is_cleaned();
}

#[test]
fn root_that_an_administrator_prepares_is_restored_after_the_tenant() {
    let (stage, [path]) = or_skip!(fast_stage(["vol-1"]));
    let _provisioner = stage.provisioner();
    stage.available(&path, None);
    let own = |uid, mode| {
        chown(&path, Some(uid), Some(uid)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    own(5, 0o2750);
    let what = "the mark has the new owner and mode";
    stage.eventually(what, || {
        let root = &mark_at(&path)["root"];
        (&root["uid"], &root["gid"], &root["mode"]) == (&json!(5), &json!(5), &json!(0o2750))
    });
    let pv = stage.used(&stage.bind("claim", &path));
    own(8, 0o777);
    stage.delete_claim("claim");
    offered_again(&stage, &path, &pv);
    let root = fs::metadata(&path).unwrap();
    assert_eq!((root.uid(), root.gid(), root.mode() & 0o7777), (5, 5, 0o2750));
}

/// A version without marks recycles the volume, and gives it to another tenant. Ours returns in each phase.
fn downgrade_and_return(mut volume: Occupied) {
    let adopted = |volume: &mut Occupied, phase| {
        volume.stop();
        volume.start();
        let pv = name(&volume.pv);
        volume.pv = volume.stage.eventually("the PV is adopted", || {
            let pv = volume.stage.pv(&pv).unwrap();
            pv.annotations().contains_key("local-volume-provisioner/offer").then_some(pv)
        });
        volume.is_kept(phase, "an earlier version recycled it");
    };
    volume.stop();
    volume.provisioner = volume.stage.provisioner_with(&[("STATE_DIRECTORY", "")]);
    volume.release();
    volume.pv = volume.is_cleaned();
    volume.note_data();
    adopted(&mut volume, "Available");
    volume.occupy_again();
    volume.stop();
    volume.provisioner = volume.stage.provisioner_with(&[("STATE_DIRECTORY", "")]);
    volume.release();
    volume.pv = volume.is_cleaned();
    volume.occupy_again();
    adopted(&mut volume, "Bound");
    volume.release();
    volume.is_cleaned();
}

#[test]
fn filesystem_that_an_earlier_version_recycled_is_adopted() {
    downgrade_and_return(or_skip!(occupied()));
}

#[test]
fn device_that_an_earlier_version_recycled_is_adopted() {
    downgrade_and_return(or_skip!(occupied_raw(&json!({}))));
}
