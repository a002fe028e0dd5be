//! The permissions of the provisioner: those of the chart are enough, those of the Go chart for a
//! start.

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name, path};
use crate::disks::entries;
use crate::release::NAME;
use crate::{Cluster, Release, disks::MIB};

/// What the Go provisioner's chart allows.
fn go_rules() -> Value {
    json!([
        { "apiGroups": [""], "resources": ["persistentvolumes"],
          "verbs": ["get", "list", "watch", "create", "delete"] },
        { "apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"],
          "verbs": ["get", "list", "watch"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["watch"] },
        { "apiGroups": ["", "events.k8s.io"], "resources": ["events"],
          "verbs": ["create", "update", "patch"] },
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
    ])
}

/// The cluster-wide rules that our service account has, by role.
fn our_roles(cluster: &Cluster) -> Vec<Value> {
    let bindings = cluster.list("clusterrolebindings", None);
    let ours = bindings.iter().filter(|binding| {
        binding["subjects"]
            .as_array()
            .is_some_and(|subjects| subjects.iter().any(|subject| subject["name"] == NAME))
    });
    ours.map(|binding| {
        let role = binding["roleRef"]["name"].as_str().unwrap();
        cluster.get("clusterrole", role, None).unwrap()
    })
    .collect()
}

fn set_rules(cluster: &Cluster, role: &Value, rules: &Value) {
    let patch = json!({ "rules": rules }).to_string();
    let merge = ["--type=merge", "--patch", &patch];
    let args = [&["patch", "clusterrole", name(role)][..], &merge].concat();
    cluster.kubectl(&args).unwrap();
}

#[test]
fn under_the_go_charts_role_it_provisions_and_cleans_once_it_may() {
    let cluster = or_skip!(Cluster::enter());
    let values = json!({ "protectReleasedData": false });
    let (mut disks, mut release) = Release::with_disks(&cluster, "roles", 1, values);
    release.expects_forbidden();

    // The image was swapped, the role was not.
    let ours = our_roles(&cluster);
    assert!(!ours.is_empty());
    for (number, role) in ours.iter().enumerate() {
        let rules = if number == 0 { go_rules() } else { json!([]) };
        set_rules(&cluster, role, &rules);
    }
    let pod = release.pod();
    let delete = ["delete", "pod", name(&pod), "--namespace", SYSTEM];
    cluster.kubectl(&delete).unwrap();
    let started = release.pod();
    disks.filesystem("roles", "second", "ext4", 32 * MIB);
    cluster.available("roles", 2);

    // In use, and released: it is not cleaned, and an event says why.
    let bound = cluster.write("claim", "roles");
    let used = path(&bound);
    cluster.delete_claim("claim");
    let said = cluster.eventually("the log names the missing permission", || {
        let logs = release.logs();
        (logs.contains("patch") && logs.contains("persistentvolumes")).then_some(logs)
    });
    assert!(said.contains("deploy/") || said.contains("docs/"), "and where to get it: {said}");
    let status = release.http("/status");
    assert!(status.contains("patch"), "{status}");
    let metrics = release.http("/metrics");
    let series = "missing_permission{resource=\"persistentvolumes\",verb=\"patch\"} 1";
    assert!(metrics.contains(series), "{metrics}");
    assert_eq!(entries(used), ["file"]);

    // The administrator applies the role, and that is all.
    for role in &ours {
        set_rules(&cluster, role, &role["rules"]);
    }
    cluster.recycled(&bound);
    assert!(entries(used).is_empty());
    let now = release.pod();
    assert_eq!(now["metadata"]["uid"], started["metadata"]["uid"], "no restart was needed");
    assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
}
