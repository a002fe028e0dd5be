//! Pods and Nodes.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::Stage;
use crate::cluster::Cluster;

impl Stage {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace())
    }

    /// Makes a Pod on our node that uses a claim.
    pub fn pod(&self, name: &str, claim: &str) {
        self.pod_with(name, claim, &json!({}));
    }

    /// Makes a Pod on our node that uses a claim and does as its annotations say, which are those
    /// of the embedded control plane's pods. Without any it runs on and on.
    pub fn pod_with(&self, name: &str, claim: &str, annotations: &Value) {
        let volume = json!({ "persistentVolumeClaim": { "claimName": claim } });
        self.pod_of(&self.node(), name, volume, annotations);
    }

    /// Makes a Pod on another node that uses a claim.
    pub fn pod_on(&self, node: &str, name: &str, claim: &str) {
        let volume = json!({ "persistentVolumeClaim": { "claimName": claim } });
        self.pod_of(node, name, volume, &json!({}));
    }

    /// Makes a Pod on our node that mounts a path of the host and runs on and on.
    pub fn pod_with_host_path(&self, name: &str, path: &str) {
        self.pod_of(&self.node(), name, json!({ "hostPath": { "path": path } }), &json!({}));
    }

    fn pod_of(&self, node: &str, name: &str, mut volume: Value, annotations: &Value) {
        volume["name"] = json!("v");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "c", "image": "none" }],
                "volumes": [volume],
            },
        }))
        .expect("writing a pod down");
        if let Cluster::Real(real) = &self.cluster {
            real.run_pods();
        }
        // A new namespace has no service account at first, without which pods are refused.
        self.eventually(&format!("the pod {name} is made"), || {
            match self.block_on(self.pods().create(&PostParams::default(), &pod)) {
                Err(kube::Error::Api(status)) if status.message.contains("serviceaccount") => None,
                made => Some(made.expect("making a pod")),
            }
        });
    }

    pub fn pod_in_phase(&self, name: &str, wanted: &str) {
        self.eventually(&format!("pod {name} {wanted}"), || {
            let pod = self.request(self.pods().get_opt(name))?;
            (pod.status?.phase? == wanted).then_some(())
        });
    }

    /// Deletes a pod; `by_force` without waiting for its containers.
    pub fn delete_pod(&self, name: &str, by_force: bool) {
        let params =
            DeleteParams { grace_period_seconds: by_force.then_some(0), ..Default::default() };
        self.request(self.pods().delete(name, &params));
    }

    /// Registers a node; without any label if `hostname` is none.
    pub fn register_node(&self, name: &str, hostname: Option<&str>) {
        let labels = hostname.map(|hostname| json!({ "kubernetes.io/hostname": hostname }));
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        self.create(&Api::<Node>::all(self.client.clone()), node);
    }
}
