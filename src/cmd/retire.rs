//! `retire` and `replace`: take the disk of a PV, or those of a node, out of service.
//!
//! Each pass reads the state of every volume and takes its next step. So the command can be interrupted at any time, and
//! continues when it is run again. It touches no disk: an operator unmounts the volumes, and the provisioner cleans them.

mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::api_server::cluster;
use super::ask::{confirm, ensure_terminal};
use super::fleet::{self, Answer};
use super::run::UsageError;
use super::status::show::text;
use super::volume::{Volume, pv, volumes};
use crate::args::{Replace, Retire, Steps};
use crate::cluster::{ApiError, Cluster, PodView};
use crate::log::printable;
use crate::names::ANNOTATION_RETIRED;
use crate::types::VolumeMode;
use crate::view::PvView;
use step::{Data, RESERVED_FOR, Step, Target, is_reserved};

const POLL_PERIOD: Duration = Duration::from_secs(1);

/// Takes the disk of a PV, or all disks of a node, out of service, or offers them again.
///
/// # Errors
/// [`UsageError`] if the operator answers no; another error if a request failed, or after the timeout.
pub async fn retire(request: &Retire, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let mut retirement = match (&request.pv, &request.node) {
        (Some(name), _) => Retirement::of_pv(&request.steps, name, out).await?,
        (None, node) => {
            let node = node.clone().unwrap_or_default();
            Retirement::of_node(&request.steps, node, out).await?
        }
    };
    if request.abort {
        retirement.abort().await?;
        return Ok(ExitCode::SUCCESS);
    }
    if request.node.is_some() && !request.steps.dry_run {
        retirement.cordon().await?;
    }
    retirement.run().await?;
    if let (Some(node), false) = (&request.node, request.steps.dry_run) {
        writeln!(
            out,
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
    let pv = retirement.pvs().await?.pop();
    retirement.run().await?;
    if !request.steps.dry_run {
        let mode = pv.map(|pv| pv.mode).unwrap_or_default();
        retirement.await_new_disk(mode).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The volumes that are taken out of service.
struct Retirement<'a> {
    cluster: Cluster,
    request: &'a Steps,
    node: String,
    /// The path and the UID of the one PV, unless all volumes of the node are meant. A new PV of the path is not meant.
    only: Option<(String, String)>,
    data: Data,
    deadline: Instant,
    /// The UIDs of the claims whose deletion was confirmed.
    confirmed: BTreeSet<String>,
    /// The UIDs of the pods that were deleted.
    deleted: BTreeSet<String>,
    /// The last line of each PV.
    shown: BTreeMap<String, String>,
    out: &'a mut (dyn Write + Send),
}

impl<'a> Retirement<'a> {
    async fn of_pv(
        request: &'a Steps,
        name: &str,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Self> {
        let cluster = cluster(&request.provisioners.api_server).await?;
        let namespace = request.provisioners.namespace.as_deref();
        let volume = Volume::find(&cluster, namespace, name).await?;
        writeln!(out, "{}", printable(&volume.heading()))?;
        let pv = volume.pv.with_context(|| format!("{name} has no PV"))?;
        let path = text(&volume.report, "path").to_owned();
        let this = Self::new(cluster, request, volume.node, out);
        Ok(Self {
            only: Some((path, pv.uid)),
            ..this
        })
    }

    async fn of_node(
        request: &'a Steps,
        node: String,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Self> {
        let cluster = cluster(&request.provisioners.api_server).await?;
        let this = Self::new(cluster, request, node, out);
        Ok(Self {
            data: Data::Cleaned,
            ..this
        })
    }

    fn new(
        cluster: Cluster,
        request: &'a Steps,
        node: String,
        out: &'a mut (dyn Write + Send),
    ) -> Self {
        Self {
            cluster,
            request,
            node,
            only: None,
            data: Data::Kept,
            deadline: Instant::now() + request.timeout,
            confirmed: BTreeSet::new(),
            deleted: BTreeSet::new(),
            shown: BTreeMap::new(),
            out,
        }
    }

    /// Repeats passes until no volume has a PV.
    async fn run(&mut self) -> Result<()> {
        loop {
            let targets = self.targets().await?;
            self.ask(&targets).await?;
            for target in &targets {
                let step = target.step(self.data);
                let said = target.said(step, &self.node);
                self.show(&target.pv.name, &said)?;
                if !self.request.dry_run {
                    self.take(step, target).await?;
                }
            }
            if targets.is_empty() || self.request.dry_run {
                return Ok(());
            }
            self.pause().await?;
        }
    }

    /// The volumes that still have a PV.
    async fn targets(&mut self) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for report in self.reports().await? {
            let Some(name) = report["pv"].as_str() else {
                continue;
            };
            // The report may be older than the deletion.
            let Some(pv) = pv(&self.cluster, name).await? else {
                continue;
            };
            let only = self.only.as_ref();
            if only.is_some_and(|(_, uid)| *uid != pv.uid) {
                continue;
            }
            targets.push(self.target(report, pv).await?);
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
        let namespace = self.request.provisioners.namespace.clone();
        let answers = loop {
            let node = Some(self.node.as_str());
            let answers = fleet::ask_all(&self.cluster, namespace.as_deref(), node).await?;
            let Some(error) = answers.iter().find_map(Answer::error) else {
                break answers;
            };
            let node = format!("node {}", self.node);
            self.show(&node, error)?;
            self.pause().await?;
        };
        let is_meant = |report: &&Value| {
            let only = self.only.as_ref();
            only.is_none_or(|(path, _)| text(report, "path") == path)
                && text(report, "state") != "Foreign"
        };
        let reports = volumes(&answers).map(|(_, _, report)| report);
        Ok(reports.filter(is_meant).cloned().collect())
    }

    async fn pvs(&mut self) -> Result<Vec<PvView>> {
        Ok(self.targets().await?.into_iter().map(|it| it.pv).collect())
    }

    /// Asks before claims are deleted, once for each.
    async fn ask(&mut self, targets: &[Target]) -> Result<()> {
        let claims = targets.iter().filter_map(|it| it.to_release(self.data));
        let claims: Vec<_> = claims
            .filter(|it| !self.confirmed.contains(&it.0))
            .collect();
        if claims.is_empty() {
            return Ok(());
        }
        for target in targets {
            let Some((_, claim)) = target.to_release(self.data) else {
                continue;
            };
            let pods: Vec<_> = target.pods.iter().map(|pod| pod.name.as_str()).collect();
            let pods = if pods.is_empty() {
                "none"
            } else {
                &pods.join(", ")
            };
            writeln!(
                self.out,
                "{}",
                printable(&format!("{}: {claim}; pods: {pods}", target.pv.name))
            )?;
        }
        if !self.request.yes && !self.request.dry_run {
            self.out.flush()?;
            ensure_terminal().map_err(|error| UsageError(error.to_string()))?;
            let expected = claims.len().to_string();
            let question = format!(
                "The deletion of claims and pods cannot be undone. To go on, type the number of claims, {expected}: "
            );
            confirm(question, expected.as_bytes(), "that is another answer")
                .await
                .map_err(|error| UsageError(format!("{error}; nothing was deleted")))?;
        }
        self.confirmed.extend(claims.into_iter().map(|it| it.0));
        Ok(())
    }

    /// Shows what a volume does or waits for, when it changes.
    fn show(&mut self, name: &str, said: &str) -> Result<()> {
        if self.shown.get(name).map(String::as_str) != Some(said) {
            writeln!(self.out, "{}", printable(&format!("{name}: {said}")))?;
            self.out.flush()?;
            self.shown.insert(name.to_owned(), said.to_owned());
        }
        Ok(())
    }

    async fn take(&mut self, step: Step, target: &Target) -> Result<()> {
        let pv = &target.pv;
        let done = match step {
            Step::Withhold => self.withhold(pv).await,
            Step::Release => self.release(target).await,
            Step::Delete => self.cluster.delete_pv(&pv.reference()).await.map(drop),
            Step::AwaitCleaning | Step::AwaitUnmount | Step::AwaitDeletion => return Ok(()),
        };
        match done {
            // The next pass decides by the new version.
            Err(error) if error.is_change() => Ok(()),
            done => done.with_context(|| {
                format!(
                    "{}: the step failed; run the command again to continue",
                    pv.name
                )
            }),
        }
    }

    /// Sets the policy Retain, and reserves a volume that no claim is bound to.
    async fn withhold(&self, pv: &PvView) -> Result<(), ApiError> {
        let policy = match &pv.retired {
            Some(policy) => json!(policy),
            None => json!(pv.policy),
        };
        let mut body = json!({
            "metadata": { "annotations": { ANNOTATION_RETIRED: policy } },
            "spec": { "persistentVolumeReclaimPolicy": "Retain" },
        });
        if pv.claim.as_ref().is_none_or(|claim| claim.uid.is_none()) {
            let (namespace, name) = RESERVED_FOR;
            body["spec"]["claimRef"] = json!({ "namespace": namespace, "name": name });
        }
        self.cluster.merge_pv(&pv.reference(), body).await.map(drop)
    }

    /// Deletes the claim, and the pods that use it.
    async fn release(&mut self, target: &Target) -> Result<(), ApiError> {
        let Some(of) = &target.pv.claim else {
            return Ok(());
        };
        if !of
            .uid
            .as_ref()
            .is_some_and(|uid| self.confirmed.contains(uid))
        {
            return Ok(());
        }
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

    async fn cordon(&mut self) -> Result<()> {
        let node = &self.node;
        let cordoned = self.cluster.cordon(node).await;
        cordoned.with_context(|| format!("cordoning node {node}"))?;
        let line = format!("node {node}: cordoned; kubectl uncordon {node} undoes this");
        Ok(writeln!(self.out, "{}", printable(&line))?)
    }

    /// Restores the policies, and offers the volumes that were reserved.
    async fn abort(&mut self) -> Result<()> {
        let mut pvs = self.pvs().await?;
        pvs.retain(|pv| pv.retired.is_some() && !pv.deleting);
        ensure!(
            !pvs.is_empty(),
            UsageError("no PV is withheld that still exists; nothing was changed".into())
        );
        for pv in pvs {
            let mut body = json!({
                "metadata": { "annotations": { ANNOTATION_RETIRED: null } },
                "spec": { "persistentVolumeReclaimPolicy": pv.retired },
            });
            if is_reserved(pv.claim.as_ref()) {
                body["spec"]["claimRef"] = Value::Null;
            }
            let merged = self.cluster.merge_pv(&pv.reference(), body).await;
            merged.with_context(|| format!("changing PV {}", pv.name))?;
            let policy = pv.retired.unwrap_or_default();
            self.show(
                &pv.name,
                &format!("withheld no longer; its policy is {policy}"),
            )?;
        }
        Ok(())
    }

    /// Says what to do with the new disk, and waits until it is offered.
    async fn await_new_disk(&mut self, mode: VolumeMode) -> Result<()> {
        let (path, _) = self.only.clone().unwrap_or_default();
        let node = self.node.clone();
        let commands = match mode {
            VolumeMode::Filesystem => {
                format!("mkfs.ext4 DISK, mount DISK {path}, and a line in /etc/fstab with its UUID")
            }
            VolumeMode::Block => format!("ln -s DISK {path}"),
        };
        let said =
            format!("the old disk can be removed; put in the new one; on node {node}: {commands}");
        let place = format!("{node}:{path}");
        self.show(&place, &said)?;
        loop {
            if let Some(report) = self.reports().await?.first() {
                let (state, pv) = (text(report, "state"), text(report, "pv"));
                if state == "Available" {
                    return self.show(&place, &format!("PV {pv} is Available"));
                }
                if state == "Skipped" && text(report, "reason") != "NotMounted" {
                    let why = super::explain::cause(report);
                    self.show(&place, &format!("not offered yet: {why}"))?;
                }
            }
            self.pause().await?;
        }
    }

    async fn pause(&mut self) -> Result<()> {
        ensure!(
            Instant::now() < self.deadline,
            "not finished in time; run the command again to continue"
        );
        sleep(POLL_PERIOD).await;
        Ok(())
    }
}
