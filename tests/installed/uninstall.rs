//! Taking the provisioner off a cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name};
use crate::disks::entries;
use crate::release::{NAME, absent_for, class, render};
use crate::{Cluster, Disks, Release, disks::MIB};

#[test]
fn uninstalling_leaves_nothing_stuck_and_data_in_use_alone() {
    let Some(cluster) = Cluster::enter() else {
        return;
    };
    let mut disks = Disks::new("uninstalled");
    let path = disks.filesystem("uninstalled", "disk", "ext4", 32 * MIB);
    disks.filesystem("uninstalled", "unused", "ext4", 32 * MIB);
    let classes = json!([class("uninstalled", &disks.class("uninstalled"), json!({}))]);
    let release = Release::install(&cluster, classes, json!({}));
    cluster.available("uninstalled", 2);
    cluster.claim("claim", "uninstalled", "Filesystem");
    let script = "echo data >/data/file; sync";
    cluster.run_pod("writer", "claim", "Filesystem", script);
    let bound = cluster.bound("claim");
    let path = if bound["spec"]["local"]["path"] == json!(path) {
        path
    } else {
        path.with_file_name("unused")
    };

    release.uninstall().unwrap();
    assert!(cluster.get("daemonset", NAME, Some(SYSTEM)).is_none());
    for pv in cluster.pvs() {
        let finalizers = pv["metadata"]["finalizers"].to_string();
        assert!(
            !finalizers.contains("local-volume-provisioner"),
            "{finalizers}"
        );
    }
    // The hook's pod goes with its Job, which nobody waits for.
    cluster.eventually("nothing of it is left", || {
        let left = cluster.list("pods,jobs,serviceaccounts,configmaps", Some(SYSTEM));
        let is_its = |object: &Value| name(object).contains(NAME);
        (!left.iter().any(is_its)).then_some(())
    });
    let roles = cluster.list("clusterroles,clusterrolebindings", None);
    assert!(!roles.iter().any(|role| name(role).contains(NAME)));
    assert_eq!(entries(&path), ["file"]);
}

#[test]
fn unclean_volumes_fail_an_uninstall_and_both_ways_out_work() {
    let Some(cluster) = Cluster::enter() else {
        return;
    };
    let mut disks = Disks::new("unclean");
    let cleaned = disks.filesystem("unclean", "one", "ext4", 32 * MIB);
    let abandoned = disks.filesystem("unclean", "two", "ext4", 32 * MIB);
    let classes = json!([class("unclean", &disks.class("unclean"), json!({}))]);
    let mut release = Release::install(&cluster, classes.clone(), json!({}));
    cluster.available("unclean", 2);
    let mut pvs = ["one", "two"].map(|claim| unclean(&cluster, claim));
    pvs.sort_by_key(|pv| pv["spec"]["local"]["path"].to_string());

    let refused = release.try_uninstall().unwrap_err().to_string();
    assert!(refused.contains("completed with 1 error"), "{refused}");
    let log = ["logs", "job/local-volumes-uninstall", "--namespace", SYSTEM];
    let said = cluster.kubectl(&log).unwrap();
    assert!(said.contains("abandonUncleaned"), "{said}");
    for pv in &pvs {
        assert!(said.contains(name(pv)), "{said}");
        let still = cluster.get("pv", name(pv), None).unwrap();
        assert_eq!(still["metadata"]["uid"], pv["metadata"]["uid"]);
    }
    assert!(cluster.get("daemonset", NAME, Some(SYSTEM)).is_none());
    let left = cluster.list("serviceaccounts,roles,rolebindings", Some(SYSTEM));
    assert!(!left.iter().any(|object| name(object).contains(NAME)));

    // Installed again, it cleans.
    release.upgrade(json!({}));
    let resume = [
        "annotate",
        "pv",
        name(&pvs[0]),
        "local-volume-provisioner/paused-",
    ];
    cluster.kubectl(&resume).unwrap();
    cluster.recycled(&pvs[0]);
    assert!(entries(&cleaned).is_empty());
    release.uninstall_without_hooks();
    assert!(cluster.get("pv", name(&pvs[1]), None).is_some());

    // The Job, run again with other values.
    let values = json!({ "uninstall": { "abandonUncleaned": true } });
    let hook = render(classes, values, &["--show-only=templates/uninstall.yaml"]);
    let hook = absent_for(&hook, Duration::from_secs(3));
    cluster.manifests("replace --force", &hook).unwrap();
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=complete",
            "job/local-volumes-uninstall",
            "--timeout=4m",
            "--namespace",
            SYSTEM,
        ])
        .unwrap();
    cluster.manifests("delete", &hook).unwrap();
    cluster.eventually("the deleted PV is gone", || {
        cluster
            .get("pv", name(&pvs[1]), None)
            .is_none()
            .then_some(())
    });
    for pv in cluster.pvs() {
        let finalizers = pv["metadata"]["finalizers"].to_string();
        assert!(!finalizers.contains("local-volume-provisioner"), "{pv:#}");
    }
    assert_eq!(entries(&abandoned), ["file"], "it is not wiped");
}

/// A PV with data whose claim and which itself are deleted, and that is not cleaned.
fn unclean(cluster: &Cluster, claim: &str) -> Value {
    cluster.claim(claim, "unclean", "Filesystem");
    let script = "echo data >/data/file; sync";
    cluster.run_pod("writer", claim, "Filesystem", script);
    let bound = cluster.bound(claim);
    let pause = "local-volume-provisioner/paused=true";
    cluster
        .kubectl(&["annotate", "pv", name(&bound), pause])
        .unwrap();
    cluster
        .kubectl(&["delete", "pv", name(&bound), "--wait=false"])
        .unwrap();
    cluster.delete_claim(claim);
    bound
}
