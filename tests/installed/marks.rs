//! Object and disk disagree: each accident of `docs/marks.md` happens, and is settled by the very commands that
//! the page shows.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, umount};
use serde_json::{Value, json};
use support::passes::volumes;

use crate::cluster::{NODE, USERS, name, path};
use crate::disks::{entries, is_on_device};
use crate::etcd::Backup;
use crate::operations::procedure::{MARKS, Procedure};
use crate::release::class;
use crate::{Cluster, Disks, Release, disks::MIB};

const WITH_A_PV: &str = "A volume with a PV: decide";
const WITHOUT_A_PV: &str = "A volume without a PV: decide";
const HOSTNAME: &str = "The hostname label changed";

/// Needs no cluster.
#[test]
fn every_procedure_has_its_story() {
    assert_eq!(MARKS.titles(), [WITH_A_PV, WITHOUT_A_PV, HOSTNAME]);
}

/// Has a pod write to the volume of a claim.
pub fn write(cluster: &Cluster, claim: &str, class: &str, mode: &str) {
    let script = if mode == "Block" {
        format!("printf 'data of {claim}' | dd of=/dev/data bs=1M seek=8 conv=notrunc,fsync")
    } else {
        format!("printf 'data of {claim}' >/data/file; sync")
    };
    cluster.claim(claim, class, mode);
    cluster.pod(claim, claim, mode, &script);
}

/// The PV of a claim whose pod has written and is gone, once the mark on the disk says so.
pub fn written(cluster: &Cluster, claim: &str) -> Value {
    cluster.pod_in_phase(claim, "Succeeded");
    cluster.delete("pod", claim, &[]);
    let pv = cluster.bound(claim);
    cluster.eventually("the PV is marked as used", || {
        let pv = cluster.get("pv", name(&pv), None)?;
        let used = &pv["metadata"]["annotations"]["local-volume-provisioner/used"];
        (used == "true").then_some(pv)
    })
}

/// Both.
pub fn marked(cluster: &Cluster, claim: &str, class: &str) -> Value {
    write(cluster, claim, class, "Filesystem");
    written(cluster, claim)
}

fn holds(pv: &Value, claim: &str) -> bool {
    fs::read_to_string(path(pv).join("file")).is_ok_and(|data| data == format!("data of {claim}"))
}

/// The PV is deleted by force, finalizers and all.
pub fn lose(cluster: &Cluster, pv: &Value) {
    cluster.delete("pv", name(pv), &["--wait=false"]);
    let none = r#"{"metadata":{"finalizers":null}}"#;
    let patch = ["patch", "pv", name(pv), "--type=merge", "--patch", none];
    cluster.kubectl(&patch).unwrap();
    cluster.is_gone("pv", name(pv), None);
}

/// The PV is created from a backup, with another UID.
pub fn restore(cluster: &Cluster, backup: &Value) -> Value {
    let mut pv = backup.clone();
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        pv["metadata"][key] = Value::Null;
    }
    pv["status"] = Value::Null;
    cluster.apply(&pv);
    cluster.in_phase(&pv, "Bound");
    cluster.get("pv", name(&pv), None).unwrap()
}

/// Waits until `/status` shows a volume in a state.
pub fn in_state(cluster: &Cluster, release: &Release, path: &Path, state: &str) {
    cluster.eventually(&format!("{} is {state}", path.display()), || {
        let status: Value = serde_json::from_str(&release.http("/status")).ok()?;
        let mut volumes = volumes(&status);
        let volume = volumes.find(|volume| volume["path"] == json!(path))?;
        (volume["state"] == state).then_some(())
    });
}

/// The procedure for [`dirty`] volumes.
pub fn without_a_pv() -> Procedure {
    Procedure::titled(&MARKS, WITHOUT_A_PV)
}

/// Follows that procedure up to the decision.
pub fn dirty(cluster: &Cluster, release: &Release, page: &mut Procedure, path: &Path) {
    in_state(cluster, release, path, "Skipped");
    page.set("NODE", NODE);
    page.set("VOLUME", path);
    let said = page.follow("explain");
    assert!(said.contains("marked    used"), "{said}");
}

/// Gives the consent to a volume without a PV.
pub fn decide(page: &mut Procedure, verb: &str, path: &Path) {
    page.confirm(verb, &format!("{NODE}:{}", path.display()));
}

