//! Finds the volume by the provisioner's plan, then opens, locks and inspects it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use kube::api::ListParams;

use crate::args::{Args, Clean, Environment};
use crate::cleanup::inspect::NodeFacts;
use crate::cleanup::volume::{Access, OpenVolume};
use crate::cleanup::wipe::Outcome;
use crate::cleanup::{Failure, external};
use crate::cluster::Cluster;
use crate::cmd::run::{client, load};
use crate::cmd::{cleaner, discover};
use crate::config::{Class, Cleaner};
use crate::host::kubelet::KubeletDir;
use crate::metrics::Metrics;
use crate::names::{pv_name, pv_name_on_collision};
use crate::plan::verdict::may_clean;
use crate::plan::{ClassReport, PvLocation, Settings, VolumeReport};
use crate::types::{MountPath, SkipReason, VolumeMode};
use crate::view::{JobView, NodeView, Phase, PvView};
use crate::wipe::method::Method;
use crate::wipe::pace::amount;
use crate::wipe::progress::Progress;
use crate::wipe::trim::Trim;

/// How long to wait while other programs have the volume open.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(1);

/// A volume that may be cleaned: open, locked and inspected.
pub struct Target {
    pub class: Arc<Class>,
    pub path: MountPath,
    pub pv: Option<PvView>,
    pub method: Method,
    pub opened: OpenVolume,
}

/// Finds the requested volume.
pub struct Finder {
    requested: String,
    method: Option<Cleaner>,
    node: String,
    namespace: String,
    settings: Settings,
    kubelet: KubeletDir,
    cluster: Cluster,
}

impl Finder {
    /// Reads the configuration and connects to the cluster.
    pub async fn new(request: &Clean, args: &Args, environment: &Environment) -> Result<Self> {
        Ok(Self {
            requested: request.volume.clone(),
            method: request.method.map(Cleaner::Method),
            node: discover::node_name(request.node_name.as_ref(), environment)?,
            namespace: environment.namespace.clone(),
            settings: Settings::of(&load(args)?, 0),
            kubelet: KubeletDir::new(&args.kubelet_dir, environment.pod_uid.clone()),
            cluster: Cluster::new(client().await?, Arc::new(Metrics::new()?)),
        })
    }

    /// Finds, opens, locks and inspects the volume.
    ///
    /// # Errors
    /// Why it must not be cleaned, or why it cannot be checked.
    pub async fn open(&self) -> Result<Target> {
        let node = self.cluster.node(&self.node).await;
        let node = NodeView::from_metadata(&node.context("reading the Node")?)?;
        let is_here =
            |pv: &PvView| pv.hostname_label.as_ref() == Some(&node.hostname) || pv.stands_on(&node);
        let pvs = self.cluster.pvs_in_pages(ListParams::default(), is_here);
        let pvs = pvs.await.context("listing the PersistentVolumes")?;
        let jobs = self.cluster.list_jobs(&self.namespace, &node.hostname);
        let jobs = jobs.await.context("listing the cleaning Jobs")?;
        let pods = self.cluster.pods_of(&node.name);
        let pods = pods.await.context("listing the Pods of the Node")?;
        let plan = discover::survey(&self.settings, node.clone(), pvs.clone(), &jobs).await;
        let (class, entry) = self.find(&plan.classes)?;
        let pv = pvs
            .into_iter()
            .find(|pv| pv.path().is_some_and(|it| it.as_str() == entry.path));
        match &pv {
            Some(pv) => ensure_unclaimed(pv, &jobs)?,
            None if entry
                .reason
                .is_none_or(|reason| reason == SkipReason::NotEmpty) => {}
            None => bail!("{}", entry.detail.as_deref().unwrap_or("it is no volume")),
        }
        let host_path = class.host_dir.join(&entry.entry);
        if let Some(pod) = pods.iter().find(|pod| pod.mounts(&host_path)) {
            bail!("Pod {} uses it by hostPath", pod.name);
        }
        let path = class.mount_dir.join(&entry.entry);
        let kind = if path.as_path().metadata()?.is_dir() {
            VolumeMode::Filesystem
        } else {
            VolumeMode::Block
        };
        ensure!(
            self.kubelet.sees(kind),
            "{} does not show which volumes Pods use: name the kubelet's directory with --kubelet-dir",
            self.kubelet.path().display()
        );
        let method = Method::of(kind, self.method.as_ref().unwrap_or(&class.cleaner));
        ensure!(
            kind == VolumeMode::Filesystem || method != Method::DeleteContents,
            "{method} does not clean devices: choose another --method"
        );
        let inspection = {
            let (config, kubelet) = (Arc::clone(&self.settings.config), self.kubelet.clone());
            let path = path.clone();
            move || {
                let facts = NodeFacts::read(&kubelet, &config)?;
                Ok(OpenVolume::open(&path, kind, Access::Write, &facts)?)
            }
        };
        let found = cleaner::inspect(IN_USE_TIMEOUT, &Progress::default(), inspection).await;
        let opened = found.map_err(|failure| anyhow!(failure.message))?;
        ensure!(!opened.candidate.read_only, "{path} is read-only");
        self.is_unchanged(pv.as_ref(), &class.name, &entry.entry)
            .await?;
        if let Some(pv) = &pv {
            let place = PvLocation::Volume(class, &entry.entry, &opened.candidate);
            may_clean(pv, &self.settings.config, &node, &place, &plan.occupied)
                .map_err(|refusal| anyhow!("PV {}: {}", pv.name, refusal.message))?;
        }
        Ok(Target {
            class: Arc::clone(class),
            path,
            pv,
            method,
            opened,
        })
    }

