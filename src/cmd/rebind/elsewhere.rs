//! `rebind --to`: gives a claim its PV again after the disk was moved to another node or path, where the PV names a path.
//!
//! The path and the node affinity of a PV cannot be changed. So the PV is deleted and created again with the same name and
//! claim, and Kubernetes binds it again. The mark on the disk names the PV, which proves the disk. Between the two, the Node
//! has the manifest in an annotation, which no tenant can write. Each pass decides by the present state, so the command
//! continues when it is run again.

mod step;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::pods;
use crate::args::Rebind;
use crate::cluster::{ApiError, Cluster};
use crate::cmd::ask::{OTHER_ANSWER, confirm};
use crate::cmd::fleet;
use crate::cmd::move_pv::places;
use crate::cmd::progress::{NOT_FINISHED, Progress, taken};
use crate::cmd::status::show::text;
use crate::cmd::volume::{policy_patch, pv};
use crate::names::{ANNOTATION_MOVED_FROM, ANNOTATION_RETIRED, FINALIZER, REBIND_PREFIX};
use crate::types::HostPath;
use crate::view::PvView;
use step::{Present, Step};

/// The finalizers that keep the data of a PV, or a PV that is bound. Here both stay: the policy is Retain.
const PROTECTION: [&str; 2] = [FINALIZER, "kubernetes.io/pv-protection"];

/// Takes the steps, after a question.
pub(super) async fn command(
    request: &Rebind,
    node: &str,
    cluster: &Cluster,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let mut progress = Progress::new(out, request.timeout);
    let mut is_confirmed = request.yes || request.dry_run;
    let mut is_shown = false;
    loop {
        let present = Present::read(cluster, request, node).await?;
        let step = present.step(node)?;
        let is_begun = matches!(step, Step::Await(_) | Step::Finish | Step::Done);
        if !is_shown && !is_begun {
            for line in present.facts() {
                progress.line(&line)?;
            }
            is_shown = true;
        }
        if !is_confirmed && !is_begun {
            let question = format!(
                "If another node still uses the disk, its data is destroyed. If only node {node} has the disk, type {node}: "
            );
            confirm(progress.out, question, node, OTHER_ANSWER).await?;
            is_confirmed = true;
            // The answer may come hours later.
            continue;
        }
        progress.show(&present.pv.name, &present.said(&step, node))?;
        if request.dry_run || step == Step::Done {
            return Ok(ExitCode::SUCCESS);
        }
        taken(&present.pv.name, present.take(cluster, step).await)?;
        progress.wait(NOT_FINISHED).await?;
    }
}

impl Present {
    async fn read(cluster: &Cluster, request: &Rebind, node: &str) -> Result<Self> {
        let name = request.pv.rsplit('/').next().unwrap_or_default();
        let found = cluster.node(node).await.with_context(|| format!("reading node {node}"))?;
        let kept = kept_by(&found, name);
        let answers =
            fleet::ask_all(cluster, request.provisioners.namespace.as_deref(), None).await?;
        let manifest = if pv(cluster, name).await?.is_some() {
            let manifest = cluster.pv_manifest(name).await;
            manifest.with_context(|| format!("reading PV {name}"))?
        } else {
            let mut manifest = kept.clone();
            // The disk may have been put back before the PV was created for the other node.
            for other in answers.iter().map(|it| &it.node) {
                if manifest.is_none() {
                    let other = cluster.node(other).await.context("reading a node")?;
                    manifest = kept_by(&other, name);
                }
            }
            let missing =
                || format!("there is no PersistentVolume {name}, and no node keeps its manifest");
            serde_json::from_str(&manifest.with_context(missing)?)?
        };
        let pv = PvView::from_api(&serde_json::from_value(manifest.clone())?);
        let Some(of) = pv.claim.clone().filter(|it| it.uid.is_some()) else {
            bail!("PV {name} is bound to no claim; nothing was changed");
        };
        let claim = cluster.claim(&of).await;
        Ok(Self {
            claim: claim.with_context(|| format!("reading claim {of}"))?,
            pods: pods(cluster, &of).await?,
            answers,
            node: found,
            kept,
            manifest,
            pv,
            of,
        })
    }

