//! Volumes that the Go provisioner has made, in each phase of their lives.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::names::{ANNOTATION_IDENTITY, LABEL_HOSTNAME, pv_name};

use crate::cluster::{NODE, name};
use crate::disks::entries;
use crate::release::class;
use crate::{Cluster, Disks, Release, disks::MIB};

/// A PV as the Go provisioner v2.9 makes it: a name by its hash, no label, no identity.
pub fn made_by_go(cluster: &Cluster, class: &str, path: &Path) -> Value {
    let file = path.file_name().unwrap().to_str().unwrap();
    let node = cluster.get("node", NODE, None).unwrap();
    let uid = node["metadata"]["uid"].as_str().unwrap();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": pv_name(file, NODE, class),
            "annotations": {
                "pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-{NODE}-{uid}"),
            },
        },
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": capacity(path) },
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "local": { "path": path },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": LABEL_HOSTNAME, "operator": "In", "values": [NODE] },
            ] }] } },
        },
    })
}

/// The filesystem's size, rounded as the Go provisioner rounds.
fn capacity(path: &Path) -> String {
    let stat = nix::sys::statvfs::statvfs(path).unwrap();
    let bytes = stat.blocks() * stat.fragment_size();
    format!("{}Mi", bytes / MIB)
}

#[test]
fn volumes_of_the_go_provisioner_are_taken_over_in_every_phase() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("migrated");
    let volumes = ["available", "bound", "released"]
        .map(|name| disks.filesystem("migrated", name, "ext4", 32 * MIB));
    let [available, bound, released] = &volumes;
    cluster.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "migrated" },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    let pvs = volumes.each_ref().map(|path| made_by_go(&cluster, "migrated", path));
    // The Go provisioner is gone; its volumes are in use, or were.
    for (pv, claim) in [(&pvs[1], "bound"), (&pvs[2], "released")] {
        cluster.apply(pv);
        cluster.write(claim, "migrated");
    }
    cluster.delete_claim("released");
    cluster.apply(&pvs[0]);
    cluster.eventually("the three phases", || {
        let phases = ["Available", "Bound", "Released"];
        phases.iter().all(|phase| cluster.pvs_in("migrated", phase).len() == 1)
    });
    let before = pvs.each_ref().map(|pv| cluster.get("pv", name(pv), None).unwrap());
    assert_eq!(entries(released), ["file"]);

    let settings = json!({ "storageClass": false });
    let classes = json!([class("migrated", &disks.class("migrated"), settings)]);
    let _release = Release::install(&cluster, classes, json!({}));
    // The released one is cleaned, and offered under the same name.
    let fresh = cluster.recycled(&before[2]);
    assert_eq!(name(&fresh), name(&before[2]));
    assert!(entries(released).is_empty());
    // The others are adopted as they are.
    for pv in &before[..2] {
        cluster.eventually(&format!("PV {} is adopted", name(pv)), || {
            let now = cluster.get("pv", name(pv), None)?;
            assert_eq!(now["metadata"]["uid"], pv["metadata"]["uid"]);
            assert_eq!(now["status"]["phase"], pv["status"]["phase"]);
            let meta = &now["metadata"];
            let known = meta["annotations"][ANNOTATION_IDENTITY].is_string();
            (known && meta["labels"][LABEL_HOSTNAME] == NODE).then_some(())
        });
    }
    assert_eq!(fs::read_to_string(bound.join("file")).unwrap(), "data of bound\n");
    assert!(entries(available).is_empty());

    cluster.delete_claim("bound");
    cluster.recycled(&before[1]);
    assert!(entries(bound).is_empty());
    assert_eq!(cluster.available("migrated", 3).len(), 3);
}
