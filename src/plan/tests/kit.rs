//! A world made of model objects, and the plan for it in words, so that a test reads as a table:
//! the situation, and all that is done and said about it.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::config::{
    AccessMode, Binding, Class, Cleaner, Config, DiscoveryPolicy, MissingVolumePolicy, NamePattern,
    WeakIdentity,
};
use crate::host::boot::BootTime;
use crate::inventory::{Candidate, Finding, Observation, Skip, Volume};
use crate::names::LABEL_HOSTNAME;
use crate::plan::job_object::JobSource;
use crate::plan::{
    About, Action, Cleanup, CleanupState, JobWrite, Plan, Refusal, Settings, Snapshot, plan,
};
use crate::quantity;
use crate::types::{HostPath, SkipReason, VolumeMode};
use crate::view::{JobView, NodeView, PvView, ReclaimPolicy, StorageClassView};

pub use objects::*;

pub const GIB: u64 = 1 << 30;
/// How long a volume must be missing in [`world`] before its PV goes, if it goes.
pub const MISSING_LIMIT: Duration = Duration::from_secs(30);
/// How long a DaemonSet must be absent in [`world`] before the PVs of its installation are taken over.
pub const ABSENCE_LIMIT: Duration = Duration::from_mins(1);
/// What the provisioner of [`world`] writes on its PVs.
pub const OURS: &str = "local-volume-provisioner-node-1-node-uid";
/// The Node's name with another UID.
pub const FORMER: &str = "local-volume-provisioner-node-1-former-uid";
/// What a provisioner that is not ours writes on its PVs.
pub const FOREIGN: &str = "another-provisioner";

/// The name of the cluster in marks.
pub const CLUSTER: &str = "cluster-uid";

/// A value, changed.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

pub fn path(text: &str) -> HostPath {
    HostPath::from_api(text).unwrap()
}

/// The class `name` with the directory `/mnt/<name>`.
pub fn class(name: &str) -> Class {
    Class {
        name: name.into(),
        host_dir: path(&format!("/mnt/{name}")),
        mount_dir: format!("/ours/{name}").parse().unwrap(),
        cleaner: Cleaner::default(),
        cleanup_timeout: None,
        trim: true,
        volume_mode: VolumeMode::Filesystem,
        access_mode: AccessMode::ReadWriteOnce,
        fs_type: None,
        name_pattern: NamePattern::default(),
        selector: Vec::new(),
        weak_identity: WeakIdentity::Consent,
        discovery_policy: DiscoveryPolicy::Any,
        missing_volume_policy: MissingVolumePolicy::Report,
        binding: Binding::default(),
        devices: None,
    }
}

/// The world, and the settings that it is judged by.
#[derive(Clone, Debug)]
pub struct World {
    pub config: Config,
    pub faulty: BTreeMap<String, String>,
    pub generation: u64,
    pub installation: Option<String>,
    pub snapshot: Snapshot,
}

/// A node whose hostname is not its name, with the class `fast` and nothing in it.
pub fn world() -> World {
    let node = NodeView {
        name: "node-1".into(),
        uid: "node-uid".into(),
        hostname: "host-1".into(),
        labels: BTreeMap::from([(LABEL_HOSTNAME.into(), "host-1".into())]),
        paused: false,
        consents: BTreeSet::new(),
        approvals: BTreeMap::new(),
    };
    World {
        config: Config::default(),
        faulty: BTreeMap::new(),
        generation: 1,
        installation: None,
        snapshot: Snapshot {
            node: Some(node),
            job_source: Arc::new(JobSource {
                namespace: "storage".into(),
                image: Some("example.com/lvp:1".into()),
                pull_secrets: Vec::new(),
                has_udev: true,
                state_directory: None,
            }),
            now: Duration::from_secs(100),
            date: jiff::Timestamp::now(),
            boot_time: Some(BootTime { boot_id: "boot".into(), seconds: 10_000 }),
            missing_limit: MISSING_LIMIT,
            absence_limit: ABSENCE_LIMIT,
            pvs: Some(Vec::new()),
            ..Snapshot::default()
        },
    }
    .class(class("fast"))
}

