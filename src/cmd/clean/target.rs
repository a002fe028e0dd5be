//! Finds the volume by the provisioner's plan, then opens, locks and inspects it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use jiff::Timestamp;
use kube::api::ListParams;

use crate::args::{ApiServer, Clean, Environment};
use crate::cleanup::Obstacle;
use crate::cleanup::blocking::open_when_free;
use crate::cleanup::inspect::{NodeFacts, discovery_dirs};
use crate::cleanup::path_owner::{self, owns};
use crate::cleanup::pods::{self, ensure_no_host_path};
use crate::cleanup::volume::{Access, OpenVolume};
use crate::cluster::{Cluster, PodView, jobs_of};
use crate::cmd::api_server::{cluster, uid_of};
use crate::cmd::discover;
use crate::cmd::run::{UsageError, load, state_directory};
use crate::config::{Class, Cleaner};
use crate::host::kubelet::KubeletDir;
use crate::host::mark::{Mark, MarkState, StateDir};
use crate::inventory::{Candidate, Volume};
use crate::plan::verdict::may_clean;
use crate::plan::{ClassReport, PvLocation, Settings, VolumeReport};
use crate::types::{MountPath, SkipReason, VolumeMode};
use crate::view::{JobView, NodeView, Phase, PvView};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// How long to wait while other programs have the volume open.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(1);

/// A volume that may be cleaned: open, locked and inspected.
pub struct Target {
    pub class: Arc<Class>,
    pub path: MountPath,
    pub pv: Option<PvView>,
    pub method: Method,
    pub opened: OpenVolume,
    /// The mark of the clean volume, if it has no PV.
    pub mark: Option<Mark>,
}

/// Finds the requested volume.
pub struct Finder<'a> {
    request: &'a Clean,
    node: String,
    namespace: &'a str,
    settings: Settings,
    kubelet: KubeletDir,
    cluster: Cluster,
    state: StateDir,
}

impl<'a> Finder<'a> {
    /// Reads the configuration and connects to the cluster.
    pub async fn new(request: &'a Clean, environment: &'a Environment) -> Result<Self> {
        Ok(Self {
            request,
            node: environment.require_node_name().map_err(UsageError)?,
            namespace: &environment.namespace,
            settings: Settings::of(
                &load(&request.config)?.1,
                0,
                environment.installation.clone(),
                None,
            ),
            kubelet: KubeletDir::new(&request.kubelet.kubelet_dir, environment.pod_uid.clone()),
            cluster: cluster(&ApiServer::default()).await?,
            state: state_directory(environment)?,
        })
    }

    /// How a volume of this kind is cleaned.
    fn method(&self, kind: VolumeMode, class: &Class) -> Result<Method> {
        let cleaner = self.request.method.map(Cleaner::Method);
        let method = Method::of(kind, cleaner.as_ref().unwrap_or(&class.cleaner));
        ensure!(
            kind == VolumeMode::Filesystem || method != Method::DeleteContents,
            "{method} does not clean devices: choose another --method"
        );
        Ok(method)
    }

    /// Finds, opens, locks and inspects the volume.
    ///
    /// # Errors
    /// Why it must not be cleaned, or why it cannot be checked.
    pub async fn open(&self) -> Result<Target> {
        let node = self.cluster.node(&self.node).await.context("reading the Node")?;
        let node = NodeView::from_metadata(&node).map_err(Error::msg)?;
        let pvs = self.pvs(&node).await?;
        let of_node = jobs_of(&node.hostname);
        let jobs = self.cluster.list_jobs(self.namespace, &of_node).await;
        let jobs = jobs.context("listing the cleaning Jobs")?;
        let pods = self.pods(&node.name).await?;
        let plan = discover::survey(&self.settings, node.clone(), pvs.clone(), &jobs).await;
        let (class, entry) = self.find(&plan.classes)?;
        let is_at_path = |pv: &PvView| pv.path().is_some_and(|it| it.as_str() == entry.path);
        let pv = pvs.into_iter().find(is_at_path);
        match &pv {
            Some(pv) => ensure_unclaimed(pv, &jobs)?,
            None if entry.reason.is_none_or(|reason| {
                matches!(reason, SkipReason::NotEmpty | SkipReason::NotBindable)
            }) => {}
            None => bail!("{}", entry.detail.as_deref().unwrap_or("it is no volume")),
        }
        let offered_at = class.host_dir.join(&entry.entry);
        let path = class.mount_dir.join(&entry.entry);
        let kind = if path.as_path().metadata()?.is_dir() {
            VolumeMode::Filesystem
        } else {
            VolumeMode::Block
        };
        ensure!(
            self.kubelet.sees(kind),
            "{} does not show which volumes Pods use: name the kubelet's directory with --kubelet-dir",
            self.kubelet.path.display()
        );
        let method = self.method(kind, class)?;
        let (config, kubelet) = (Arc::clone(&self.settings.config), self.kubelet.clone());
        let (volume, state, name) = (path.clone(), self.state.clone(), class.name.clone());
        let mut owners = plan.occupied.owners.clone();
        owners.retain(|it| pv.as_ref().is_none_or(|pv| pv.uid != it.uid));
        let mut paths = pods::paths_of(&pods);
        paths.extend(path_owner::paths_of(&owners, &offered_at));
        let inspection = move || {
            let dirs = discovery_dirs(&config, |dir| {
                let dir = dir.as_path();
                dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
            });
            let facts = NodeFacts::read(&kubelet, dirs, &state)?;
            let opened = OpenVolume::open(&volume, &name, kind, Access::Clean, &facts)?;
            let footprint = &opened.candidate.footprint;
            let paths = facts.follow(paths.clone());
            ensure_no_host_path(&pods, &paths, &offered_at, footprint)?;
            let mut owners = owners.iter();
            match owners.find_map(|it| owns(it, &paths, &offered_at, footprint)) {
                Some(owner) => Err(Obstacle::Unknown(owner)),
                None => Ok(opened),
            }
        };
        let opened = open_when_free(IN_USE_TIMEOUT, &Progress::default(), inspection).await;
        let opened = opened.map_err(|obstacle| anyhow!("{obstacle}"))?;
        ensure!(!opened.candidate.read_only, "{path} is read-only");
        self.ensure_of_no_other(&opened.candidate, pv.as_ref()).await?;
        // Under the lock: the provisioner may have wiped the volume and offered it meanwhile.
        let now = self.pvs(&node).await?.into_iter().find(is_at_path);
        let version = |pv: PvView| (pv.uid, pv.resource_version);
        ensure!(
            now.map(version) == pv.clone().map(version),
            "the PV of {path} has changed: run the command again"
        );
        if let Some(pv) = &pv {
            let volume = Arc::new(Volume::new(class, &entry.entry, opened.candidate.clone()));
            let place = PvLocation::Volume(&volume);
            may_clean(pv, &self.settings, &node, &place, &plan.occupied)
                .map_err(|refusal| anyhow!("PV {}: {}", pv.name, refusal.message))?;
        }
        // The mark of a PV that stays is the provisioner's.
        let mut uid = None;
        if self.state.is_open() && pv.is_none() {
            uid = uid_of(&self.cluster).await?;
        }
        let mark = uid.map(|cluster| freed(cluster, &class.name, &opened.candidate));
        Ok(Target { mark, class: Arc::clone(class), path, pv, method, opened })
    }

