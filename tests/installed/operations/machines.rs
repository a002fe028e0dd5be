//! Disks, nodes and classes come and go, and so does the provisioner.

use std::fs;

use serde_json::{Value, json};
use support::Terminal;

use super::procedure::Procedure;
use crate::cluster::{NODE, SYSTEM, TIMEOUT, USERS, name, path};
use crate::disks::entries;
use crate::migration::made_by_go;
use crate::release::{NAME, class};
use crate::{Cluster, Disks, Release, disks::MIB};

/// The block that has nothing else.
const RETIRE: &str = r#"kubectl local-volume retire "$PV""#;
const WRITE: &str = "echo data >/data/file; sync; sleep 1000";

/// A pod that uses a volume and keeps running; the PV that it got.
pub fn in_use(cluster: &Cluster, class: &str, claim: &str, pod: &str) -> Value {
    let pv = started(cluster, class, claim, pod);
    cluster.eventually("the pod has written", || path(&pv).join("file").exists());
    pv
}

fn started(cluster: &Cluster, class: &str, claim: &str, pod: &str) -> Value {
    cluster.claim(claim, class, "Filesystem");
    cluster.pod(pod, claim, "Filesystem", WRITE);
    cluster.pod_in_phase(pod, "Running");
    cluster.bound(claim)
}

fn is_kept(cluster: &Cluster, pv: &Value) -> bool {
    cluster.get("pv", name(pv), None).is_some_and(|now| {
        now["metadata"]["uid"] == pv["metadata"]["uid"] && now["status"]["phase"] == "Released"
    })
}

pub fn a_failed_disk(cluster: &Cluster, page: &mut Procedure) {
    let (disks, _release) = Release::with_disks(cluster, "failed", 1, json!({}));
    let pv = in_use(cluster, "failed", "claim", "app");
    page.about(&pv);
    let mut replacing = page.begin("replace");
    answer(&mut replacing, "1");
    replacing.wait_up_to(TIMEOUT, "umount");
    assert!(replacing.screen().contains("default/app"), "{}", replacing.screen());
    assert_eq!(entries(path(&pv)), ["file"], "it is not cleaned");
    assert!(is_kept(cluster, &pv));
    page.follow("umount --lazy");
    replacing.wait_up_to(TIMEOUT, "put in the new one");
    assert!(cluster.pvs().is_empty());

    let disk = disks.spare(32 * MIB);
    page.set("DISK", disk.path());
    page.follow("mkfs.ext4");
    assert_eq!(replacing.end(), Some(0), "{}", replacing.screen());
    let fresh = cluster.recycled(&pv);
    assert_eq!(name(&fresh), name(&pv), "the same name");
    nix::mount::umount(path(&pv)).unwrap();
}

/// Answers the question before claims are deleted.
fn answer(terminal: &mut Terminal, claims: &str) {
    terminal.wait_for(&format!("type the number of claims, {claims}: "));
    terminal.type_in(&format!("{claims}\n"));
}

pub fn a_healthy_disk(cluster: &Cluster, page: &mut Procedure) {
    let (_disks, release) = Release::with_disks(cluster, "healthy", 1, json!({}));
    let pv = cluster.pvs().remove(0);
    let volume = path(&pv);
    page.about(&pv);

    let retiring = page.begin(RETIRE);
    retiring.wait_for("umount");
    drop(retiring);
    cluster.claim("claim", "healthy", "Filesystem");
    cluster.pod("app", "claim", "Filesystem", WRITE);
    // The scheduler has tried to find a volume.
    let pod = cluster.get("pod", "app", Some(USERS)).unwrap();
    cluster.event(&pod, "FailedScheduling");
    let claim = cluster.get("pvc", "claim", Some(USERS)).unwrap();
    assert_eq!(claim["status"]["phase"], "Pending");
    page.follow("--abort");
    cluster.bound("claim");
    cluster.pod_in_phase("app", "Running");
    let now = cluster.bound("claim");
    assert_eq!(now["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    cluster.delete("pod", "app", &[]);
    cluster.delete_claim("claim");
    cluster.recycled(&pv);

    let mut retiring = page.begin(RETIRE);
    retiring.wait_for("umount");
    fs::write(volume.join("left behind"), "").unwrap();
    page.set("POD", name(&release.pod()));
    page.set("IN_POD", "/mnt/healthy/disk-0");
    let said = page.follow("clean --yes");
    assert!(said.lines().last().unwrap().starts_with("Cleaned"), "{said}");
    assert!(entries(volume).is_empty());
    page.follow("rmdir");
    assert_eq!(retiring.end(), Some(0), "{}", retiring.screen());
    release.still("no PV", || cluster.pvs().is_empty());
}

/// Puts the cluster's only node back.
struct Registered<'a> {
    cluster: &'a Cluster,
    node: Value,
}

impl<'a> Registered<'a> {
    fn remember(cluster: &'a Cluster) -> Self {
        let node = cluster.get("node", NODE, None).unwrap();
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": NODE, "labels": node["metadata"]["labels"] },
        });
        Self { cluster, node }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.try_apply(&self.node);
        let _ = self.cluster.kubectl(&["uncordon", NODE]);
        let node = format!("node/{NODE}");
        let args = ["wait", "--for=condition=Ready", &node, "--timeout=60s"];
        let _ = self.cluster.kubectl(&args);
    }
}

