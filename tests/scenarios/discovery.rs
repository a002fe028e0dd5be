//! Volumes become PVs: soon, and as the configuration says.

use std::fs;
use std::path::Path;

use control_plane::requests::{Request, Verb};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use local_volume_provisioner::names::ANNOTATION_OFFER;
use nix::mount::MsFlags;
use serde_json::json;
use support::Stage;
use support::names::{pv_name, second_pv_name};
use support::stage::{annotation, name};

use super::kit::*;
use super::{BINARY, stage};

#[test]
fn volumes_are_found_when_they_appear_not_at_the_next_scan() {
    let stage = or_skip!(stage_with(&["--discovery-period=1h"]));
    stage.class("fast", &json!({}));
    let mut provisioner = stage.provisioner();
    ready(&stage, &mut provisioner);
    let new = fast(&stage, "new");
    stage.available(&new, None);

    // A directory without a mount is seen, and then the mount on it.
    let late = stage.sandbox.dir("disks/fast/late").unwrap();
    skipped(&stage, &mut provisioner, &late, "NotMounted");
    fast(&stage, "late");
    stage.available(&late, None);

    // So are an unmount, and the removal of an entry.
    stage.sandbox.umount(&new).unwrap();
    stage.event("VolumeNotMounted", "new");
    fs::remove_dir(&new).unwrap();
    stage.event("VolumeMissing", "nothing at its path");
}

#[test]
fn a_discovery_directory_or_class_that_comes_late_is_taken_up() {
    let stage = or_skip!(stage_with(&["--discovery-period=1h"]));
    let dir = stage.sandbox.path().join("disks/late");
    let map =
        format!("{{{1}: {{hostDir: {0}, mountDir: {0}}}}}", dir.display(), stage.named("late"));
    stage.configure("storageClassMap", &map);
    let mut provisioner = stage.provisioner();
    stage.eventually("the missing class is a reason", || {
        let (code, why) = provisioner.http_get("/ready").ok()?;
        (code == 503 && why.contains("late")).then_some(())
    });
    let volume = tmpfs(&stage, "disks/late/vol");
    skipped(&stage, &mut provisioner, &volume, "ClassMissing");
    let (code, why) = provisioner.http_get("/ready").unwrap();
    assert!(
        code == 503 && why.contains(&format!("StorageClass \"{}\"", stage.named("late"))),
        "{code} {why}"
    );
    stage.storage_class("late", "Retain", "Immediate");
    stage.available(&volume, None);
    ready(&stage, &mut provisioner);
    let pv = stage.available(&volume, None);
    assert_eq!(pv.spec.unwrap().persistent_volume_reclaim_policy.unwrap(), "Retain");
    assert_eq!(
        pv.metadata.finalizers.unwrap(),
        ["kubernetes.io/pv-protection"],
        "nothing to clean"
    );
}

/// Creates a StorageClass again with mount options: they cannot be changed.
fn set_mount_options(stage: &Stage, class: &str, options: &[&str]) {
    let classes: Api<StorageClass> = Api::all(stage.client.clone());
    let class = stage.named(class);
    stage.block_on(async {
        let mut copy = classes.get(&class).await.unwrap();
        classes.delete(&class, &DeleteParams::default()).await.unwrap();
        copy.metadata = ObjectMeta { name: Some(class), ..ObjectMeta::default() };
        copy.mount_options = Some(options.iter().map(ToString::to_string).collect());
        classes.create(&PostParams::default(), &copy).await.unwrap();
    });
}