impl World {
    /// Adds a class with a StorageClass, and an empty directory that was read.
    pub fn class(mut self, class: Class) -> Self {
        let (name, view) = (class.name.clone(), storage_class(ReclaimPolicy::Delete));
        let nothing = Observation {
            entries: Arc::default(),
            pod_mounts: BTreeMap::default(),
            complete: true,
            fault: None,
            disks: Arc::default(),
            disks_fault: None,
        };
        self.snapshot.observed.insert(name.clone(), nothing);
        self.config.classes.insert(name.clone(), Arc::new(class));
        self.storage_class(&name, Some(view))
    }

    pub fn change_class(mut self, name: &str, change: impl FnOnce(&mut Class)) -> Self {
        let class = self.config.classes.get_mut(name).unwrap();
        change(Arc::make_mut(class));
        let observation = self.snapshot.observed.get_mut(name).unwrap();
        for finding in Arc::make_mut(&mut observation.entries).values_mut() {
            if let Finding::Volume(volume) = finding {
                Arc::make_mut(volume).class = Arc::clone(class);
            }
        }
        self
    }

    pub fn storage_class(mut self, name: &str, view: Option<StorageClassView>) -> Self {
        self.snapshot.storage_classes.insert(name.into(), view);
        self
    }

    /// Puts something into a class's directory.
    pub fn entry(mut self, class: &str, name: &str, found: impl Into<Finding>) -> Self {
        let observation = self.snapshot.observed.get_mut(class).unwrap();
        let class = &self.config.classes[class];
        let found = match found.into() {
            Finding::Volume(it) => volume(class, name, &it.candidate).into(),
            skipped @ Finding::Skipped(_) => skipped,
        };
        Arc::make_mut(&mut observation.entries).insert(name.into(), found);
        self
    }

    /// Puts a volume into `fast`.
    pub fn fast(self, name: &str, candidate: &Candidate) -> Self {
        self.entry("fast", name, candidate.clone())
    }

    pub fn incomplete(mut self, class: &str) -> Self {
        self.snapshot.observed.get_mut(class).unwrap().complete = false;
        self
    }

    pub fn pv(mut self, pv: PvView) -> Self {
        self.snapshot.pvs.get_or_insert_default().push(pv);
        self
    }

    /// A PV is being created for `candidate`, and the outcome is not known yet.
    pub fn creating(mut self, at: &str, candidate: &Candidate) -> Self {
        let identity = candidate.identity.text.clone();
        self.snapshot.ledger.creating.insert(path(at), identity);
        self
    }

    /// What `candidate` is could not be opened exclusively.
    pub fn refused(mut self, at: &str, candidate: &Candidate) -> Self {
        let refusal = Refusal {
            identity: candidate.identity.text.clone(),
            skip: Skip::new(SkipReason::DeviceInUse, "it is in use"),
            retry_at: self.snapshot.now,
        };
        self.snapshot.ledger.refusals.0.insert(path(at), refusal);
        self
    }

    /// The ProcTable has this state of a PV's cleanup, decided on the basis 0.
    pub fn cleanup(self, pv: &PvView, state: CleanupState) -> Self {
        self.cleanup_on(pv, state, 0)
    }

    pub fn cleanup_on(mut self, pv: &PvView, state: CleanupState, basis: u64) -> Self {
        let cleanup = Cleanup {
            pv: pv.name.clone(),
            path: pv.path().unwrap().clone(),
            identity: pv.identity.clone().unwrap_or_default(),
            since: self.snapshot.now,
            running: state == CleanupState::Wiping,
            stalled: false,
            suspended: false,
            disks: BTreeSet::new(),
            basis,
            state,
        };
        self.snapshot.ledger.cleanups.insert(pv.tenancy(), cleanup);
        self
    }

