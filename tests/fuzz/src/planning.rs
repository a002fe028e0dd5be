//! A pass over PVs, Jobs, a Node, marks and a configuration that anything may have written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use local_volume_provisioner::config::from_files;
use local_volume_provisioner::host::boot::BootTime;
use local_volume_provisioner::host::footprint::Footprint;
use local_volume_provisioner::host::identity::{Identity, Match, compare};
use local_volume_provisioner::host::mark::{Mark, MarkFact, MarkOnDisk, Place};
use local_volume_provisioner::host::mounts::DeviceNumber;
use local_volume_provisioner::inventory::{Candidate, Contents, Finding, Observation, Volume};
use local_volume_provisioner::names::LABEL_HOSTNAME;
use local_volume_provisioner::plan::{
    self, Action, OtherPvs, Plan, Settings, Snapshot, consents_in,
};
use local_volume_provisioner::types::VolumeMode;
use local_volume_provisioner::view::{
    Job, JobView, NodeView, PersistentVolume, Phase, PvView, ReclaimPolicy, StorageClassView,
};
use serde::Deserialize;

const CLUSTER: &str = "cluster";
/// Enough for a search, a list, a consent, and the act.
const PASSES: usize = 4;
const CLASS: &str = "fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}";

#[derive(Deserialize)]
#[serde(default)]
struct World {
    config: BTreeMap<String, String>,
    node: ObjectMeta,
    pvs: Vec<PersistentVolume>,
    jobs: Vec<Job>,
    disks: Vec<Disk>,
    /// The act to which an operator consents wherever the first pass names it, such as `wipe`.
    consents: Option<String>,
}

impl Default for World {
    fn default() -> Self {
        let labels = BTreeMap::from([(LABEL_HOSTNAME.to_owned(), "node-1".to_owned())]);
        let (name, uid) = (Some("node-1".to_owned()), Some("node".to_owned()));
        Self {
            config: BTreeMap::from([("storageClassMap".to_owned(), CLASS.to_owned())]),
            node: ObjectMeta { name, uid, labels: Some(labels), ..ObjectMeta::default() },
            pvs: Vec::new(),
            jobs: Vec::new(),
            disks: Vec::new(),
            consents: None,
        }
    }
}

/// What is at an entry of the first class.
#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
struct Disk {
    entry: String,
    identity: String,
    weak: bool,
    is_device: bool,
    read_only: bool,
    in_use: Option<String>,
    is_blank: bool,
    is_empty: bool,
    mark: Option<Mark>,
    digest: Option<String>,
}

impl Disk {
    fn candidate(self, at: u8) -> Candidate {
        let on_disk = match (self.mark, self.digest) {
            (Some(mark), _) => MarkOnDisk::Valid(mark),
            (None, Some(digest)) => MarkOnDisk::Unreadable { digest },
            (None, None) => MarkOnDisk::Absent,
        };
        let number = DeviceNumber::parse(&format!("8:{at}")).unwrap();
        let below = BTreeSet::from([number]);
        Candidate {
            kind: if self.is_device { VolumeMode::Block } else { VolumeMode::Filesystem },
            capacity: 1 << 30,
            identity: Identity { text: self.identity, weak: self.weak },
            global: None,
            footprint: if self.is_device {
                Footprint::Device { number, below, wwid: None }
            } else {
                Footprint::Filesystem { devices: below, fs: number, root: "/".into() }
            },
            read_only: self.read_only,
            in_use: self.in_use,
            contents: if self.is_empty { Contents::Empty } else { Contents::NotLookedAt },
            rotational: BTreeSet::new(),
            mark: MarkFact { on_disk, place: Some(Place::StateDirectory), ..MarkFact::default() },
            is_as_offered: false,
            is_blank: self.is_blank,
            root: None,
        }
    }
}

/// Each pass decides in the same way as often as it is asked, cleans nothing that is bound, kept, another node's or another
/// disk, and offers no path twice. Between the passes, what they search is found nowhere, and an operator consents to what
/// the world names.
pub fn plan(bytes: &[u8]) {
    let _ = actions(bytes);
}

/// What all passes do.
pub fn actions(bytes: &[u8]) -> Option<Vec<Action>> {
    let world = serde_json::from_slice::<World>(bytes).ok()?;
    let loaded = from_files(&world.config).ok()?;
    let consent = world.consents.clone();
    let settings = Settings::of(&loaded, 1, Some("default/lvp".into()), Some(CLUSTER.into()));
    let mut snapshot = snapshot(world, &settings)?;
    let mut all = Vec::new();
    for _ in 0..PASSES {
        let plan = decide(&settings, &snapshot);
        for action in &plan.actions {
            match action {
                Action::FindPv(search) => snapshot.ledger.record_searched(search.mark.clone()),
                Action::FindOwners(queries) => {
                    for query in queries {
                        let found =
                            OtherPvs { hash: query.identity.hash.clone(), ..OtherPvs::default() };
                        snapshot.ledger.record_others(query, &found, snapshot.now);
                    }
                }
                _ => {}
            }
        }
        if let Some(verb) = consent.as_ref().filter(|it| !it.is_empty()) {
            give(&mut snapshot, &plan, verb);
        }
        all.extend(plan.actions);
    }
    Some(all)
}

