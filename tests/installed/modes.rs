//! The chart without privileges.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::disks::entries;
use crate::release::{TERMINATION_LOG, class};
use crate::{Cluster, Disks, Release, disks::MIB};

#[test]
fn without_privileges_filesystems_are_wiped_however_hostile_and_devices_refused() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("unprivileged");
    let ext4 = disks.filesystem("files", "ext4", "ext4", 32 * MIB);
    disks.filesystem("files", "xfs", "xfs", 320 * MIB);
    disks.device("devices", "disk", 32 * MIB);
    let classes = json!([
        class("files", &disks.class("files"), json!({})),
        class("devices", &disks.class("devices"), json!({})),
    ]);
    let release = Release::install(&cluster, classes, json!({ "privileged": false }));
    let pvs = cluster.available("files", 2);
    assert!(cluster.pvs_in("devices", "Available").is_empty());
    let status: Value = serde_json::from_str(&release.http("/status")).unwrap();
    let volumes = status["classes"].as_array().unwrap().iter();
    let refused = volumes
        .flat_map(|class| class["volumes"].as_array().cloned().unwrap_or_default())
        .find(|volume| volume["entry"] == "disk")
        .unwrap();
    assert_eq!(refused["reason"], "Unreadable", "{refused}");
    assert!(refused.to_string().contains("privileged"), "it names the remedy: {refused}");

    for claim in ["one", "two"] {
        cluster.claim(claim, "files", "Filesystem");
        let script = "mkdir -p /data/closed/deeper && echo x >/data/closed/deeper/file && \
                      chmod 000 /data/closed/deeper /data/closed && mkdir /data/theirs && \
                      echo y >/data/theirs/file && chown -R 4711:4711 /data/theirs && \
                      chmod 700 /data/theirs && sync";
        cluster.run_pod("hostile", claim, "Filesystem", script);
    }
    // What only root of the node can do.
    let file = ext4.join("immutable");
    fs::write(&file, "stays?").unwrap();
    chown(&file, Some(4711), Some(4711)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    let set = Command::new("chattr").arg("+i").arg(&file).status().unwrap();
    assert!(set.success());

    for claim in ["one", "two"] {
        cluster.delete_claim(claim);
    }
    for pv in &pvs {
        cluster.recycled(pv);
    }
    assert!(entries(&ext4).is_empty(), "{:?}", entries(&ext4));
    assert!(!Path::new(TERMINATION_LOG).exists());
}