#[test]
fn a_pv_has_all_that_the_configuration_says() {
    let set = Stage::set_with(BINARY, |options| {
        let node = options.node.as_mut().unwrap();
        node.labels.insert("zone".into(), "here".into());
        // The label's value is not always the node's name.
        node.labels.insert("kubernetes.io/hostname".into(), "host-1".into());
    });
    let stage = or_skip!(set);
    let selector =
        json!([{ "matchExpressions": [{ "key": "rack", "operator": "In", "values": ["r1"] }] }]);
    let settings = json!({
        "fsType": "xfs", "accessMode": "ReadWriteOncePod", "namePattern": "vol-*,disk?",
        "selector": selector,
    });
    stage.class("fast", &settings);
    stage.configure("nodeLabelsForPV", "[zone, absent]");
    stage.configure("labelsForPV", "{tier: 1.10, kubernetes.io/hostname: other}");
    stage.configure("setPVOwnerRef", "yes");
    set_mount_options(&stage, "fast", &["noatime", "discard"]);
    // 10 GiB and some more, which is rounded down; tmpfs gives it without using it.
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=10300m").unwrap();
    let other = stage.sandbox.tmpfs("disks/fast/other", "size=1m").unwrap();
    let mut provisioner = stage.provisioner();

    let pv = serde_json::to_value(stage.available(&volume, None)).unwrap();
    let node_uid = node_uid(&stage);
    assert_eq!(pv["metadata"]["name"], pv_name("vol-1", &stage.node(), &stage.named("fast")));
    assert_eq!(
        pv["metadata"]["labels"],
        json!({ "kubernetes.io/hostname": "host-1", "zone": "here", "tier": "1.10" })
    );
    let annotations = &pv["metadata"]["annotations"];
    let by = format!("local-volume-provisioner-{}-{node_uid}", stage.node());
    assert_eq!(annotations["pv.kubernetes.io/provisioned-by"], by);
    let owner = &pv["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("Node"), &json!(stage.node()), &json!(node_uid))
    );
    let spec = &pv["spec"];
    assert_eq!(spec["capacity"], json!({ "storage": "10Gi" }));
    assert_eq!(spec["accessModes"], json!(["ReadWriteOncePod"]));
    assert_eq!(spec["mountOptions"], json!(["noatime", "discard"]));
    assert_eq!(spec["local"], json!({ "path": volume, "fsType": "xfs" }));
    assert_eq!(
        (&spec["volumeMode"], &spec["storageClassName"]),
        (&json!("Filesystem"), &json!(stage.named("fast")))
    );
    let own = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"] }] });
    assert_eq!(spec["nodeAffinity"]["required"]["nodeSelectorTerms"], json!([own, selector[0]]));
    skipped(&stage, &mut provisioner, &other, "NamePatternMismatch");
    ready(&stage, &mut provisioner);
}

fn creations(stage: &Stage) -> usize {
    let of_pvs = |r: &Request| r.verb == Verb::Create && r.resource == "persistentvolumes";
    stage.requests().count(of_pvs)
}

#[test]
fn fault_12_a_name_that_a_foreign_pv_has_is_left_to_it() {
    let stage = or_skip!(stage_with(&["--discovery-period=300ms"]));
    stage.class("fast", &json!({}));
    let taken = pv_name("vol", &stage.node(), &stage.named("fast"));
    foreign_pv(&stage, &taken, "vol");
    let foreign = stage.in_phase(&taken, "Available");
    let before_us = creations(&stage);
    let volume = fast(&stage, "vol");
    let mut provisioner = stage.provisioner();
    ready(&stage, &mut provisioner);
    let second = second_pv_name("vol", &stage.node(), &stage.named("fast"));
    let names: Vec<_> = stage.pvs_at(&volume).iter().map(name).collect();
    assert!(names.contains(&second), "{names:?}");
    assert!(is_untouched(&stage, &foreign, "Available"));
    assert_eq!(status_of(&mut provisioner, &volume)["pv"], second);
    let before = creations(&stage);
    stage.still(&mut provisioner, "no loop", || creations(&stage) == before);
    assert_eq!(before - before_us, 2, "the refused one, and ours");
}

/// Another node could take both names of each volume, which it can compute.
#[test]
fn third_name_cannot_be_taken_before() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({}));
    let names = [pv_name, second_pv_name];
    let names = names.map(|name| name("vol", &stage.node(), &stage.named("fast")));
    for name in &names {
        foreign_pv(&stage, name, "other");
        stage.in_phase(name, "Available");
    }
    let volume = fast(&stage, "vol");
    let _provisioner = stage.provisioner();
    let own = stage.available(&volume, None);
    let token = annotation(&own, ANNOTATION_OFFER).unwrap();
    assert_eq!(name(&own), format!("local-pv-{token}"));
    let bound = stage.bind("claim", &volume);
    stage.delete_claim("claim");
    offered_again(&stage, &volume, &bound);
}

/// A container has the directory mounted without mount propagation: it shows the mounts that there were at its start.
#[test]
fn directory_in_which_mounts_of_the_host_do_not_appear_is_a_fault() {
    let mut stage = or_skip!(stage());
    stage.add_arg("--discovery-period=1s");
    let dir = stage.class("fast", &json!({}));
    let old = fast(&stage, "old");
    let mut provisioner = stage.provisioner();
    let pv = stage.available(&old, None);
    let mount = |source: Option<&Path>, flags| {
        nix::mount::mount(source, &dir, None::<&str>, flags, None::<&str>).unwrap();
    };
    mount(Some(&dir), MsFlags::MS_BIND | MsFlags::MS_REC);
    stage.sandbox.umount(&old).unwrap();
    let new = fast(&stage, "new");
    stage.eventually("it is a fault", || {
        let status = status(&mut provisioner).to_string();
        status.contains("mountPropagation: HostToContainer")
    });
    stage.still(&mut provisioner, "nothing is decided on it", || {
        is_untouched(&stage, &pv, "Available") && stage.pvs_at(&new).is_empty()
    });
    mount(None, MsFlags::MS_SHARED);
    stage.available(&new, None);
    stage.sandbox.umount(&new).unwrap();
    mount(None, MsFlags::MS_PRIVATE);
    stage.sandbox.umount(&dir).unwrap();
}
