//! `rebind --to`: gives a claim its PV again after the disk was moved to another node, where the PV names a path.
//!
//! The path and the node affinity of a PV cannot be changed. So the PV is deleted and created again with the same name and
//! claim, and Kubernetes binds it again. Between the two, the claim has its manifest in an annotation, so the command
//! continues when it is run again. The mark on the disk names the PV: the provisioner of the other node compares it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::pods;
use crate::args::Rebind;
use crate::cluster::{ApiError, Cluster};
use crate::cmd::ask::{OTHER_ANSWER, confirm};
use crate::cmd::explain::cause;
use crate::cmd::fleet::{self, Answer};
use crate::cmd::progress::{NOT_FINISHED, Progress, taken};
use crate::cmd::status::show::text;
use crate::cmd::volume::{Volume, policy_patch, volumes};
use crate::names::{
    ANNOTATION_CONSENT, ANNOTATION_IDENTITY, ANNOTATION_MOVED_FROM, ANNOTATION_PAUSED,
    ANNOTATION_PROVISIONED_BY, ANNOTATION_REBIND, ANNOTATION_RETIRED, ANNOTATION_STATE_DIRECTORY,
    FINALIZER, LABEL_HOSTNAME, provisioner_name,
};
use crate::view::{ClaimRef, PvView, ReclaimPolicy};

/// The finalizers of a PV that keep its data, or its claim, from being lost. Here neither is.
const PROTECTION: [&str; 2] = [FINALIZER, "kubernetes.io/pv-protection"];

/// A step, for an operator.
enum Step {
    /// Pods of the claim have to end.
    AwaitPods(Vec<String>),
    /// Set the policy Retain.
    Keep(PvView),
    /// Keep the new manifest in the claim.
    Save(ClaimRef, String),
    Delete(PvView),
    Create(Value),
    Await(String),
    /// Restore the policy of the PV, and remove the annotations.
    Finish(PvView, ClaimRef),
    Done,
}

impl Step {
    fn said(&self, node: &str) -> String {
        match self {
            Self::AwaitPods(pods) => {
                format!("delete the pods of its claim to go on: {}", pods.join(", "))
            }
            Self::Keep(_) => "its data is kept: the policy is set to Retain".into(),
            Self::Save(claim, _) => format!("claim {claim} keeps the new manifest of the PV"),
            Self::Delete(_) => "the PV is deleted, to create it again".into(),
            Self::Create(_) => format!("the PV is created again for node {node}"),
            Self::Await(why) => format!("waiting for the provisioner of node {node}: {why}"),
            Self::Finish(..) => "the disk is verified; the policy is restored".into(),
            Self::Done => format!("its claim is Bound to the disk on node {node}"),
        }
    }
}

