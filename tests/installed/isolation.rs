//! Node isolation, which must not be in the way of the provisioner itself.

use serde_json::json;

use crate::disks::entries;
use crate::release::class;
use crate::{Cluster, Disks, Release, disks::MIB};

#[test]
fn with_node_isolation_a_volume_is_offered_and_recycled_as_without() {
    let Some(cluster) = Cluster::enter() else {
        return;
    };
    let mut disks = Disks::new("isolated");
    let path = disks.filesystem("isolated", "disk", "ext4", 32 * MIB);
    let classes = json!([class("isolated", &disks.class("isolated"), json!({}))]);
    let values = json!({ "nodeIsolation": { "enabled": true } });
    let release = Release::install(&cluster, classes, values);
    let first = cluster.available("isolated", 1).remove(0);
    cluster.claim("claim", "isolated", "Filesystem");
    cluster.run_pod(
        "writer",
        "claim",
        "Filesystem",
        "echo data >/data/file; sync",
    );
    cluster.delete_claim("claim");
    cluster.recycled(&first);
    assert!(entries(&path).is_empty());
    release.uninstall().unwrap();
    assert!(cluster.list("validatingadmissionpolicies", None).is_empty());
}
