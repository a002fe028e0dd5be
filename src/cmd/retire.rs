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
use crate::cluster::{ApiError, Cluster};
use crate::names::{LABEL_HOSTNAME, nodes_of_provisioner};
use crate::types::VolumeMode;
use crate::view::{Phase, PvView};
use step::{Data, RESERVED_FOR, Step, Target, is_reserved};

/// Takes the disk of a PV, or all disks of a node, out of service, or offers them again.
///
/// # Errors
/// [`UsageError`] if the operator answers no; another error if a request failed, or after the timeout.
pub async fn retire(request: &Retire, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let Retire { pv, node, steps, .. } = request;
    let mut retirement = match pv {
        Some(pv) => Retirement::of_pv(steps, pv, out).await?,
        None => Retirement::of_node(steps, node.as_deref().unwrap_or_default(), out).await?,
    };
    if let Some(node) = node {
        let found =
            retirement.cluster.node(node).await.with_context(|| format!("reading node {node}"))?;
        let label = found.labels.unwrap_or_default().remove(LABEL_HOSTNAME);
        retirement.hostname =
            label.with_context(|| format!("node {node} has no label {LABEL_HOSTNAME}"))?;
    }
    if request.abort {
        retirement.abort().await?;
        if let Some(node) = node {
            let text = format!("Pods start on node {node} again after: kubectl uncordon {node}");
            retirement.progress.line(&text)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    retirement.to_cordon = node.is_some();
    retirement.run().await?;
    if let Some(node) = node.as_ref().filter(|_| !steps.dry_run) {
        writeln!(
            retirement.progress.out,
            "No volume of node {node} has a PV any more. Those with the policy Retain keep their data. To delete the node:\n  \
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
    /// The hostname label of the node.
    hostname: String,
    /// Whether the node leaves the cluster, and is not cordoned yet.
    to_cordon: bool,
    /// The UIDs of the claims and pods whose deletion was confirmed, and what was shown of each claim.
    confirmed: BTreeSet<(String, String)>,
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
        Ok(Self { node: volume.node, only: Some((path, pv)), data: Data::Kept, ..this })
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
            hostname: String::new(),
            to_cordon: false,
            confirmed: BTreeSet::new(),
            deleted: BTreeSet::new(),
            progress: Progress::new(out, request.timeout),
        })
    }

    /// Repeats passes until no volume has a PV.
    async fn run(&mut self) -> Result<()> {
        loop {
            let (targets, is_complete) = self.targets().await?;
            // The answer may come hours later.
            if self.ask(&targets).await? {
                continue;
            }
            self.cordon().await?;
            for target in &targets {
                let (name, step) = (&target.pv.name, target.step(self.data));
                let is_cleaned = step == Step::AwaitDeletion && !target.is_kept();
                ensure!(
                    !is_cleaned || self.data == Data::Cleaned,
                    "PV {name} is being deleted, so its volume is cleaned and offered again; then run the command for its new PV"
                );
                let what = target.said(step, &self.node);
                let next = if self.request.dry_run { "next: " } else { "" };
                self.progress.show(name, &format!("{next}{what}"))?;
                if !self.request.dry_run {
                    taken(name, self.take(step, target).await)?;
                }
            }
            if (targets.is_empty() && is_complete) || self.request.dry_run {
                return Ok(());
            }
            self.progress.wait(NOT_FINISHED).await?;
        }
    }

    /// Cordons the node that leaves.
    async fn cordon(&mut self) -> Result<()> {
        let node = &self.node;
        if self.request.dry_run || !std::mem::take(&mut self.to_cordon) {
            return Ok(());
        }
        let cordoned = self.cluster.cordon(node).await;
        cordoned.with_context(|| format!("cordoning node {node}"))?;
        let undo = format!("cordoned; kubectl uncordon {node} undoes this");
        self.progress.show(&format!("node {node}"), &undo)
    }

    /// The PVs that are left. The API decides which there are, since a provisioner that has just started reports no
    /// volume.
    async fn pvs(&self) -> Result<Vec<PvView>> {
        if let Some((_, only)) = &self.only {
            let pv = pv(&self.cluster, &only.name).await?;
            return Ok(pv.filter(|pv| pv.uid == only.uid).into_iter().collect());
        }
        let label = format!("{LABEL_HOSTNAME}={}", self.hostname);
        let params = ListParams::default().labels(&label);
        let is_its = |pv: &PvView| {
            let by = pv.provisioned_by.as_deref().unwrap_or_default();
            nodes_of_provisioner(by).contains(&&*self.node)
        };
        let pvs = self.cluster.pvs_in_pages(params, is_its).await;
        pvs.context("listing the PVs of the node")
    }

    /// The PVs that are left with their reports, and whether no other PV follows.
    async fn targets(&mut self) -> Result<(Vec<Target>, bool)> {
        let reports = self.reports().await?;
        // A volume that was cleaned gets a PV again.
        let is_final =
            |report: &Value| report["pv"].is_null() && text(report, "reason") != "CleanupRunning";
        let is_complete = self.only.is_some() || reports.iter().all(is_final);
        let mut targets = Vec::new();
        for pv in self.pvs().await? {
            let report =
                reports.iter().find(|it| text(it, "pv") == pv.name).cloned().unwrap_or_default();
            if text(&report, "state") == "Foreign" {
                let what = "another installation manages it; it is left alone";
                self.progress.show(&pv.name, what)?;
                continue;
            }
            targets.push(self.target(report, pv).await?);
        }
        Ok((targets, is_complete))
    }

    async fn target(&self, report: Value, pv: PvView) -> Result<Target> {
        let (mut claim, mut pods) = (None, Vec::new());
        if let Some(of) = pv.claim.as_ref().filter(|it| it.uid.is_some()) {
            claim = self.cluster.claim(of).await?;
            claim = claim.filter(|it| of.uid.as_ref() == Some(&it.uid));
            pods = self.cluster.pods_of_claim(of).await?;
            pods.retain(|pod| pod.node == self.node);
        }
        Ok(Target { report, pv, claim, pods })
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
        Ok(volumes(&answers).map(|it| it.report).collect())
    }

    /// Asks before claims and pods are deleted, once for each, and returns whether it has.
    async fn ask(&mut self, targets: &[Target]) -> Result<bool> {
        let (mut claims, mut shown) = (0, Vec::new());
        for target in targets {
            let all = target.to_release(self.data);
            if all.iter().all(|it| self.confirmed.contains(it)) {
                continue;
            }
            let (pv, (_, fate)) = (&target.pv.name, &all[0]);
            let pods = target.pod_names().unwrap_or_else(|| "none".into());
            self.progress.line(&format!("{pv}: {fate}; pods: {pods}"))?;
            claims += 1;
            shown.extend(all);
        }
        if claims == 0 || self.request.dry_run {
            return Ok(false);
        }
        // `--yes` is given for the claims of the first pass.
        ensure!(
            !self.request.yes || self.confirmed.is_empty(),
            "a claim was bound or a pod started meanwhile, as shown above; it was not deleted; run the command again to decide"
        );
        if !self.request.yes {
            let count = claims.to_string();
            let question = format!(
                "The deletion of claims and pods cannot be undone. To go on, type the number of claims, {count}: "
            );
            let otherwise = "that is another answer; these claims were not deleted";
            confirm(self.progress.out, question, &count, otherwise).await?;
        }
        self.confirmed.extend(shown);
        Ok(!self.request.yes)
    }

    async fn take(&mut self, step: Step, target: &Target) -> Result<(), ApiError> {
        match step {
            Step::Withhold => self.withhold(&target.pv).await,
            Step::Release => self.release(target).await,
            Step::Delete => self.cluster.delete_pv(&target.pv.reference()).await.map(drop),
            Step::AwaitCleaning | Step::AwaitUnmount | Step::AwaitDeletion => Ok(()),
        }
    }

    /// Sets the policy Retain, and reserves a volume that no claim is bound to.
    async fn withhold(&self, pv: &PvView) -> Result<(), ApiError> {
        let former = pv.retired.as_ref().map_or_else(|| json!(pv.policy), |it| json!(it));
        let mut body = policy_patch("Retain", &former);
        if pv.claim.is_none() {
            let (namespace, name) = RESERVED_FOR;
            body["spec"]["claimRef"] = json!({ "namespace": namespace, "name": name });
        }
        self.cluster.merge_pv(&pv.reference(), body).await.map(drop)
    }

    /// Deletes the claim and the pods that use it. All were confirmed.
    async fn release(&mut self, target: &Target) -> Result<(), ApiError> {
        let all = target.to_release(self.data);
        let is_confirmed = all.iter().all(|it| self.confirmed.contains(it));
        let Some(of) = target.pv.claim.as_ref().filter(|_| is_confirmed) else {
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
        for pv in self.pvs().await? {
            let Some(policy) = pv.retired.as_ref().filter(|_| !pv.deleting) else {
                continue;
            };
            if pv.phase != Phase::Bound && !is_reserved(pv.claim.as_ref()) {
                let what = "its claim is deleted, so nothing was changed: rebind returns its data to a claim; the policy Delete wipes it";
                self.progress.show(&pv.name, what)?;
                continue;
            }
            let mut body = policy_patch(policy, &Value::Null);
            if is_reserved(pv.claim.as_ref()) {
                body["spec"]["claimRef"] = Value::Null;
            }
            let merged = self.cluster.merge_pv(&pv.reference(), body).await;
            merged.with_context(|| format!("changing PV {}", pv.name))?;
            let what = format!("offered again, policy {policy}");
            self.progress.show(&pv.name, &what)?;
            has_any = true;
        }
        let text = "no PV can be offered again; nothing was changed";
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
        let late = format!(
            "PV {} was deleted, and the new disk is not offered yet; see explain {place}",
            pv.name
        );
        loop {
            self.progress.show(&place, &what)?;
            let reports = self.reports().await?;
            if let Some(report) = reports.iter().find(|it| text(it, "path") == path) {
                let (state, reason) = (text(report, "state"), text(report, "reason"));
                match state {
                    // A claim may have waited for it.
                    "Available" | "Bound" | "Unlinked" => {
                        let pv = text(report, "pv");
                        return self.progress.show(&place, &format!("PV {pv} is {state}"));
                    }
                    "Skipped" if reason != "NotMounted" => {
                        what = format!("not offered yet: {}", cause(report));
                    }
                    _ => {}
                }
            }
            self.progress.wait(&late).await?;
        }
    }
}
