//! `retire` and `replace`: take the disk of a PV, or those of a node, out of service.
//!
//! Each pass reads the state of every volume and takes its next step. So the command can be interrupted at any time, and
//! continues when it is run again. It touches no disk: an operator unmounts the volumes, and the provisioner cleans them.

mod step;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::api_server::cluster;
use super::ask::confirm;
use super::explain::cause;
use super::fleet::{self, Answer};
use super::progress::{NOT_FINISHED, Progress, taken};
use super::run::UsageError;
use super::status::show::text;
use super::volume::{Volume, policy_patch, pv, volumes};
use crate::args::{Replace, Retire, Steps};
use crate::cluster::{ApiError, Cluster, PodView};
use crate::types::VolumeMode;
use crate::view::PvView;
use step::{Data, RESERVED_FOR, Step, Target, is_reserved};

/// Takes the disk of a PV, or all disks of a node, out of service, or offers them again.
///
/// # Errors
/// [`UsageError`] if the operator answers no; another error if a request failed, or after the timeout.
pub async fn retire(request: &Retire, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let Retire {
        pv, node, steps, ..
    } = request;
    let mut retirement = match pv {
        Some(pv) => Retirement::of_pv(steps, pv, out).await?,
        None => Retirement::of_node(steps, node.as_deref().unwrap_or_default(), out).await?,
    };
    if request.abort {
        retirement.abort().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let node = node.as_ref().filter(|_| !steps.dry_run);
    if let Some(node) = node {
        let cordoned = retirement.cluster.cordon(node).await;
        cordoned.with_context(|| format!("cordoning node {node}"))?;
        let undo = format!("cordoned; kubectl uncordon {node} undoes this");
        retirement.progress.show(&format!("node {node}"), &undo)?;
    }
    retirement.run().await?;
    if let Some(node) = node {
        writeln!(
            retirement.progress.out,
            "No volume of node {node} has a PV any more. To delete the node:\n  \
            $ kubectl drain {node} --ignore-daemonsets --delete-emptydir-data --force --timeout=5m\n  \
            $ kubectl delete node {node}"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes the disk of a PV out of service, and waits for the new one.
///
/// # Errors
/// As [`retire`].
pub async fn replace(request: &Replace, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let mut retirement = Retirement::of_pv(&request.steps, &request.pv, out).await?;
    retirement.run().await?;
    if !request.steps.dry_run {
        retirement.await_new_disk().await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The volumes that are taken out of service.
struct Retirement<'a> {
    cluster: Cluster,
    request: &'a Steps,
    node: String,
    /// The path and the PV of the one volume, unless all of the node are meant. A new PV of the path is not meant.
    only: Option<(String, PvView)>,
    data: Data,
    is_asked: bool,
    /// The UIDs of the claims whose deletion was confirmed.
    confirmed: BTreeSet<String>,
    /// The UIDs of the pods that were deleted.
    deleted: BTreeSet<String>,
    progress: Progress<'a>,
}

impl<'a> Retirement<'a> {
    async fn of_pv(
        request: &'a Steps,
        name: &str,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Self> {
        let mut this = Self::of_node(request, "", out).await?;
        let namespace = request.provisioners.namespace.as_deref();
        let volume = Volume::find(&this.cluster, namespace, name).await?;
        this.progress.line(&volume.heading())?;
        let path = text(&volume.report, "path").to_owned();
        let pv = volume.pv.with_context(|| format!("{name} has no PV"))?;
        Ok(Self {
            node: volume.node,
            only: Some((path, pv)),
            data: Data::Kept,
            ..this
        })
    }

    async fn of_node(
        request: &'a Steps,
        node: &str,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Self> {
        Ok(Self {
            cluster: cluster(&request.provisioners.api_server).await?,
            request,
            node: node.to_owned(),
            only: None,
            data: Data::Cleaned,
            is_asked: false,
            confirmed: BTreeSet::new(),
            deleted: BTreeSet::new(),
            progress: Progress::new(out, request.timeout),
        })
    }

    /// Repeats passes until no volume has a PV.
    async fn run(&mut self) -> Result<()> {
        loop {
            let targets = self.targets().await?;
            self.ask(&targets).await?;
            for target in &targets {
                let (name, step) = (&target.pv.name, target.step(self.data));
                ensure!(
                    step != Step::AwaitDeletion || self.data == Data::Cleaned || target.is_kept(),
                    "PV {name} is being deleted, so its volume is cleaned and offered again: run the command for its next PV"
                );
                self.progress.show(name, &target.said(step, &self.node))?;
                if !self.request.dry_run {
                    taken(name, self.take(step, target).await)?;
                }
            }
            if targets.is_empty() || self.request.dry_run {
                return Ok(());
            }
            self.progress.wait(NOT_FINISHED).await?;
        }
    }

    /// The volumes that still have a PV.
    async fn targets(&mut self) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for report in self.reports().await? {
            let Some(name) = report["pv"].as_str() else {
                continue;
            };
            let pv = pv(&self.cluster, name).await?;
            let is_meant = |pv: &PvView| self.only.as_ref().is_none_or(|it| it.1.uid == pv.uid);
            // The report may be older than the deletion.
            if let Some(pv) = pv.filter(is_meant) {
                targets.push(self.target(report, pv).await?);
            }
        }
        Ok(targets)
    }

    async fn target(&self, report: Value, pv: PvView) -> Result<Target> {
        let (mut claim, mut pods) = (None, Vec::new());
        if let Some(of) = pv.claim.as_ref().filter(|it| it.uid.is_some()) {
            claim = self.cluster.claim(of).await?;
            claim = claim.filter(|it| of.uid.as_ref() == Some(&it.uid));
            let uses = |pod: &PodView| {
                !pod.terminal && pod.node == self.node && pod.claims.contains(&of.name)
            };
            let all = ListParams::default();
            pods = self.cluster.pods(Some(&of.namespace), all, uses).await?;
        }
        Ok(Target {
            report,
            pv,
            claim,
            pods,
        })
    }

    /// The reports of the volumes, as soon as the provisioner answers.
    async fn reports(&mut self) -> Result<Vec<Value>> {
        let (namespace, node) = (&self.request.provisioners.namespace, &self.node);
        let answers = loop {
            let answers = fleet::ask_all(&self.cluster, namespace.as_deref(), Some(node)).await?;
            let Some(error) = answers.iter().find_map(Answer::error) else {
                break answers;
            };
            self.progress.show(&format!("node {node}"), error)?;
            self.progress.wait(NOT_FINISHED).await?;
        };
        let is_meant = |report: &Value| {
            let only = self.only.as_ref();
            only.is_none_or(|(path, _)| text(report, "path") == path)
                && text(report, "state") != "Foreign"
        };
        let reports = volumes(&answers).map(|it| it.report);
        Ok(reports.filter(is_meant).collect())
    }

    /// Asks before claims are deleted, once for each.
    async fn ask(&mut self, targets: &[Target]) -> Result<()> {
        let mut claims = Vec::new();
        for target in targets {
            let claim = target.to_release(self.data);
            if let Some((uid, claim)) = claim.filter(|(uid, _)| !self.confirmed.contains(uid)) {
                let (pv, pods) = (&target.pv.name, target.pod_names());
                let pods = pods.unwrap_or_else(|| "none".into());
                self.progress
                    .line(&format!("{pv}: {claim}; pods: {pods}"))?;
                claims.push(uid);
            }
        }
        // `--yes` is given for the claims of the first pass.
        let is_late = !claims.is_empty() && self.request.yes && self.is_asked;
        ensure!(
            !is_late,
            "a claim was bound to a volume meanwhile; nothing was deleted since; run the command again"
        );
        self.is_asked = true;
        if !claims.is_empty() && !self.request.yes && !self.request.dry_run {
            let count = claims.len().to_string();
            let question = format!(
                "The deletion of claims and pods cannot be undone. To go on, type the number of claims, {count}: "
            );
            let otherwise = "that is another answer; nothing was deleted";
            confirm(self.progress.out, question, &count, otherwise).await?;
        }
        self.confirmed.extend(claims);
        Ok(())
    }

    async fn take(&mut self, step: Step, target: &Target) -> Result<(), ApiError> {
        match step {
            Step::Withhold => self.withhold(&target.pv).await,
            Step::Release => self.release(target).await,
            Step::Delete => self
                .cluster
                .delete_pv(&target.pv.reference())
                .await
                .map(drop),
            Step::AwaitCleaning | Step::AwaitUnmount | Step::AwaitDeletion => Ok(()),
        }
    }

    /// Sets the policy Retain, and reserves a volume that no claim is bound to.
    async fn withhold(&self, pv: &PvView) -> Result<(), ApiError> {
        let former = pv
            .retired
            .as_ref()
            .map_or_else(|| json!(pv.policy), |it| json!(it));
        let mut body = policy_patch("Retain", &former);
        if pv.claim.as_ref().is_none_or(|claim| claim.uid.is_none()) {
            let (namespace, name) = RESERVED_FOR;
            body["spec"]["claimRef"] = json!({ "namespace": namespace, "name": name });
        }
        self.cluster.merge_pv(&pv.reference(), body).await.map(drop)
    }

    /// Deletes the claim, if that was confirmed, and the pods that use it.
    async fn release(&mut self, target: &Target) -> Result<(), ApiError> {
        let is_confirmed = |uid: &String| self.confirmed.contains(uid);
        let claim = target.pv.claim.as_ref();
        let Some(of) = claim.filter(|it| it.uid.as_ref().is_some_and(is_confirmed)) else {
            return Ok(());
        };
        if let Some(claim) = target.claim.as_ref().filter(|claim| !claim.deleting) {
            self.cluster.delete_claim(of, claim).await?;
        }
        for pod in &target.pods {
            if self.deleted.insert(pod.uid.clone()) {
                self.cluster.delete_pod(pod).await?;
            }
        }
        Ok(())
    }

    /// Restores the policies, and offers the volumes that were reserved.
    async fn abort(&mut self) -> Result<()> {
        let mut has_any = false;
        for Target { pv, .. } in self.targets().await? {
            let Some(policy) = pv.retired.as_ref().filter(|_| !pv.deleting) else {
                continue;
            };
            let mut body = policy_patch(policy, &Value::Null);
            if is_reserved(pv.claim.as_ref()) {
                body["spec"]["claimRef"] = Value::Null;
            }
            let merged = self.cluster.merge_pv(&pv.reference(), body).await;
            merged.with_context(|| format!("changing PV {}", pv.name))?;
            let what = format!("withheld no longer; its policy is {policy}");
            self.progress.show(&pv.name, &what)?;
            has_any = true;
        }
        let text = "no PV is withheld that still exists; nothing was changed";
        ensure!(has_any, UsageError(text.into()));
        Ok(())
    }

    /// Says what to do with the new disk, and waits until it is offered.
    async fn await_new_disk(&mut self) -> Result<()> {
        let Some((path, pv)) = self.only.clone() else {
            return Ok(());
        };
        let node = &self.node;
        let commands = match pv.mode {
            VolumeMode::Filesystem => {
                format!("mkfs.ext4 DISK, mount DISK {path}, and a line in /etc/fstab with its UUID")
            }
            VolumeMode::Block => format!("ln -s DISK {path}"),
        };
        let place = format!("{node}:{path}");
        let mut what =
            format!("the old disk can be removed; put in the new one; on node {node}: {commands}");
        loop {
            self.progress.show(&place, &what)?;
            if let Some(report) = self.reports().await?.first() {
                let reason = text(report, "reason");
                match text(report, "state") {
                    "Available" => {
                        let pv = text(report, "pv");
                        return self.progress.show(&place, &format!("PV {pv} is Available"));
                    }
                    "Skipped" if reason != "NotMounted" => {
                        what = format!("not offered yet: {}", cause(report));
                    }
                    _ => {}
                }
            }
            self.progress.wait(NOT_FINISHED).await?;
        }
    }
}
