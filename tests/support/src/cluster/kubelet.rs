//! The writes of a kubelet, for a node that has none: the node is ready, pods run once
//! their claims are bound, and are removed when they are deleted. Nothing is executed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use control_plane::NodeOptions;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::leftovers::namespace;

const EVERY: Duration = Duration::from_millis(100);
/// Whether a pod ends by itself: an annotation of the embedded control plane's pods.
const RUN: &str = "control-plane/run";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Registers a node, Ready. (The API server taints each new node as not ready.)
pub async fn register(client: &Client, options: &NodeOptions) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let name = &options.name;
    let mut labels = BTreeMap::from([(HOSTNAME.to_owned(), name.clone())]);
    labels.extend(options.labels.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
    let params = PatchParams::default();
    let ready = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "" },
    ] } });
    let untainted = json!({ "spec": { "taints": null } });
    let registering = async {
        nodes.create(&PostParams::default(), &node).await?;
        nodes.patch_status(name, &params, &Patch::Merge(ready)).await?;
        nodes.patch(name, &params, &Patch::Merge(untainted)).await
    };
    registering.await.with_context(|| format!("registering the node {name}"))?;
    Ok(())
}

/// Looks after the stage's pods until it is aborted.
pub async fn run(client: Client, id: String) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(&id));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &namespace(&id));
    loop {
        tokio::time::sleep(EVERY).await;
        let Ok(found) = pods.list(&ListParams::default()).await else {
            continue;
        };
        for pod in found.items {
            // Whatever has changed meanwhile is seen in the next round.
            let _ = sync(&pods, &claims, &pod).await;
        }
    }
}

async fn sync(
    pods: &Api<Pod>,
    claims: &Api<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<(), kube::Error> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        pods.delete(name, &params).await?;
        return Ok(());
    }
    let annotations = pod.metadata.annotations.as_ref();
    let run = annotations.and_then(|annotations| annotations.get(RUN));
    let phase = match run.map(String::as_str) {
        Some("succeed") => "Succeeded",
        _ => "Running",
    };
    let current = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if current == Some(phase) || !claims_are_bound(claims, pod).await? {
        return Ok(());
    }
    let status = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "phase": phase } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge::<Value>(status)).await?;
    Ok(())
}

async fn claims_are_bound(
    claims: &Api<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<bool, kube::Error> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    for volume in volumes.unwrap_or_default() {
        if let Some(source) = &volume.persistent_volume_claim {
            let claim = claims.get_opt(&source.claim_name).await?;
            let phase = claim.and_then(|claim| claim.status?.phase);
            if phase.as_deref() != Some("Bound") {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