/// Takes the steps, after a question.
pub(super) async fn command(
    request: &Rebind,
    node: &str,
    cluster: &Cluster,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let mut progress = Progress::new(out, request.timeout);
    let mut is_confirmed = request.yes;
    loop {
        let step = step(cluster, request, node).await?;
        progress.show(&request.pv, &step.said(node))?;
        if request.dry_run || matches!(step, Step::Done) {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_confirmed {
            let question = format!(
                "If another node still uses the disk, its data is destroyed. If only node {node} has the disk, type {node}: "
            );
            confirm(progress.out, question, node, OTHER_ANSWER).await?;
            is_confirmed = true;
        }
        taken(&request.pv, take(cluster, &step).await)?;
        progress.wait(NOT_FINISHED).await?;
    }
}

/// Decides by the present state.
async fn step(cluster: &Cluster, request: &Rebind, node: &str) -> Result<Step> {
    let name = &request.pv;
    let Some(pv) = cluster.pv(name).await? else {
        return Ok(Step::Create(saved(cluster, name).await?));
    };
    let Some(of) = pv.claim.clone().filter(|it| it.uid.is_some()) else {
        bail!("PV {name} is bound to no claim; nothing was changed");
    };
    ensure!(
        pv.link.is_none(),
        "PV {name} is bound to its disk and moves with it: kubectl local-volume move {name} --to {node}"
    );
    let namespace = request.provisioners.namespace.as_deref();
    let answers = fleet::ask_all(cluster, namespace, Some(node)).await?;
    let marked = volumes(&answers).find(|it| {
        text(&it.report, "state") == "Skipped" && text(&it.report["mark"], "pvUid") == pv.uid
    });
    let claim = cluster.claim(&of).await?;
    let kept = claim.and_then(|it| it.rebind);
    let Some(marked) = marked else {
        return arrived(&answers, pv, of, kept.is_some());
    };
    ensure!(
        marked.class == pv.class,
        "the disk is in the directory of class {}, not of {}: mount it there",
        marked.class,
        pv.class
    );
    let pods = pods(cluster, &of).await?;
    if !pods.is_empty() {
        return Ok(Step::AwaitPods(pods));
    }
    if pv.policy != ReclaimPolicy::Retain {
        return Ok(Step::Keep(pv));
    }
    let target = cluster.node(node).await;
    let target = target.with_context(|| format!("reading node {node}"))?;
    let manifest = cluster.pv_manifest(name).await?;
    let manifest = elsewhere(manifest, &pv, &marked.report, &target)?.to_string();
    // Another node or disk was meant before.
    Ok(match kept == Some(manifest.clone()) {
        true => Step::Delete(pv),
        false => Step::Save(of, manifest),
    })
}

/// The manifest that a claim keeps for a PV that is deleted.
async fn saved(cluster: &Cluster, name: &str) -> Result<Value> {
    let claims = cluster.claims_of(name).await?.into_iter();
    let mut kept = claims.filter_map(|(claim, view)| Some((claim, view.rebind?)));
    let (claim, text) = kept.next().ok_or_else(|| {
        anyhow!("there is no PersistentVolume {name}, and no claim keeps its manifest")
    })?;
    let manifest = serde_json::from_str(&text);
    manifest.with_context(|| {
        format!("the annotation {ANNOTATION_REBIND} of claim {claim} is not a manifest")
    })
}

/// The PV with another node and path.
///
/// # Errors
/// When the Node lacks its hostname label.
fn elsewhere(
    mut pv: Value,
    before: &PvView,
    report: &Value,
    node: &ObjectMeta,
) -> Result<Value> {
    let (name, uid) = (node.name.as_deref(), node.uid.as_deref());
    let name = name.unwrap_or_default();
    let by = provisioner_name(name, uid.unwrap_or_default(), false);
    let hostname = node.labels.as_ref().and_then(|it| it.get(LABEL_HOSTNAME));
    let hostname = hostname.ok_or_else(|| anyhow!("node {name} has no label {LABEL_HOSTNAME}"))?;
    let metadata = &pv["metadata"];
    let mut labels = metadata["labels"].clone();
    labels[LABEL_HOSTNAME] = json!(hostname);
    let mut annotations = metadata["annotations"].clone();
    let token = before.offer.as_ref().unwrap_or(&before.uid);
    annotations[ANNOTATION_MOVED_FROM] = json!(format!("{}:{token}", before.uid));
    annotations[ANNOTATION_PROVISIONED_BY] = json!(by);
    annotations[ANNOTATION_IDENTITY] = report["identity"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        for key in [
            ANNOTATION_CONSENT,
            ANNOTATION_PAUSED,
            ANNOTATION_STATE_DIRECTORY,
        ] {
            annotations.remove(key);
        }
    }
    pv["metadata"] = json!({ "name": before.name, "labels": labels, "annotations": annotations });
    pv["spec"]["local"]["path"] = report["path"].clone();
    if let Some(claim) = pv["spec"]["claimRef"].as_object_mut() {
        claim.remove("resourceVersion");
    }
    let terms = &mut pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    for term in terms.as_array_mut().into_iter().flatten() {
        for expression in term["matchExpressions"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if expression["key"] == LABEL_HOSTNAME {
                expression["values"] = json!([hostname]);
            }
        }
    }
    if let Some(pv) = pv.as_object_mut() {
        pv.remove("status");
    }
    Ok(pv)
}

/// The steps after the PV was created again.
fn arrived(answers: &[Answer], pv: PvView, claim: ClaimRef, is_kept: bool) -> Result<Step> {
    let is_changed = pv.moved_from.is_some() || is_kept;
    let volume = volumes(answers).find(|it| text(&it.report, "pv") == pv.name);
    let Some(Volume { report, .. }) = volume else {
        ensure!(
            is_changed,
            "no volume of the node has the mark of PV {} (UID {}): mount its disk in the directory of class {}",
            pv.name,
            pv.uid,
            pv.class
        );
        return Ok(Step::Await("it has not reported the PV yet".into()));
    };
    let is_verified =
        text(&report, "state") == "Bound" && text(&report["mark"], "pvUid") == pv.uid;
    Ok(match (is_verified, is_changed) {
        (true, false) => Step::Done,
        (true, true) => Step::Finish(pv, claim),
        (false, _) => Step::Await(cause(&report)),
    })
}

async fn take(cluster: &Cluster, step: &Step) -> Result<(), ApiError> {
    match step {
        Step::AwaitPods(_) | Step::Await(_) | Step::Done => {}
        Step::Keep(pv) => {
            let body = policy_patch("Retain", &json!(pv.policy));
            cluster.merge_pv(&pv.reference(), body).await?;
        }
        Step::Save(claim, manifest) => {
            let annotations = json!({ ANNOTATION_REBIND: manifest });
            cluster.annotate_claim(claim, &annotations).await?;
        }
        Step::Delete(pv) => {
            // Kubernetes protects a PV that is Bound.
            let deleted = cluster.delete_pv(&pv.reference()).await?;
            if let Some(pv) = deleted {
                let others = pv
                    .finalizers
                    .iter()
                    .filter(|it| !PROTECTION.contains(&&***it));
                let others: Vec<_> = others.cloned().collect();
                cluster.remove_finalizer(&pv.reference(), &others).await?;
            }
        }
        Step::Create(manifest) => {
            cluster.create_pv(manifest).await?;
        }
        Step::Finish(pv, claim) => {
            let mut body = json!({ "metadata": { "annotations": {
                ANNOTATION_RETIRED: null, ANNOTATION_MOVED_FROM: null,
            } } });
            if let Some(policy) = &pv.retired {
                body["spec"] = json!({ "persistentVolumeReclaimPolicy": policy });
            }
            cluster.merge_pv(&pv.reference(), body).await?;
            let annotations = json!({ ANNOTATION_REBIND: null });
            cluster.annotate_claim(claim, &annotations).await?;
        }
    }
    Ok(())
}
