//! Taking the provisioner off a cluster.

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name, path};
use crate::disks::{MIB, entries};
use crate::marks::{decide, dirty, marked, without_a_pv};
use crate::release::{NAME, class};
use crate::{Cluster, Disks, Release};

#[test]
fn uninstalling_leaves_nothing_stuck_and_no_data_to_the_next_tenant() {
    let cluster = or_skip!(Cluster::enter());
    let (disks, release) = Release::with_disks(&cluster, "uninstalled", 3, json!({}));
    let bound = cluster.write("claim", "uninstalled");
    let unclean = unclean(&cluster);

    release.uninstall().unwrap();
    cluster.is_gone("pv", name(&unclean), None);
    assert!(cluster.get("daemonset", NAME, Some(SYSTEM)).is_none());
    for pv in cluster.pvs() {
        let finalizers = pv["metadata"]["finalizers"].to_string();
        assert!(!finalizers.contains("local-volume-provisioner"), "{finalizers}");
    }
    // The hook's pod is deleted with its Job, without waiting for it.
    cluster.eventually("nothing of it is left", || {
        let left = cluster.list("pods,jobs,serviceaccounts,configmaps", Some(SYSTEM));
        let is_its = |object: &Value| name(object).contains(NAME);
        !left.iter().any(is_its)
    });
    let roles = cluster.list("clusterroles,clusterrolebindings", None);
    assert!(!roles.iter().any(|role| name(role).contains(NAME)));
    for pv in [&bound, &unclean] {
        assert_eq!(entries(path(pv)), ["file"]);
    }

    // A later installation knows whose data it is.
    let release = Release::over(&cluster, &disks, "uninstalled", json!({}));
    let mut page = without_a_pv();
    dirty(&cluster, &release, &mut page, path(&unclean));
    assert_eq!(cluster.available("uninstalled", 1).len(), 1);
    assert_eq!(entries(path(&unclean)), ["file"]);
    decide(&mut page, "--wipe", path(&unclean));
    cluster.available("uninstalled", 2);
    assert!(entries(path(&unclean)).is_empty());
    let now = cluster.bound("claim");
    assert_eq!(now["metadata"]["uid"], bound["metadata"]["uid"]);
    assert_eq!(entries(path(&bound)), ["file"]);
}

#[test]
fn two_releases_on_one_node_leave_each_others_volumes_alone() {
    let cluster = or_skip!(Cluster::enter());
    let (_disks, release) = Release::with_disks(&cluster, "ours", 2, json!({}));
    let mut disks = Disks::new("theirs");
    disks.filesystem("theirs", "disk", "ext4", 32 * MIB);
    let classes = || json!([class("theirs", &disks.class("theirs"), json!({}))]);
    let other = || Release::named("other-volumes", &cluster, classes(), json!({}));
    let installed = other();
    cluster.available("theirs", 1);
    let ours = marked(&cluster, "our-claim", "ours");
    let theirs = marked(&cluster, "their-claim", "theirs");

    installed.uninstall().unwrap();
    let installation = "local-volume-provisioner/installation";
    let annotations = |pv: &Value| cluster.get("pv", name(pv), None).unwrap()["metadata"].take();
    assert_eq!(annotations(&theirs)["annotations"][installation], json!(null));
    let expected = format!("{SYSTEM}/{NAME}");
    for pv in cluster.pvs() {
        if pv["spec"]["storageClassName"] == "ours" {
            assert_eq!(pv["metadata"]["annotations"][installation], *expected);
        }
    }
    // Ours cleans its own volume, and not the other's.
    cluster.delete_claim("their-claim");
    cluster.in_phase(&theirs, "Released");
    cluster.delete_claim("our-claim");
    cluster.recycled(&ours);
    release.still("the other's data", || entries(path(&theirs)) == ["file"]);
    let _other = other();
    cluster.recycled(&theirs);
    assert!(entries(path(&theirs)).is_empty());
}

/// A PV with data whose claim and which itself are deleted, and that is not cleaned.
fn unclean(cluster: &Cluster) -> Value {
    let bound = marked(cluster, "ended", "uninstalled");
    let pause = "local-volume-provisioner/paused=true";
    let annotate = ["annotate", "pv", name(&bound), pause];
    cluster.kubectl(&annotate).unwrap();
    let delete = ["delete", "pv", name(&bound), "--wait=false"];
    cluster.kubectl(&delete).unwrap();
    cluster.delete_claim("ended");
    bound
}