    /// The Pods of the node, with their paths.
    async fn pods(&self, node: &str) -> Result<Vec<PodView>> {
        let mut pods = self.cluster.pods_of(node).await.context("listing the Pods of the Node")?;
        let known = BTreeSet::new();
        let claimed = self.cluster.add_claimed_paths(&mut pods, &known);
        claimed.await.context("reading the claims of the Pods")?;
        Ok(pods)
    }

    /// Fails if another PV, of any node, has the disk.
    async fn ensure_of_no_other(&self, candidate: &Candidate, pv: Option<&PvView>) -> Result<()> {
        let identity = candidate.global.as_ref();
        let Some(identity) = identity.filter(|it| it.is_unique) else {
            return Ok(());
        };
        let found = self.cluster.pvs_with_identities(&[&identity.hash]).await;
        let found = found.context("listing the PersistentVolumes of the disk")?;
        let is_other = |it: &&PvView| pv.is_none_or(|pv| pv.uid != it.uid);
        let Some(other) = found.iter().find(is_other) else {
            return Ok(());
        };
        let node = other.hostname_label.as_deref().unwrap_or("no node");
        bail!(
            "it is the disk of PV {} ({node}); if its data is no longer needed, delete that PV first",
            other.name
        )
    }

    /// The PVs of the node.
    async fn pvs(&self, node: &NodeView) -> Result<Vec<PvView>> {
        let is_here =
            |pv: &PvView| pv.hostname_label.as_ref() == Some(&node.hostname) || pv.may_be_on(node);
        let pvs = self.cluster.pvs_in_pages(ListParams::default(), is_here);
        pvs.await.context("listing the PersistentVolumes")
    }

    /// The requested class and entry, by PV, or by the path on the host or in this container.
    fn find<'b>(
        &'b self,
        classes: &'b [ClassReport],
    ) -> Result<(&'b Arc<Class>, &'b VolumeReport)> {
        let requested = &self.request.volume;
        let path = std::path::absolute(requested)?;
        let mut entries = classes.iter().filter_map(|report| {
            let class = self.settings.config.classes.get(&report.name)?;
            let is_requested = |entry: &&VolumeReport| {
                entry.pv.as_ref() == Some(requested)
                    || path == Path::new(&entry.path)
                    || path == class.mount_dir.join(&entry.entry).as_path()
            };
            let entry = report.volumes.iter().find(is_requested)?;
            // Classes that share a directory also report the entries of the others.
            let is_matched = entry.reason != Some(SkipReason::NamePatternMismatch);
            is_matched.then_some((class, entry))
        });
        entries.next().with_context(|| {
            format!(
                "{requested} is no entry of a configured class, and no PersistentVolume of one on node {}; see discover",
                self.node
            )
        })
    }
}

/// Ensures that the PV is not bound to a claim and that the provisioner is not cleaning its volume.
fn ensure_unclaimed(pv: &PvView, jobs: &[JobView]) -> Result<()> {
    let why = match pv.phase {
        _ if pv.deleting => "is Terminating: the provisioner cleans its volume",
        _ if jobs.iter().any(|job| job.pv_uid.as_ref() == Some(&pv.uid)) => {
            "has the cleaning Job of an earlier release: wait for it, or delete it"
        }
        _ if pv.paused => "is paused by an annotation",
        Phase::Bound | Phase::Pending => "belongs to a claim: delete the claim first",
        Phase::Available if pv.claim.is_none() => {
            "is Available: a claim may take it while the volume is cleaned; reserve it first (docs/operations.md)"
        }
        _ => return Ok(()),
    };
    bail!("PV {} {why}", pv.name)
}

/// The mark of a volume that is cleaned by hand. It keeps the root of the last offer.
fn freed(cluster: String, class: &str, candidate: &Candidate) -> Mark {
    let before = candidate.mark.on_disk.valid();
    Mark {
        cluster,
        state: MarkState::Free,
        identity_hash: candidate.identity.hash(),
        class: class.to_owned(),
        root: before.and_then(|it| it.root.clone()),
        written_at: Timestamp::now(),
        ..Mark::default()
    }
}