    /// Changes the entry of a PV's cleanup.
    pub fn change_cleanup(mut self, pv: &PvView, change: impl FnOnce(&mut Cleanup)) -> Self {
        change(self.snapshot.ledger.cleanups.get_mut(&pv.tenancy()).unwrap());
        self
    }

    pub fn job(mut self, job: JobView) -> Self {
        self.snapshot.jobs.insert(job.name.clone(), job);
        self
    }

    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub fn node(mut self, change: impl FnOnce(&mut NodeView)) -> Self {
        change(self.snapshot.node.as_mut().unwrap());
        self
    }

    /// Makes it the world of an installation.
    pub fn of(mut self, installation: &str) -> Self {
        self.installation = Some(installation.into());
        self
    }

    /// The DaemonSet of an installation has been absent for so long.
    pub fn absent(mut self, installation: &str, time: Duration) -> Self {
        self.snapshot.absent_for.insert(installation.into(), time);
        self
    }

    pub fn plan(&self) -> Plan {
        plan(&self.settings(), &self.snapshot)
    }

    pub fn settings(&self) -> Settings {
        Settings {
            config: Arc::new(self.config.clone()),
            faulty: self.faulty.clone(),
            faults: Vec::new(),
            generation: self.generation,
            installation: self.installation.clone(),
            cluster: Some(CLUSTER.into()),
        }
    }

    pub fn pvs(&self) -> &[PvView] {
        self.snapshot.pvs.as_deref().unwrap_or_default()
    }

    /// Plans, and compares all that the plan does and says with `expected`, in any order.
    #[track_caller]
    pub fn expect(&self, situation: &str, expected: &[&str]) {
        let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        let mut found = words(&self.plan());
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{situation}");
    }
}

/// A plan in words: actions, notices, and the state of every volume.
pub fn words(plan: &Plan) -> Vec<String> {
    let actions = plan.actions.iter().map(action);
    let notices = plan.notices.iter().map(|notice| match &notice.about {
        About::Pv(name, _) => format!("{} of {name}", notice.reason),
        About::Pod => format!("{} of our Pod", notice.reason),
        About::Node(name) => format!("{} of Node {name}", notice.reason),
        About::Claim(claim) => format!("{} of claim {claim}", notice.reason),
    });
    let volumes = plan.classes.iter().flat_map(|class| &class.volumes);
    let states = volumes.map(|volume| match volume.reason {
        Some(reason) => format!("{} is {:?} as {reason:?}", volume.entry, volume.state),
        None => format!("{} is {:?}", volume.entry, volume.state),
    });
    actions.chain(notices).chain(states).collect()
}

