//! The ConfigMap is edited, and the kubelet brings it to the pod that runs.

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name};
use crate::release::{NAME, class};
use crate::{Cluster, Disks, Release};

/// Changes the ConfigMap's classes as `kubectl edit` does; what they were.
fn edit(cluster: &Cluster, edit: impl FnOnce(&str) -> String) -> String {
    let config = format!("{NAME}-config");
    let before = cluster.get("configmap", &config, Some(SYSTEM)).unwrap();
    let text = before["data"]["storageClassMap"].as_str().unwrap();
    let patch = json!({ "data": { "storageClassMap": edit(text) } }).to_string();
    let namespace = format!("--namespace={SYSTEM}");
    let patch = ["patch", "configmap", &config, &namespace, "--patch", &patch];
    cluster.kubectl(&patch).unwrap();
    text.to_owned()
}

/// What the docs advise those who do not want to wait for the kubelet's next round.
pub fn touch(cluster: &Cluster, pod: &Value, turn: &str) {
    let touched = format!("touched={turn}");
    let namespace = format!("--namespace={SYSTEM}");
    let annotate = ["annotate", "pod", name(pod), &namespace, "--overwrite", &touched];
    cluster.kubectl(&annotate).unwrap();
}

/// The events of this reason on the pod, as `kubectl describe pod` shows them.
fn events(cluster: &Cluster, pod: &Value, reason: &str) -> Vec<String> {
    let mut events = cluster.list("events", Some(SYSTEM));
    events.retain(|event| {
        event["reason"] == reason && event["involvedObject"]["uid"] == pod["metadata"]["uid"]
    });
    let texts = events.iter().filter_map(|event| event["message"].as_str());
    texts.map(str::to_owned).collect()
}

#[test]
fn an_edited_config_map_is_in_force_without_a_restart_and_a_broken_one_is_not() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("reloaded");
    disks.tmpfs("disks", "a-1");
    disks.tmpfs("disks", "b-1");
    let settings = json!({ "namePattern": "a*", "storageClass": true });
    let classes = json!([class("first", &disks.class("disks"), settings)]);
    let release = Release::install(&cluster, classes, json!({}));
    cluster.available("first", 1);
    let pod = release.pod();
    cluster.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "second" },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }));

    let dir = disks.class("disks").display().to_string();
    // It shares the first one's directory, which the container has already.
    let second = json!({ "hostDir": dir, "mountDir": "/mnt/first", "namePattern": "b*" });
    edit(&cluster, |classes| format!("{classes}\nsecond: {second}\n"));
    touch(&cluster, &pod, "once");
    cluster.available("second", 1);

    let good = edit(&cluster, |classes| classes.replace("first:", "first: ["));
    touch(&cluster, &pod, "twice");
    let event = cluster
        .eventually("an event on the pod", || events(&cluster, &pod, "ConfigReloadFailed").pop());
    assert!(event.contains("storageClassMap"), "{event}");
    disks.tmpfs("disks", "b-2");
    cluster.available("second", 2);
    let reloads = "local_volume_provisioner_config_last_reload_successful";
    assert!(release.http("/metrics").contains(&format!("{reloads} 0")));
    assert!(release.http("/status").contains("check-config"));

    edit(&cluster, |_| good);
    touch(&cluster, &pod, "thrice");
    cluster
        .eventually("an event that all is well", || events(&cluster, &pod, "ConfigReloaded").pop());
    assert!(release.http("/metrics").contains(&format!("{reloads} 1")));

    let now = release.pod();
    assert_eq!(now["metadata"]["uid"], pod["metadata"]["uid"]);
    assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
}