#[test]
fn a_changed_hostname_label_is_changed_back() {
    const REASON: &str = "VolumeHostnameMismatch";
    let cluster = or_skip!(Cluster::enter());
    let (mut disks, _release) = Release::with_disks(&cluster, "renamed", 2, json!({}));
    let used = marked(&cluster, "claim", "renamed");
    let free = cluster.available("renamed", 1).remove(0);

    let _label = Label(&cluster);
    let label = format!("kubernetes.io/hostname={NODE}.example.com");
    let change = ["label", "node", NODE, &label, "--overwrite"];
    cluster.kubectl(&change).unwrap();
    cluster.event(&free, REASON);
    cluster.event(&used, REASON);
    cluster.delete_claim("claim");
    cluster.in_phase(&used, "Released");
    // A pass after the change offers it, and sees the others.
    let fresh = disks.filesystem("renamed", "fresh", "ext4", 32 * MIB);
    let fresh = cluster.eventually("a new volume is offered", || {
        let pvs = cluster.pvs_in("renamed", "Available");
        pvs.into_iter().find(|pv| path(pv) == fresh)
    });
    assert_eq!(cluster.pvs().len(), 3, "one for each disk");
    assert!(holds(&used, "claim"));

    let mut page = Procedure::titled(&MARKS, HOSTNAME);
    page.set("PV", name(&used));
    page.follow("echo");
    page.follow("sh -c");
    page.was_followed();
    cluster.recycled(&used);
    assert!(entries(path(&used)).is_empty());
    cluster.event(&fresh, REASON);
    cluster.delete("pv", name(&fresh), &[]);
    cluster.recycled(&fresh);
    let now = cluster.get("pv", name(&free), None).unwrap();
    assert_eq!(now["metadata"]["uid"], free["metadata"]["uid"]);
}

/// Gives the Node its hostname label back.
struct Label<'a>(&'a Cluster);

impl Drop for Label<'_> {
    fn drop(&mut self) {
        let label = format!("kubernetes.io/hostname={NODE}");
        let args = ["label", "node", NODE, &label, "--overwrite"];
        let _ = self.0.kubectl(&args);
    }
}

#[test]
fn a_pv_restored_from_a_backup_is_decided() {
    let cluster = or_skip!(Cluster::enter());
    let (_disks, release) = Release::with_disks(&cluster, "restored", 2, json!({}));
    let claims = ["right", "wrong"];
    let pvs = claims.map(|claim| marked(&cluster, claim, "restored"));
    for pv in &pvs {
        lose(&cluster, pv);
    }
    let [right, wrong] = pvs.map(|backup| restore(&cluster, &backup));
    for (pv, claim) in [(&right, "right"), (&wrong, "wrong")] {
        cluster.event(pv, "VolumeMarkMismatch");
        in_state(&cluster, &release, path(pv), "MarkMismatch");
        assert!(holds(pv, claim));
    }

    let mut page = Procedure::titled(&MARKS, WITH_A_PV);
    page.about(&right);
    let said = page.follow("explain");
    assert!(said.contains("its mark is used"), "{said}");
    page.confirm("--accept", name(&right));
    in_state(&cluster, &release, path(&right), "Bound");
    let read = cluster.run_pod("reader", "right", "Filesystem", "cat /data/file");
    assert_eq!(read, "data of right");
    cluster.delete_claim("right");
    cluster.recycled(&right);
    assert!(entries(path(&right)).is_empty());

    cluster.delete_claim("wrong");
    cluster.in_phase(&wrong, "Released");
    release.still("it is not cleaned", || holds(&wrong, "wrong"));
    page.about(&wrong);
    page.confirm("--wipe", name(&wrong));
    cluster.recycled(&wrong);
    assert!(entries(path(&wrong)).is_empty());
    page.was_followed();
}

