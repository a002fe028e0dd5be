//! A node that is drained for maintenance, and comes back.

use serde_json::json;

use crate::cluster::{NODE, USERS, path};
use crate::{Cluster, Release};

#[test]
fn a_drained_node_keeps_its_volumes_data_for_the_pods_that_come_back() {
    let cluster = or_skip!(Cluster::enter());
    let (_disks, _release) = Release::with_disks(&cluster, "drained", 1, json!({}));
    cluster.claim("claim", "drained", "Filesystem");
    let script = "test -e /data/kept && echo found it; echo data >/data/kept; sync; sleep 1000";
    cluster.pod("app", "claim", "Filesystem", script);
    cluster.pod_in_phase("app", "Running");
    let bound = cluster.bound("claim");

    let drained = cluster.kubectl(&[
        "drain",
        NODE,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=90s",
    ]);
    // Whatever happens next, the node must take pods again.
    let gone = cluster.get("pod", "app", Some(USERS)).is_none();
    cluster.pod("app", "claim", "Filesystem", script);
    let waiting = cluster.get("pod", "app", Some(USERS)).unwrap();
    let uncordoned = cluster.kubectl(&["uncordon", NODE]);
    drained.unwrap();
    uncordoned.unwrap();
    assert!(gone, "the pod was evicted");
    assert_eq!(waiting["status"]["phase"], "Pending");

    cluster.eventually("the pod is back with its data", || cluster.logs("app") == "found it\n");
    let now = cluster.bound("claim");
    assert_eq!(now["metadata"]["uid"], bound["metadata"]["uid"]);
    assert!(path(&bound).join("kept").exists());
}
