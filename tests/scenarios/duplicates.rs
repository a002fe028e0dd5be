//! One device, one PV: by whatever name, mount or layer it is reached.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use local_volume_provisioner::names::LABEL_HOSTNAME;
use serde_json::{Value, json};
use support::stage::{name, uid};
use support::{LoopDevice, Program, Stage};

use crate::kit::*;
use crate::stage;

/// The class `fast`, and an ext4 filesystem with these directories that is mounted outside of it.
fn with_directories(dirs: &[&str]) -> Option<(Stage, LoopDevice, PathBuf)> {
    let stage = stage()?;
    stage.class("fast", &json!({}));
    let disk = ext4(&stage);
    let whole = mount(&stage, &disk, "source");
    for dir in dirs {
        fs::create_dir_all(whole.join(dir)).unwrap();
    }
    Some((stage, disk, whole))
}

/// Makes a directory an entry of the class `fast`.
fn offer(stage: &Stage, dir: &Path, entry: &str) -> PathBuf {
    let entry = format!("disks/fast/{entry}");
    stage.sandbox.bind(dir, &entry).unwrap()
}

#[test]
fn a_directory_within_another_volume_gets_no_pv() {
    let (stage, _disk, whole) = or_skip!(with_directories(&["x/y", "z", "xy"]));
    let outer = offer(&stage, &whole.join("x"), "outer");
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &outer));
    keep_secret(&outer);
    keep_secret(&whole.join("z"));
    let inner = offer(&stage, &whole.join("x/y"), "inner");
    let around = offer(&stage, &whole, "around");
    let again = offer(&stage, &whole.join("x"), "outer-again");
    let beside = offer(&stage, &whole.join("xy"), "beside");
    stage.available(&beside, None);
    skipped(&stage, &mut provisioner, &inner, "NestedVolume");
    skipped(&stage, &mut provisioner, &around, "NestedVolume");
    in_state(&stage, &mut provisioner, &again, "Skipped");
    assert!(stage.pvs_at(&again).is_empty());

    stage.delete_claim("claim");
    let waits = stage.event("VolumeInUse", "as well; unmount it there");
    assert!(waits.contains(inner.to_str().unwrap()), "{waits}");
    assert!(has_secret(&outer));
    stage.sandbox.umount(&inner).unwrap();
    offered_again(&stage, &outer, &bound);
    assert!(!outer.join("secret").exists());
    assert!(has_secret(&whole.join("z")), "what is beside the volume is not the volume's");
    assert_eq!(stage.pvs().len(), 2);
}

/// Makes a PV by hand, of no provisioner, for a path; with this required affinity, or with none.
fn pv_of_operator(stage: &Stage, pv: &str, source: &Value, term: Option<&Value>) -> String {
    let pv = stage.named(pv);
    let mut object = pv_by_hand(stage, &pv, "other", Path::new("/"), "1Gi");
    object["metadata"]["annotations"] = Value::Null;
    let affinity = term.map(|term| json!({ "required": { "nodeSelectorTerms": [term] } }));
    object["spec"]["nodeAffinity"] = affinity.into();
    object["spec"]["local"] = Value::Null;
    for (kind, path) in source.as_object().unwrap() {
        object["spec"][kind] = json!({ "path": path });
    }
    name(&stage.create_pv(object))
}

/// An affinity to nodes with this label, whatever its key is.
fn label(key: &str, value: &str) -> Value {
    let expression = json!({ "key": key, "operator": "In", "values": [value] });
    json!({ "matchExpressions": [expression] })
}

