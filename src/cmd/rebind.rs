//! `rebind`: binds the PV of a claim that was deleted by mistake to a new claim of the same name, with its data.
//!
//! The policy Retain comes first: the provisioner deletes a PV before it wipes the first byte, and it deletes none with this
//! policy. Each pass decides by the present state, so the command continues when it is run again.

mod elsewhere;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::api_server::cluster;
use super::progress::{NOT_FINISHED, Progress, taken};
use super::volume::{existing_pv, policy_patch};
use crate::args::Rebind;
use crate::cluster::{ApiError, ClaimView, Cluster};
use crate::names::ANNOTATION_PAUSED;
use crate::view::{ClaimRef, Phase, PvView, ReclaimPolicy};

/// Binds the PV again.
///
/// # Errors
/// When the data cannot be saved this way, a request failed, or after the timeout.
pub async fn command(request: &Rebind, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    if let Some(node) = &request.to {
        return elsewhere::command(request, node, &cluster, out).await;
    }
    let mut progress = Progress::new(out, request.timeout);
    loop {
        let pv = existing_pv(&cluster, &request.pv).await?;
        let step = step(&cluster, &pv).await?;
        progress.show(&pv.name, &step.said(&pv))?;
        if request.dry_run || matches!(step, Step::Done) {
            return Ok(ExitCode::SUCCESS);
        }
        if taken(&pv.name, take(&cluster, &pv, &step).await)? {
            match step {
                Step::Pause => return Ok(ExitCode::FAILURE),
                Step::RestorePolicy(_) => return Ok(ExitCode::SUCCESS),
                _ => {}
            }
        }
        progress.wait(NOT_FINISHED).await?;
    }
}

enum Step {
    /// The PV is being deleted, so only its cleaning can be stopped.
    Pause,
    Keep,
    /// Names of the pods that use the deleted claim, with their namespace.
    AwaitPods(Vec<String>),
    Reserve,
    CreateClaim(ClaimRef),
    AwaitBinding,
    RestorePolicy(String),
    Done,
}

async fn step(cluster: &Cluster, pv: &PvView) -> Result<Step> {
    let name = &pv.name;
    let Some(of) = &pv.claim else {
        bail!("PV {name} was bound to no claim; nothing was changed");
    };
    ensure!(
        !pv.had_no_tenant(),
        "PV {name} was bound to no claim, but reserved for {of}; nothing was changed"
    );
    let claim = cluster.claim(of).await;
    let claim = claim.with_context(|| format!("reading claim {of}"))?;
    let is_same = |claim: &ClaimView| of.uid.as_ref() == Some(&claim.uid) && !claim.deleting;
    ensure!(
        pv.moved_from.is_none() || !claim.as_ref().is_some_and(is_same),
        "PV {name} waits for its disk: run rebind {name} --to NODE again"
    );
    if pv.deleting {
        return Ok(Step::Pause);
    }
    if let Some(other) = claim.as_ref().and_then(|claim| claim.volume.as_ref())
        && other != name
    {
        bail!("claim {of} exists already and has PV {other}; delete that claim first");
    }
    let is_bound = pv.phase == Phase::Bound && claim.as_ref().is_some_and(is_same);
    Ok(match (&pv.retired, is_bound) {
        (Some(policy), true) => Step::RestorePolicy(policy.clone()),
        (None, true) => Step::Done,
        _ if pv.policy != ReclaimPolicy::Retain => Step::Keep,
        _ if pv.phase == Phase::Bound => Step::AwaitPods(pods(cluster, of).await?),
        _ if of.uid.is_some() => Step::Reserve,
        _ if claim.is_none() => Step::CreateClaim(of.clone()),
        _ => Step::AwaitBinding,
    })
}

async fn pods(cluster: &Cluster, claim: &ClaimRef) -> Result<Vec<String>> {
    let pods = cluster.pods_of_claim(claim).await;
    let pods = pods.context("listing the pods of the claim")?;
    // Kubernetes does not wait for a pod without a node either.
    let scheduled = pods.into_iter().filter(|pod| !pod.node.is_empty());
    Ok(scheduled.map(|pod| pod.name).collect())
}

impl Step {
    fn said(&self, pv: &PvView) -> String {
        let claim = pv.claim.as_ref().map(ToString::to_string).unwrap_or_default();
        match self {
            Self::Pause => format!(
                "it is being deleted, which cannot be undone; its cleaning is paused: copy the data (docs/operations.md), then resume {}",
                pv.name
            ),
            Self::Keep => "its data is kept: the policy is set to Retain".into(),
            Self::AwaitPods(pods) if pods.is_empty() => {
                format!("waiting until claim {claim} is deleted")
            }
            Self::AwaitPods(pods) => format!(
                "claim {claim} was deleted, and ends with its pods; delete them to go on: {}",
                pods.join(", ")
            ),
            Self::Reserve => format!("it is reserved for a new claim {claim}"),
            Self::CreateClaim(_) => format!("claim {claim} is created again"),
            Self::AwaitBinding => format!("waiting until claim {claim} is Bound"),
            Self::RestorePolicy(policy) if pv.link.is_some() => format!(
                "it is Bound to claim {claim}; its policy is {policy} again; pods start after: kubectl local-volume consent {} --accept",
                pv.name
            ),
            Self::RestorePolicy(policy) => {
                format!("it is Bound to claim {claim}; its policy is {policy} again")
            }
            Self::Done => format!("it is Bound to claim {claim}"),
        }
    }
}

async fn take(cluster: &Cluster, pv: &PvView, step: &Step) -> Result<(), ApiError> {
    let body = match step {
        Step::Pause => json!({ "metadata": { "annotations": { ANNOTATION_PAUSED: "true" } } }),
        Step::Keep => policy_patch("Retain", &json!(pv.policy)),
        // The volume controller binds it only to a claim of this name.
        Step::Reserve => {
            json!({ "spec": { "claimRef": { "uid": null, "resourceVersion": null } } })
        }
        Step::RestorePolicy(former) => policy_patch(former, &Value::Null),
        Step::CreateClaim(claim) => {
            let manifest = cluster.pv_manifest(&pv.name).await?;
            return cluster.create_claim(&claim_for(&manifest, claim)).await;
        }
        Step::AwaitPods(_) | Step::AwaitBinding | Step::Done => return Ok(()),
    };
    cluster.merge_pv(&pv.reference(), body).await.map(drop)
}

/// A claim that only this PV satisfies.
fn claim_for(pv: &Value, claim: &ClaimRef) -> Value {
    let spec = &pv["spec"];
    json!({
        "metadata": { "name": claim.name, "namespace": claim.namespace },
        "spec": {
            "volumeName": pv["metadata"]["name"],
            "storageClassName": spec["storageClassName"],
            "volumeMode": spec["volumeMode"],
            "accessModes": spec["accessModes"],
            "resources": { "requests": { "storage": spec["capacity"]["storage"] } },
        },
    })
}