/// Gives the consents to an act that a plan names.
fn give(snapshot: &mut Snapshot, plan: &Plan, verb: &str) {
    let details =
        plan.classes.iter().flat_map(|it| &it.volumes).filter_map(|it| it.detail.as_ref());
    let texts = plan.notices.iter().map(|it| &it.message).chain(details);
    let consents = texts.flat_map(|it| consents_in(it)).filter(|it| it.starts_with(verb));
    let consents: BTreeSet<_> = consents.map(str::to_owned).collect();
    for pv in snapshot.pvs.iter_mut().flatten() {
        let of_pv = |it: &&String| it.contains(&format!(":{}:", pv.uid));
        pv.consent = consents.iter().find(of_pv).cloned();
    }
    snapshot.node.iter_mut().for_each(|node| node.consents.extend(consents.clone()));
}

fn snapshot(world: World, settings: &Settings) -> Option<Snapshot> {
    let node = NodeView::from_metadata(&world.node).ok()?;
    let mut observed = BTreeMap::new();
    if let Some((name, class)) = settings.config.classes.first_key_value() {
        let disks = world.disks.into_iter().filter(|it| is_entry(&it.entry));
        let entries = (0..=u8::MAX).zip(disks).map(|(at, disk)| {
            let entry = disk.entry.clone();
            let volume = Volume::new(class, &entry, disk.candidate(at));
            (entry, Finding::Volume(Arc::new(volume)))
        });
        let entries = Arc::new(entries.collect());
        observed
            .insert(name.clone(), Observation { entries, complete: true, ..Default::default() });
    }
    // The API server has one object of a name, and one of a UID.
    let (mut names, mut uids) = (BTreeSet::new(), BTreeSet::new());
    let mut is_new = |pv: &PvView| names.insert(pv.name.clone()) & uids.insert(pv.uid.clone());
    let pvs = world.pvs.iter().map(PvView::from_api).filter(|pv| is_new(pv)).collect();
    let jobs = world.jobs.iter().map(JobView::from_api).map(|it| (it.name.clone(), it)).collect();
    let class = StorageClassView {
        reclaim_policy: ReclaimPolicy::Delete,
        mount_options: Vec::new(),
        expandable: false,
    };
    let classes = settings.config.classes.keys().map(|it| (it.clone(), Some(class.clone())));
    Some(Snapshot {
        node: Some(node),
        storage_classes: classes.collect(),
        observed,
        pvs: Some(pvs),
        jobs,
        now: Duration::from_secs(100),
        date: Timestamp::constant(1_767_225_600, 0),
        boot_time: Some(BootTime { boot_id: "boot".into(), seconds: 100 }),
        ..Snapshot::default()
    })
}

fn decide(settings: &Settings, snapshot: &Snapshot) -> Plan {
    let plan = plan::plan(settings, snapshot);
    assert!(plan.made);
    assert_eq!(plan::plan(settings, snapshot).actions, plan.actions, "it is not a function");
    check(snapshot, &plan.actions);
    plan
}

/// Whether a directory can have an entry of this name.
fn is_entry(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn check(snapshot: &Snapshot, actions: &[Action]) {
    let pvs = snapshot.pvs.as_ref().unwrap();
    let at = |path| pvs.iter().filter(move |pv| pv.path() == Some(path));
    let node = snapshot.node.as_ref().unwrap();
    let mut paths = BTreeSet::new();
    for action in actions {
        match action {
            Action::Clean(order) => {
                let path = &order.volume.path;
                assert!(paths.insert(path), "{path} is cleaned twice, or cleaned and offered");
                let bound = at(path).find(|pv| pv.phase == Phase::Bound && pv.is_on(node));
                assert!(bound.is_none(), "{path} is cleaned while {bound:?} is bound");
                let (pv, candidate) = (&order.pv, &order.volume.candidate);
                if order.orphan_on.is_some() {
                    let hash = candidate.identity.hash();
                    let is_given = |it: &&String| it.starts_with(&format!("wipe:-:{hash}:"));
                    let may = node.consents.iter().any(|it| is_given(&it));
                    assert!(may, "{path} has no PV and no consent: {candidate:?}");
                    assert_eq!(at(path).find(|pv| pv.is_on(node)), None, "{path} has a PV");
                } else {
                    assert!(pv.is_local_to(node), "{pv:?} is another node's");
                    let recorded = pv.identity.as_deref().unwrap_or_default();
                    let is_other = compare(recorded, &candidate.identity) == Match::Different;
                    assert!(!is_other || pv.consent.is_some(), "{pv:?} is of another disk");
                    assert!(pvs.contains(pv) && pv.path() == Some(path));
                    assert_ne!(pv.phase, Phase::Bound, "{pv:?}");
                    let may = pv.policy == ReclaimPolicy::Delete || pv.consent.is_some();
                    assert!(may, "{pv:?} is to be kept");
                }
            }
            Action::Create(draft) => {
                let path = &draft.volume.path;
                assert!(paths.insert(path), "{path} is offered twice, or cleaned and offered");
                assert!(pvs.iter().all(|pv| pv.name != draft.name), "{} is there", draft.name);
                let mut others = at(path).filter(|pv| pv.is_on(node));
                assert_eq!(others.next(), None, "{path} has a PV");
            }
            _ => {}
        }
    }
}