/// Makes a PV by hand for each of the entries `zone`, `field`, `link`, `same`, `below`, and for others that own no
/// volume of this node. Returns the names of the first ones, by entry.
fn owners_by_hand(stage: &Stage, dir: &Path) -> Vec<(&'static str, String)> {
    let zone = stage.named("zone");
    set_zone_label(stage, &zone);
    let link = stage.sandbox.path().join("link");
    symlink(dir.join("link"), &link).unwrap();
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [stage.node()] });
    let field = json!({ "matchFields": [field] });
    let (zoned, elsewhere) = (label("zone", &zone), label("zone", "another"));
    let here = label(LABEL_HOSTNAME, &stage.node());
    let owner = |entry, source, term| (entry, pv_of_operator(stage, entry, &source, term));
    let at = |entry: &str| dir.join(entry);
    let owners = vec![
        owner("zone", json!({ "local": at("zone") }), Some(&zoned)),
        owner("field", json!({ "local": at("field") }), Some(&field)),
        owner("link", json!({ "local": link }), Some(&here)),
        owner("same", json!({ "hostPath": at("same") }), None),
        owner("below", json!({ "hostPath": at("below").join("data") }), None),
    ];
    let excluded = json!({ "local": at("free") });
    pv_of_operator(stage, "excluded", &excluded, Some(&elsewhere));
    pv_of_operator(stage, "above", &json!({ "hostPath": dir }), None);
    owners
}

const OWNED: [&str; 6] = ["zone", "field", "link", "same", "below", "free"];

fn is_owned(stage: &Stage, provisioner: &mut Program, path: &Path, pv: &str) {
    stage.eventually(&format!("{} belongs to {pv}", path.display()), || {
        let volume = status_of(provisioner, path);
        let detail = volume["detail"].as_str().unwrap_or_default();
        volume["reason"] == "PathClaimedByOtherPV" && detail.contains(pv)
    });
}

fn local_path(pv: &PersistentVolume) -> Option<&Path> {
    let local = pv.spec.as_ref()?.local.as_ref()?;
    Some(Path::new(&local.path))
}

/// The provisioner's own PVs.
fn own_pvs(stage: &Stage) -> Vec<PersistentVolume> {
    let pvs = stage.pvs().into_iter();
    pvs.filter(|pv| maker(pv).is_some()).collect()
}

#[test]
fn path_of_a_pv_by_hand_is_not_offered() {
    let (stage, paths) = or_skip!(fast_stage(OWNED));
    let dir = paths[0].parent().unwrap();
    let owners = owners_by_hand(&stage, dir);
    let mut provisioner = stage.provisioner();
    for (entry, pv) in &owners {
        is_owned(&stage, &mut provisioner, &dir.join(entry), pv);
    }
    in_state(&stage, &mut provisioner, &dir.join("free"), "Available");
    assert_eq!(own_pvs(&stage).len(), 1);
}

#[test]
fn released_volume_that_a_pv_by_hand_owns_is_not_wiped() {
    let (stage, paths) = or_skip!(fast_stage(OWNED));
    let dir = paths[0].parent().unwrap();
    let mut provisioner = stage.provisioner();
    let pvs = OWNED.map(|entry| {
        let path = dir.join(entry);
        let pv = stage.used(&stage.bind(entry, &path));
        keep_secret(&path);
        pv
    });
    assert!(provisioner.stop(stage.timeout()).unwrap().success());
    let owners = owners_by_hand(&stage, dir);
    for (entry, pv) in OWNED.iter().zip(&pvs) {
        stage.delete_claim(entry);
        stage.in_phase(&name(pv), "Released");
    }

    let mut provisioner = stage.provisioner();
    let is_offered_again = |entry: &str, old: &PersistentVolume| {
        let path = dir.join(entry);
        let is_new =
            |pv: &PersistentVolume| uid(pv) != uid(old) && local_path(pv) == Some(path.as_path());
        stage.eventually(entry, || own_pvs(&stage).into_iter().find(is_new));
    };
    is_offered_again("free", &pvs[5]);
    for (entry, owner) in &owners {
        stage.event("VolumeDuplicate", owner);
        assert!(has_secret(&dir.join(entry)), "{entry}");
    }
    stage.still(&mut provisioner, "the data is kept", || {
        owners.iter().all(|(entry, _)| has_secret(&dir.join(entry)))
    });

    // The owner is read again before the next attempt.
    let (link, owner) = &owners[2];
    stage.delete_pv(owner);
    is_offered_again(link, &pvs[2]);
    assert!(!has_secret(&dir.join(link)));
}
