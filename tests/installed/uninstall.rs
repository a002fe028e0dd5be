//! Taking the provisioner off a cluster.

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name};
use crate::disks::entries;
use crate::release::{NAME, class};
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
fn volumes_that_are_not_clean_stop_an_uninstall_until_somebody_decides() {
    let Some(cluster) = Cluster::enter() else {
        return;
    };
    let mut disks = Disks::new("unclean");
    let path = disks.filesystem("unclean", "disk", "ext4", 32 * MIB);
    let classes = json!([class("unclean", &disks.class("unclean"), json!({}))]);
    let values = json!({ "uninstall": { "timeout": "3s" } });
    let mut release = Release::install(&cluster, classes, values);
    cluster.available("unclean", 1);
    cluster.claim("claim", "unclean", "Filesystem");
    cluster.run_pod(
        "writer",
        "claim",
        "Filesystem",
        "echo data >/data/file; sync",
    );
    let bound = cluster.bound("claim");
    // Nothing is cleaned, so the PV stays when it is deleted.
    let pause = r#"{"metadata":{"annotations":{"local-volume-provisioner/paused":"true"}}}"#;
    let args = [
        "patch",
        "pv",
        name(&bound),
        "--type=merge",
        "--patch",
        pause,
    ];
    cluster.kubectl(&args).unwrap();
    cluster
        .kubectl(&["delete", "pv", name(&bound), "--wait=false"])
        .unwrap();
    cluster.delete_claim("claim");

    let refused = release.try_uninstall().unwrap_err().to_string();
    let hook = cluster.list("jobs", Some(SYSTEM));
    let job = hook
        .iter()
        .find(|job| name(job).contains(NAME))
        .expect("the hook's Job is kept");
    let said = cluster
        .kubectl(&["logs", &format!("job/{}", name(job)), "--namespace", SYSTEM])
        .unwrap();
    assert!(said.contains(name(&bound)), "{said}\n{refused}");
    assert!(
        said.contains("--abandon-uncleaned") || said.contains("abandonUncleaned"),
        "{said}"
    );
    let still = cluster.get("pv", name(&bound), None).unwrap();
    assert_eq!(still["metadata"]["uid"], bound["metadata"]["uid"]);
    assert!(
        cluster.get("daemonset", NAME, Some(SYSTEM)).is_some(),
        "it can still clean"
    );

    release.roll_back();
    release.upgrade(json!({ "uninstall": { "abandonUncleaned": true } }));
    release.uninstall().unwrap();
    cluster.eventually("the PV is gone", || cluster.pvs().is_empty().then_some(()));
    assert_eq!(entries(&path), ["file"], "nobody wiped it");
}