    /// What the operator decides about.
    fn facts(&self) -> Vec<String> {
        let (pv, of) = (&self.pv, &self.of);
        let path = pv.path().map_or("(unknown)", HostPath::as_str);
        let pods = match &self.pods[..] {
            [] => "none".to_owned(),
            pods => pods.join(", "),
        };
        let node = pv.hostnames.join(", ");
        let heading =
            format!("{}: claim {of}, pods: {pods}; its PV names {path} of node {node}", pv.name);
        let places = places(&pv.name, &self.answers, |report| self.is_marked(report));
        std::iter::once(heading).chain(places).collect()
    }

    fn said(&self, step: &Step, node: &str) -> String {
        let (pv, of) = (&self.pv, &self.of);
        match step {
            Step::AwaitPods => format!(
                "delete the pods of its claim to go on (with --force, if their node is off): {}",
                self.pods.join(", ")
            ),
            Step::Keep => "its data is kept: the policy is set to Retain".into(),
            Step::Save(_) => format!("node {node} keeps the new manifest of the PV"),
            Step::Delete(_) if pv.deleting => {
                format!("waiting until its finalizers are removed: {}", pv.finalizers.join(", "))
            }
            Step::Delete(_) => "the PV is deleted, to create it again".into(),
            Step::Create(manifest) => {
                let path = text(&manifest["spec"]["local"], "path");
                format!("the PV is created again for {node}:{path}")
            }
            Step::Await(why) => format!("waiting for the provisioner of node {node}: {why}"),
            Step::Finish => "the disk is verified; the policy is restored".into(),
            Step::Done => format!("claim {of} is Bound to its disk on node {node}"),
        }
    }

    async fn take(&self, cluster: &Cluster, step: Step) -> Result<(), ApiError> {
        let (pv, seen) = (&self.pv, self.pv.reference());
        match step {
            Step::AwaitPods | Step::Await(_) | Step::Done => Ok(()),
            Step::Keep => {
                let body = policy_patch("Retain", &json!(pv.policy));
                cluster.merge_pv(&seen, body).await.map(drop)
            }
            Step::Save(manifest) => self.keep(cluster, &json!(manifest)).await,
            Step::Delete(manifest) => {
                if !pv.deleting {
                    // What cannot be created again is not deleted. The API server refuses the name last.
                    match cluster.create_pv(&manifest).await {
                        Err(ApiError::Conflict) => {}
                        created => return created.map(drop),
                    }
                }
                let Some(mut pv) = cluster.delete_pv(&seen).await? else {
                    return Ok(());
                };
                // Kubernetes removes its own only when the claim is deleted.
                pv.finalizers.retain(|it| !PROTECTION.contains(&it.as_str()));
                cluster.remove_finalizer(&pv.reference(), &pv.finalizers).await
            }
            Step::Create(manifest) => cluster.create_pv(&manifest).await.map(drop),
            Step::Finish => {
                let annotations = json!({ ANNOTATION_RETIRED: null, ANNOTATION_MOVED_FROM: null });
                let mut body = json!({ "metadata": { "annotations": annotations } });
                if let Some(former) = &pv.retired {
                    body["spec"] = json!({ "persistentVolumeReclaimPolicy": former });
                }
                cluster.merge_pv(&seen, body).await?;
                self.keep(cluster, &Value::Null).await
            }
        }
    }

    /// Sets or removes the manifest that the Node keeps.
    async fn keep(&self, cluster: &Cluster, manifest: &Value) -> Result<(), ApiError> {
        let annotations = json!({ format!("{REBIND_PREFIX}{}", self.pv.name): manifest });
        let node = self.node.name.as_deref().unwrap_or_default();
        cluster.annotate_node(node, &annotations).await
    }
}

/// The manifest that a Node keeps of a PV.
fn kept_by(node: &ObjectMeta, pv: &str) -> Option<String> {
    node.annotations.as_ref()?.get(&format!("{REBIND_PREFIX}{pv}")).cloned()
}
