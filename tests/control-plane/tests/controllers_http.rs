//! The controllers as a client sees them, over HTTP.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::{collections::BTreeMap, time::Duration};

use control_plane::{ControlPlane, NodeOptions, Options};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

fn from<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn client(cluster: &ControlPlane) -> Client {
    Client::try_from(Config::new(cluster.url().parse().unwrap())).unwrap()
}

async fn until<K>(api: &Api<K>, name: &str, condition: impl Fn(Option<&K>) -> bool)
where
    K: Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + kube::Resource + 'static,
    K::DynamicType: Default,
{
    let waited = await_condition(api.clone(), name, condition);
    tokio::time::timeout(Duration::from_secs(10), waited)
        .await
        .unwrap_or_else(|_| panic!("{name} is not as expected"))
        .unwrap();
}

fn phase_of(volume: Option<&PersistentVolume>) -> &str {
    volume
        .and_then(|v| v.status.as_ref()?.phase.as_deref())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_claim_its_pod_and_its_volume() {
    let node = NodeOptions {
        name: "worker".into(),
        labels: BTreeMap::from([("zone".into(), "z".into())]),
    };
    let cluster = ControlPlane::start(Options {
        node: Some(node),
        ..Options::default()
    })
    .unwrap();
    let client = client(&cluster);
    let create = PostParams::default();

    let nodes: Api<Node> = Api::all(client.clone());
    let worker = nodes.get("worker").await.unwrap();
    assert_eq!(worker.labels()["kubernetes.io/hostname"], "worker");
    assert_eq!(worker.labels()["zone"], "z");

    let classes: Api<StorageClass> = Api::all(client.clone());
    let class = json!({
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    classes.create(&create, &from(class)).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = json!({
        "metadata": {
            "name": "v",
            "annotations": {"pv.kubernetes.io/provisioned-by": "local-volume-provisioner-worker"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": "worker", "uid": worker.uid(),
            }],
        },
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local",
            "local": {"path": "/mnt/v"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker"]},
            ]}]}},
        },
    });
    volumes.create(&create, &from(volume)).await.unwrap();
    until(&volumes, "v", |v| phase_of(v) == "Available").await;

    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&create, &from(json!({"metadata": {"name": "team"}})))
        .await
        .unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "team");
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    claims.create(&create, &from(claim)).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "team");
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    });
    pods.create(&create, &from(pod)).await.unwrap();
    until(&pods, "p", |p| {
        p.is_some_and(|p| p.status.as_ref().unwrap().phase.as_deref() == Some("Running"))
    })
    .await;
    until(&volumes, "v", |v| phase_of(v) == "Bound").await;

    // The namespace takes the pod and the claim along, in that order, and frees the volume.
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    until(&volumes, "v", |v| phase_of(v) == "Released").await;
    until(&namespaces, "team", |n| n.is_none()).await;

    // The node takes the volume along.
    nodes
        .delete("worker", &DeleteParams::default())
        .await
        .unwrap();
    until(&volumes, "v", |v| v.is_none()).await;
}
