//! Nodes that are lost, with the controller of the chart.

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, USERS};
use crate::release::class;
use crate::{Cluster, Disks, Release};

/// A node that is nothing but an object; gone with this.
struct Fake<'a> {
    cluster: &'a Cluster,
    name: &'static str,
    claim: Value,
}

impl<'a> Fake<'a> {
    /// Registers it, with one volume and a claim that is bound to it.
    fn with_a_claim(cluster: &'a Cluster, name: &'static str) -> Self {
        let labels = json!({ "kubernetes.io/hostname": name });
        cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        }));
        let mut fake = Self { cluster, name, claim: Value::Null };
        cluster.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {
                "name": name, "labels": labels,
                "finalizers": ["local-volume-provisioner/cleanup"],
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-{name}"),
                },
            },
            "spec": {
                "storageClassName": "lost", "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "1Gi" }, "persistentVolumeReclaimPolicy": "Delete",
                "local": { "path": "/mnt/lost/disk" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [name] },
                ] }] } },
            },
        }));
        cluster.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": USERS },
            "spec": {
                "storageClassName": "lost", "accessModes": ["ReadWriteOnce"], "volumeName": name,
                "resources": { "requests": { "storage": "1Mi" } },
            },
        }));
        cluster.bound(name);
        let claim = cluster.get("persistentvolumeclaim", name, Some(USERS));
        fake.claim = claim.unwrap();
        fake
    }

    fn delete(&self) {
        let args = ["delete", "node", self.name, "--ignore-not-found"];
        self.cluster.kubectl(&args).unwrap();
    }

    fn is_cleaned_up(&self) {
        let (cluster, name) = (self.cluster, self.name);
        cluster.event(&self.claim, "ReferencedNodeDeleted");
        cluster.is_gone("persistentvolumeclaim", name, Some(USERS));
        // With its finalizer.
        cluster.is_gone("persistentvolume", name, None);
    }
}

impl Drop for Fake<'_> {
    fn drop(&mut self) {
        let args = ["delete", "node", self.name, "--ignore-not-found"];
        let _ = self.cluster.kubectl(&args);
    }
}

/// The only pod of the controller.
fn controller(cluster: &Cluster) -> Option<String> {
    let pods = cluster.list("pods", Some(SYSTEM));
    let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
    let mut ours = names.filter(|name| name.contains("node-cleanup"));
    let only = ours.next()?.to_owned();
    ours.next().is_none().then_some(only)
}

#[test]
fn claims_of_lost_nodes_are_deleted_also_after_the_controller_was_killed() {
    let cluster = or_skip!(Cluster::enter());
    let disks = Disks::new("lost");
    let dir = disks.class("lost");
    let _release = Release::install(
        &cluster,
        json!([class("lost", &dir, json!({}))]),
        json!({ "nodeCleanup": { "enabled": true, "pvcDeletionDelay": "5s" } }),
    );
    let first = cluster.eventually("there is one pod", || controller(&cluster));

    let node = Fake::with_a_claim(&cluster, "lost-1");
    node.delete();
    node.is_cleaned_up();

    let node = Fake::with_a_claim(&cluster, "lost-2");
    cluster.kill_pod(&first);
    node.delete();
    node.is_cleaned_up();
    let second = cluster.eventually("there is one pod again", || controller(&cluster));
    assert_ne!(second, first);
    let logs = ["logs", &second, "--namespace", SYSTEM];
    let log = cluster.kubectl(&logs).unwrap();
    assert!(!log.contains("is missing: "), "{log}");
}