    /// Reads the PV again under the lock: the provisioner may have wiped the volume and offered it meanwhile.
    async fn is_unchanged(&self, pv: Option<&PvView>, class: &str, entry: &str) -> Result<()> {
        let names = match pv {
            Some(pv) => vec![pv.name.clone()],
            None => vec![
                pv_name(entry, &self.node, class),
                pv_name_on_collision(entry, &self.node, class),
            ],
        };
        for name in names {
            let now = self.cluster.pv(&name).await.context("reading the PV")?;
            let version = |pv: &PvView| (pv.uid.clone(), pv.resource_version.clone());
            ensure!(
                now.as_ref().map(version) == pv.map(version),
                "PV {name} has changed: run the command again"
            );
        }
        Ok(())
    }

    /// The requested class and entry, by PV, or by the path on the host or in this container.
    fn find<'a>(
        &'a self,
        classes: &'a [ClassReport],
    ) -> Result<(&'a Arc<Class>, &'a VolumeReport)> {
        let path = std::path::absolute(&self.requested)?;
        let mut entries = classes.iter().filter_map(|report| {
            let class = self.settings.config.classes.get(&report.name)?;
            let mut entries = report.volumes.iter();
            let entry = entries.find(|entry| {
                entry.pv.as_ref() == Some(&self.requested)
                    || path == Path::new(&entry.path)
                    || path == class.mount_dir.join(&entry.entry).as_path()
            })?;
            Some((class, entry))
        });
        // Classes that share a directory also report the entries of the others.
        let is_matched =
            |(_, entry): &(_, &VolumeReport)| entry.reason != Some(SkipReason::NamePatternMismatch);
        entries.find(is_matched).with_context(|| {
            format!(
                "{} is no entry of a configured class, and no PersistentVolume of one on node {}; see discover",
                self.requested, self.node
            )
        })
    }
}

/// Ensures that the PV is not bound to a claim and that the provisioner is not cleaning its volume.
fn ensure_unclaimed(pv: &PvView, jobs: &[JobView]) -> Result<()> {
    let name = &pv.name;
    ensure!(
        !pv.deleting,
        "PV {name} is Terminating: the provisioner cleans its volume"
    );
    if let Some(job) = jobs.iter().find(|job| job.pv_uid.as_ref() == Some(&pv.uid)) {
        bail!("PV {name} has the cleaning Job {}", job.name);
    }
    ensure!(
        !matches!(pv.phase, Phase::Bound | Phase::Pending),
        "PV {name} is {}, so it belongs to a claim: delete the claim first",
        pv.phase
    );
    ensure!(
        pv.phase != Phase::Available || pv.claim.is_some(),
        "PV {name} is Available: a claim may take it while the volume is cleaned; reserve it first (docs/operations.md)"
    );
    ensure!(!pv.paused, "PV {name} is paused by an annotation");
    Ok(())
}

impl Target {
    /// Deletes the data and verifies it. Returns a description of the outcome.
    pub async fn wipe(self, progress: &Progress) -> Result<String, Failure> {
        let target = external::Target {
            pv: self.pv.map_or_else(String::new, |pv| pv.name),
            path: self.path,
            identity: self.opened.candidate.identity.text.clone(),
        };
        let cleaned = self
            .opened
            .clean(&target, &self.method, self.class.trim, progress);
        let (outcome, _lock) = cleaned.await?;
        Ok(match outcome {
            Outcome::Emptied(trimmed) => {
                let trimmed = match trimmed {
                    Some(Trim::Done { bytes }) => format!("trimmed {}", amount(bytes)),
                    _ => "not trimmed".to_owned(),
                };
                format!("{} entries removed, {trimmed}", progress.entries())
            }
            Outcome::Wiped(outcome) => format!("{}; {}", outcome.as_str(), outcome.effect()),
            Outcome::CommandSucceeded => "the external cleaner succeeded".to_owned(),
        })
    }
}