pub fn a_node(cluster: &Cluster, page: &mut Procedure) {
    let mut disks = Disks::new("retired");
    disks.filesystem("retired", "one", "ext4", 32 * MIB);
    disks.filesystem("retired", "two", "ext4", 32 * MIB);
    disks.device("retired", "raw", 16 * MIB);
    let release = Release::over(cluster, &disks, "retired", json!({}));
    cluster.available("retired", 3);
    // The smallest fits, and that is the device, which the kubelet formats.
    let pv = started(cluster, "retired", "claim", "app");
    page.about(&pv);
    page.set("DIR", disks.class("retired"));

    let _node = Registered::remember(cluster);
    let mut retiring = page.begin("retire --node");
    answer(&mut retiring, "1");
    assert!(retiring.screen().contains("default/claim"));
    cluster.eventually("all volumes are clean and withheld", || {
        let pvs = cluster.pvs();
        let is_withheld = |pv: &Value| pv["spec"]["claimRef"]["name"] == "taken-out";
        pvs.len() == 3 && pvs.iter().all(is_withheld)
    });
    page.follow("umount");
    assert_eq!(retiring.end(), Some(0), "{}", retiring.screen());
    release.still("no PV", || cluster.pvs().is_empty());
    page.follow("delete node");
    drop(release);
}

pub fn more_disks(cluster: &Cluster, page: &mut Procedure) {
    let (mut disks, _release) = Release::with_disks(cluster, "first", 1, json!({}));
    let (dir, disk) = (disks.class("first"), disks.spare(32 * MIB));
    page.set("DIR", &dir);
    page.set("NAME", "another");
    page.set("DISK", disk.path());
    page.set("NODE", NODE);
    page.follow("mkfs.ext4");
    page.follow("until kubectl local-volume explain");
    cluster.available("first", 2);

    disks.filesystem("second", "disk", "ext4", 32 * MIB);
    let second = disks.class("second");
    let editor = page.dir().join("editor");
    let class = format!(
        "classes:\\n- name: second\\n  hostDir: {}\\n  storageClass: true",
        second.display()
    );
    fs::write(&editor, format!("sed --in-place 's|^classes:|{class}|' \"$1\"\n")).unwrap();
    page.set("EDITOR", format!("sh {}", editor.display()));
    page.follow("helm upgrade");
    cluster.available("second", 1);
    cluster.available("first", 2);
    nix::mount::umount(&dir.join("another")).unwrap();
}

pub fn back_to_go(cluster: &Cluster, page: &mut Procedure) {
    let mut disks = Disks::new("back");
    for name in ["one", "two", "three"] {
        disks.filesystem("back", name, "ext4", 32 * MIB);
    }
    // The StorageClass is not the release's, so that it need not be created again.
    cluster.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "back" },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    let dir = disks.class("back");
    let settings = json!({ "storageClass": false });
    let classes = json!([class("back", &dir, settings)]);
    let release = Release::install(cluster, classes.clone(), json!({}));
    cluster.available("back", 3);
    let bound = in_use(cluster, "back", "kept", "app");
    let released = in_use(cluster, "back", "ended", "other");
    cluster.delete("pod", "other", &[]);
    cluster.delete("pvc", "ended", &["--wait=false"]);

    page.follow("until pvs");
    assert!(entries(path(&released)).is_empty(), "it is clean");
    page.follow("helm uninstall");
    release.was_uninstalled();
    assert_eq!(page.follow("finalizers"), "");
    let said = page.follow("provisioned-by");
    assert!(cluster.get("daemonset", NAME, Some(SYSTEM)).is_none());
    let pvs = cluster.pvs();
    assert_eq!(pvs.len(), 3);
    for pv in &pvs {
        // What the Go provisioner would have made is there, and nothing that would be in its way.
        let go = made_by_go(cluster, "back", path(pv));
        assert_eq!(name(pv), name(&go));
        let by = "pv.kubernetes.io/provisioned-by";
        assert_eq!(pv["metadata"]["annotations"][by], go["metadata"]["annotations"][by]);
        assert!(said.contains(go["metadata"]["annotations"][by].as_str().unwrap()), "{said}");
        for (field, value) in go["spec"].as_object().unwrap() {
            assert_eq!(pv["spec"][field], *value, "{field}");
        }
        assert!(pv["metadata"]["deletionTimestamp"].is_null());
    }
    assert_eq!(entries(path(&bound)), ["file"], "the pod has not noticed");

    // And back to us.
    let _release = Release::install(cluster, classes, json!({}));
    cluster.delete("pod", "app", &[]);
    cluster.delete_claim("kept");
    cluster.recycled(&bound);
    assert!(entries(path(&bound)).is_empty());
}