fn action(action: &Action) -> String {
    match action {
        Action::Create(draft) => format!("create {}", draft.volume.path),
        Action::FindPv(search) => format!("search {}", search.path),
        Action::WriteMark(write) => {
            format!("mark {} {}", write.volume.path, write.mark.state.as_str())
        }
        Action::Clean(order) => format!("clean {}", order.pv.name),
        Action::TakeOver(volume) => format!("take {} over", volume.path),
        Action::Unlink(token) => format!("unlink {token}"),
        Action::Link(order) => format!("link {}", order.pv.name),
        Action::TakeIn(order) => format!("take in {}", order.link),
        Action::LabelNode(change) => {
            let (add, remove): (Vec<_>, _) = change.labels.values().partition(|it| it.is_some());
            format!("label the Node: +{} -{}", add.len(), remove.len())
        }
        Action::FindOwners(queries) => format!("list the owners of {}", queries.len()),
        Action::Forget(tenancy) => format!("forget {}", tenancy.pv_uid),
        Action::Suspend(tenancy, true) => format!("suspend {}", tenancy.pv_uid),
        Action::Suspend(tenancy, false) => format!("resume {}", tenancy.pv_uid),
        Action::Cancel(cancel) => {
            let of = cancel.job.as_ref().map_or("", |_| "the Job of ");
            format!("cancel {of}{}", cancel.tenancy.pv_uid)
        }
        Action::WriteJob(job, write) => match write {
            JobWrite::Disown => format!("disown Job {}", job.name),
            JobWrite::Collect | JobWrite::Delete(_) => format!("delete Job {}", job.name),
            JobWrite::Cancel(_) => format!("call Job {} off", job.name),
        },
        Action::Release(tenancy) => format!("release {}", tenancy.pv_uid),
        Action::Track(track) => {
            let state = format!("{:?}", track.state);
            let word = state.split([' ', '{']).next().unwrap();
            format!("track {} as {word}", track.pv)
        }
        Action::Withdraw(withdrawal) if withdrawal.finalizers.is_none() => {
            format!("delete {}", withdrawal.pv.name)
        }
        Action::Withdraw(withdrawal) => format!("let {} go", withdrawal.pv.name),
        Action::Patch(patch) => {
            let mut parts: Vec<String> = Vec::new();
            for (key, value) in &patch.annotations {
                let key = key.rsplit('/').next().unwrap();
                parts.push(format!("{key}={}", value.as_deref().unwrap_or("(off)")));
            }
            for (key, value) in &patch.labels {
                let key = match *key {
                    LABEL_HOSTNAME => "label",
                    key => key.rsplit('/').next().unwrap(),
                };
                parts.push(format!("{key}={}", value.as_deref().unwrap_or("(off)")));
            }
            parts.extend(patch.finalizers.iter().map(|list| format!("finalizers={list:?}")));
            parts.extend(
                patch.owners.iter().map(|owners| format!("owners={}", owners_in_words(owners))),
            );
            let mark = patch.mark.as_ref().map(|it| it.mark.state.as_str());
            parts.extend(mark.map(|state| format!("mark={state}")));
            parts.extend(
                patch.capacity.map(|bytes| format!("capacity={}", quantity::format(bytes))),
            );
            parts.extend(patch.events.iter().map(|(reason, _)| format!("({reason})")));
            format!("patch {}: {}", patch.pv.name, parts.join(" "))
        }
    }
}

/// An attempt on the basis 0 failed, and the next is due at this second.
pub fn failed_until(seconds: u64) -> CleanupState {
    CleanupState::Failed { error: "no".into(), retry_at: Duration::from_secs(seconds) }
}

pub fn storage_class(policy: ReclaimPolicy) -> StorageClassView {
    StorageClassView { reclaim_policy: policy, mount_options: Vec::new(), expandable: false }
}

pub fn volume(class: &Arc<Class>, entry: &str, candidate: &Candidate) -> Arc<Volume> {
    Arc::new(Volume::new(class, entry, candidate.clone()))
}

impl From<Arc<Volume>> for Finding {
    fn from(volume: Arc<Volume>) -> Self {
        Self::Volume(volume)
    }
}

/// Of any class and entry.
impl From<Candidate> for Finding {
    fn from(candidate: Candidate) -> Self {
        volume(&Arc::new(class("fast")), "a", &candidate).into()
    }
}

impl From<SkipReason> for Finding {
    fn from(reason: SkipReason) -> Self {
        let skip = Skip::new(reason, "it is no volume");
        Self::Skipped(match reason {
            SkipReason::NotMounted => skip.gone(),
            _ => skip,
        })
    }
}

fn owners_in_words(owners: &[OwnerReference]) -> String {
    let words: Vec<_> =
        owners.iter().map(|owner| format!("{}/{}", owner.kind, owner.uid)).collect();
    words.join(",")
}

/// The PV of a draft, as the API server returns it.
pub fn made(draft: &crate::plan::PvDraft) -> PvView {
    PvView::from_api(&serde_json::from_value(serde_json::json!(draft.object)).unwrap())
}
