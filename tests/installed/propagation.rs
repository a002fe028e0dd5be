//! What the administrator mounts while the provisioner's pod runs.

use serde_json::json;

use crate::{Cluster, Disks, Release, disks::MIB};

#[test]
fn a_volume_mounted_after_the_pod_started_is_offered_at_once() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("later");
    let release = Release::over(&cluster, &disks, "later", json!({}));
    let pod = release.pod();
    assert!(cluster.pvs().is_empty());

    let path = disks.filesystem("later", "disk", "ext4", 32 * MIB);
    let pv = cluster.available("later", 1).remove(0);
    assert_eq!(pv["spec"]["local"]["path"], json!(path));
    assert_eq!(release.pod()["metadata"]["uid"], pod["metadata"]["uid"], "the same pod");
}