#[test]
fn disks_that_turn_up_without_their_pvs_are_decided() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("moved");
    for name in ["one", "two"] {
        disks.device("raw", name, 16 * MIB);
    }
    let spares = [disks.spare(32 * MIB), disks.spare(32 * MIB)];
    for (disk, name) in spares.iter().zip(["one", "two"]) {
        disk.format("ext4").unwrap();
        let flags = MsFlags::empty();
        disks.mounted("files", name, Some(disk.path()), Some("ext4"), flags);
    }
    let (files, raw) = (disks.class("files"), disks.class("raw"));
    let block = json!({ "volumeMode": "Block" });
    let classes = json!([class("files", &files, json!({})), class("raw", &raw, block)]);
    let release = Release::install(&cluster, classes, json!({}));
    let claims = [("a", "files"), ("b", "files"), ("c", "raw"), ("d", "raw")];
    for (claim, class) in claims {
        let mode = if class == "raw" { "Block" } else { "Filesystem" };
        write(&cluster, claim, class, mode);
    }
    for (claim, class) in claims {
        let pv = written(&cluster, claim);
        lose(&cluster, &pv);
        cluster.delete_claim(claim);
        // The disk is taken out, and comes back as another entry.
        let (old, new) = (path(&pv), path(&pv).with_file_name(claim));
        if class == "raw" {
            fs::rename(old, &new).unwrap();
            continue;
        }
        let disk = &spares[usize::from(old.ends_with("two"))];
        umount(old).unwrap();
        let flags = MsFlags::empty();
        disks.mounted("files", claim, Some(disk.path()), Some("ext4"), flags);
    }

    let text = |claim: &str| format!("data of {claim}");
    for (class, [accepted, wiped]) in [(&files, ["a", "b"]), (&raw, ["c", "d"])] {
        let mut page = without_a_pv();
        let has_data = |claim: &str| {
            let at = class.join(claim);
            if class == &raw {
                return is_on_device(&at, text(claim).as_bytes());
            }
            fs::read_to_string(at.join("file")).is_ok_and(|data| data == text(claim))
        };
        for claim in [accepted, wiped] {
            dirty(&cluster, &release, &mut page, &class.join(claim));
            assert!(has_data(claim));
            let verb = if claim == wiped { "--wipe" } else { "--accept" };
            decide(&mut page, verb, &class.join(claim));
            cluster.eventually("it is offered", || {
                let mut pvs = cluster.pvs().into_iter();
                pvs.any(|pv| path(&pv) == class.join(claim))
            });
            assert_eq!(has_data(claim), claim == accepted);
        }
        page.was_followed();
    }
}

#[test]
fn a_restored_etcd_wipes_and_offers_nothing_without_consent() {
    let cluster = or_skip!(Cluster::enter());
    let (_disks, mut release) = Release::with_disks(&cluster, "etcd", 2, json!({}));
    // An API server that starts denies everything at first.
    release.expects_forbidden();
    let first = marked(&cluster, "first", "etcd");
    let backup = Backup::take(&cluster);
    // One volume is used for the first time, and the other by its next tenant.
    let late = marked(&cluster, "late", "etcd");
    cluster.delete_claim("first");
    cluster.recycled(&first);
    let second = marked(&cluster, "second", "etcd");
    assert_eq!(path(&second), path(&first));
    // What else happens in an hour.
    let config_maps = (0..200).map(|number| {
        let name = format!("config-{number}");
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
    });
    let list =
        json!({ "apiVersion": "v1", "kind": "List", "items": config_maps.collect::<Vec<_>>() });
    cluster.manifests("create", &list.to_string()).unwrap();
    let pod = release.pod();
    backup.restore(&cluster);

    assert!(cluster.get("pvc", "first", Some(USERS)).is_some());
    assert!(cluster.get("pvc", "second", Some(USERS)).is_none());
    cluster.event(&first, "VolumeMarkMismatch");
    cluster.is_gone("pv", name(&late), None);
    in_state(&cluster, &release, path(&late), "Skipped");
    cluster.delete_claim("first");
    cluster.in_phase(&first, "Released");
    release.still("no data is wiped, and no volume offered", || {
        holds(&second, "second") && holds(&late, "late") && cluster.pvs().len() == 1
    });

    let mut page = Procedure::titled(&MARKS, WITH_A_PV);
    page.about(&first);
    page.confirm("--wipe", name(&first));
    cluster.recycled(&first);
    assert!(entries(path(&first)).is_empty());
    let mut page = without_a_pv();
    dirty(&cluster, &release, &mut page, path(&late));
    decide(&mut page, "--wipe", path(&late));
    cluster.available("etcd", 2);
    assert!(entries(path(&late)).is_empty());
    let same = release.pod();
    assert_eq!(same["metadata"]["uid"], pod["metadata"]["uid"]);
}
