//! Taking the provisioner off a cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name, path};
use crate::disks::entries;
use crate::release::{NAME, absent_for, class, render};
use crate::rendered::ended;
use crate::{Cluster, Release};

#[test]
fn uninstalling_leaves_nothing_stuck_and_data_in_use_alone() {
    let cluster = or_skip!(Cluster::enter());
    let (_disks, release) = Release::with_disks(&cluster, "uninstalled", 2, json!({}));
    let bound = cluster.write("claim", "uninstalled");

    release.uninstall().unwrap();
    assert!(cluster.get("daemonset", NAME, Some(SYSTEM)).is_none());
    for pv in cluster.pvs() {
        let finalizers = pv["metadata"]["finalizers"].to_string();
        assert!(
            !finalizers.contains("local-volume-provisioner"),
            "{finalizers}"
        );
    }
    // The hook's pod is deleted with its Job, without waiting for it.
    cluster.eventually("nothing of it is left", || {
        let left = cluster.list("pods,jobs,serviceaccounts,configmaps", Some(SYSTEM));
        let is_its = |object: &Value| name(object).contains(NAME);
        !left.iter().any(is_its)
    });
    let roles = cluster.list("clusterroles,clusterrolebindings", None);
    assert!(!roles.iter().any(|role| name(role).contains(NAME)));
    assert_eq!(entries(path(&bound)), ["file"]);
}

#[test]
fn unclean_volumes_fail_an_uninstall_and_both_remedies_work() {
    let cluster = or_skip!(Cluster::enter());
    let (disks, mut release) = Release::with_disks(&cluster, "unclean", 2, json!({}));
    let pvs = ["one", "two"].map(|claim| unclean(&cluster, claim));

    let refused = release.try_uninstall().unwrap_err().to_string();
    assert!(refused.contains("completed with 1 error"), "{refused}");
    let log = ["logs", "job/local-volumes-uninstall", "--namespace", SYSTEM];
    let said = cluster.kubectl(&log).unwrap();
    assert!(said.contains("abandonUnmarked"), "{said}");
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
    assert!(entries(path(&pvs[0])).is_empty());
    release.uninstall_without_hooks();
    assert!(cluster.get("pv", name(&pvs[1]), None).is_some());

    // The Job, run again with other values.
    let classes = json!([class("unclean", &disks.class("unclean"), json!({}))]);
    let values = json!({ "uninstall": { "abandonUnmarked": true } });
    let hook = render(classes, values, &["--show-only=templates/uninstall.yaml"]);
    let hook = absent_for(&hook, Duration::from_secs(3));
    cluster.manifests("replace --force", &hook).unwrap();
    ended(&cluster);
    cluster.manifests("delete", &hook).unwrap();
    cluster.is_gone("pv", name(&pvs[1]), None);
    for pv in cluster.pvs() {
        let finalizers = pv["metadata"]["finalizers"].to_string();
        assert!(!finalizers.contains("local-volume-provisioner"), "{pv:#}");
    }
    assert_eq!(entries(path(&pvs[1])), ["file"], "it is not wiped");
}

/// A PV with data whose claim and which itself are deleted, and that is not cleaned.
fn unclean(cluster: &Cluster, claim: &str) -> Value {
    let bound = cluster.write(claim, "unclean");
    let pause = "local-volume-provisioner/paused=true";
    let annotate = ["annotate", "pv", name(&bound), pause];
    cluster.kubectl(&annotate).unwrap();
    let delete = ["delete", "pv", name(&bound), "--wait=false"];
    cluster.kubectl(&delete).unwrap();
    cluster.delete_claim(claim);
    bound
}
