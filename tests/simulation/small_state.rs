//! A state of the small world, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use local_volume_provisioner::config::{Loaded, from_files};
use local_volume_provisioner::host::boot::BootTime;
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::host::mark::{Mark, MarkOnDisk, MarkState};
use local_volume_provisioner::inventory::{Candidate, Finding, Observation, Skip, Volume};
use local_volume_provisioner::names::LABEL_HOSTNAME;
use local_volume_provisioner::plan::{Ledger, Settings, Snapshot};
use local_volume_provisioner::types::{SkipReason, VolumeMode};
use local_volume_provisioner::view::{
    ClaimRef, NodeView, Phase, PvView, ReclaimPolicy, StorageClassView,
};

use crate::small_key::free;
use crate::world::{CLASSES, Disk as SimDisk, NODES, State};

pub const DISKS: usize = 2;
pub const CLUSTER: &str = "cluster";

/// With and without the class of the volumes.
static CONFIGURATIONS: LazyLock<[Settings; 2]> = LazyLock::new(|| {
    [0, 1].map(|class| {
        let name = CLASSES[class];
        let classes = format!("{name}: {{hostDir: /mnt/{name}, mountDir: /mnt/{name}}}");
        let protect = ("protectReleasedData".to_owned(), "true".to_owned());
        let files = BTreeMap::from([("storageClassMap".to_owned(), classes), protect]);
        let loaded: Loaded = from_files(&files).unwrap();
        Settings::of(&loaded, 1, None, Some(CLUSTER.into()))
    })
});

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pass, and all that it does.
    Pass,
    /// A pass whose process crashes after this number of durable effects.
    PassUntil(usize),
    Crash,
    /// A claim is bound to the PV of a slot.
    Bind(usize),
    /// The tenant writes.
    Write,
    /// The claim is deleted.
    Release,
    Delete(usize),
    DeleteByForce(usize),
    Pull(usize),
    Plug(usize, usize),
    Swap,
    LoseMark(usize),
    /// A disk gets the mark of the other one.
    CopyMark(usize),
    BackUp,
    RollBack,
    ChangeClass,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The claim whose tenant has written data.
    pub data: Option<String>,
    pub mark: MarkOnDisk,
    /// Whether nothing but an administrator can know what is on it.
    pub is_forged: bool,
    /// Whether the process has searched the PV of its mark.
    pub is_searched: bool,
}

impl Disk {
    pub fn set_mark(&mut self, mark: MarkOnDisk) {
        (self.mark, self.is_searched) = (mark, false);
    }
}

#[derive(Clone, Debug)]
pub struct Small {
    pub disks: [Disk; DISKS],
    pub slots: [Option<usize>; DISKS],
    /// By name.
    pub pvs: BTreeMap<String, PvView>,
    pub has_class: bool,
    pub backup: Option<BTreeMap<String, PvView>>,
    /// What the process remembers.
    pub ended: BTreeSet<(String, String)>,
    /// The disks with which a pass has judged PVs that had no tenant, by UID.
    pub judged: BTreeMap<String, usize>,
    /// What must not happen, and did.
    pub fault: Option<String>,
}

pub fn path(slot: usize) -> String {
    format!("/mnt/{}/d{slot}", CLASSES[0])
}

fn date() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

/// Whether the running process has written a mark.
pub fn is_own(mark: &Mark) -> bool {
    mark.written_at >= date()
}

fn node() -> NodeView {
    let hostname = NODES[0].to_owned();
    NodeView {
        name: hostname.clone(),
        uid: "node".into(),
        labels: BTreeMap::from([(LABEL_HOSTNAME.to_owned(), hostname.clone())]),
        hostname,
        paused: false,
        consents: BTreeSet::new(),
        approvals: BTreeMap::new(),
    }
}

impl Small {
    pub fn new() -> Self {
        Self {
            disks: Default::default(),
            slots: [Some(0), Some(1)],
            pvs: BTreeMap::new(),
            has_class: true,
            backup: None,
            ended: BTreeSet::new(),
            judged: BTreeMap::new(),
            fault: None,
        }
    }

    pub fn settings(&self) -> &'static Settings {
        &CONFIGURATIONS[usize::from(!self.has_class)]
    }

    /// What may happen next, and the state after it.
    pub fn successors(&self) -> Vec<(Event, Self)> {
        let mut all = Vec::new();
        let (whole, effects) = self.pass(usize::MAX);
        all.push((Event::Pass, whole));
        for limit in 1..effects {
            all.push((Event::PassUntil(limit), self.pass(limit).0));
        }
        let mut events = vec![
            Event::Crash,
            Event::Write,
            Event::Release,
            Event::Swap,
            Event::BackUp,
            Event::RollBack,
            Event::ChangeClass,
        ];
        for at in 0..DISKS {
            events.extend([
                Event::Bind(at),
                Event::Delete(at),
                Event::DeleteByForce(at),
                Event::Pull(at),
                Event::Plug(at, 0),
                Event::Plug(at, 1),
                Event::LoseMark(at),
                Event::CopyMark(at),
            ]);
        }
        let after = |event| Some((event, self.after(event)?));
        all.extend(events.into_iter().filter_map(after));
        all
    }

    /// `None`: it cannot happen.
    fn after(&self, event: Event) -> Option<Self> {
        let mut next = self.clone();
        let named = |slot| {
            let mut pvs = self.pvs.values();
            let pv = pvs.find(|pv| pv.path().is_some_and(|it| it.as_str() == path(slot)));
            pv.map(|pv| pv.name.clone())
        };
        match event {
            Event::Pass | Event::PassUntil(_) => unreachable!("they have effects"),
            Event::Crash => next.forget(),
            Event::Bind(slot) => next.bind(&named(slot)?)?,
            Event::Write => next.write()?,
            Event::Release => {
                let mut pvs = next.pvs.values_mut();
                let pv = pvs.find(|pv| pv.phase == Phase::Bound)?;
                pv.phase = Phase::Released;
                let name = pv.name.clone();
                next.settle(&name);
            }
            Event::Delete(slot) => {
                let name = named(slot)?;
                let pv = next.pvs.get_mut(&name).filter(|pv| !pv.deleting)?;
                pv.deleting = true;
                next.settle(&name);
            }
            Event::DeleteByForce(slot) => next.remove(&named(slot)?),
            Event::Pull(slot) => drop(next.slots[slot].take()?),
            Event::Plug(slot, disk) => {
                let is_free = next.slots[slot].is_none() && !next.slots.contains(&Some(disk));
                next.slots[slot] = is_free.then_some(Some(disk))?;
            }
            Event::Swap => next.slots.swap(0, 1),
            Event::LoseMark(disk) => {
                let disk = &mut next.disks[disk];
                disk.mark.valid()?;
                disk.set_mark(MarkOnDisk::Absent);
                disk.is_forged = true;
            }
            Event::CopyMark(disk) => {
                let Disk { mark, is_searched, .. } = self.disks[1 - disk].clone();
                let disk = &mut next.disks[disk];
                disk.set_mark(mark);
                (disk.is_forged, disk.is_searched) = (true, is_searched);
            }
            Event::BackUp => {
                next.backup = self.backup.is_none().then(|| self.pvs.clone());
                next.backup.as_ref()?;
            }
            Event::RollBack => next.roll_back()?,
            Event::ChangeClass => next.has_class = !next.has_class,
        }
        Some(next)
    }

    /// A new process remembers nothing, and finds that no mark is its own.
    pub fn forget(&mut self) {
        self.ended.clear();
        for disk in &mut self.disks {
            disk.is_searched = false;
            if let MarkOnDisk::Valid(mark) = &mut disk.mark {
                mark.written_at = date() - SignedDuration::from_hours(1);
            }
        }
    }

    fn bind(&mut self, name: &str) -> Option<()> {
        let all = || self.pvs.values().chain(self.backup.iter().flat_map(BTreeMap::values));
        let is_bound = self.pvs.values().any(|pv| pv.phase == Phase::Bound);
        let claims = all().filter_map(|pv| Some(pv.claim.as_ref()?.name.as_str()));
        let data = self.disks.iter().filter_map(|disk| disk.data.as_deref());
        let marks = self.disks.iter().filter_map(|disk| disk.mark.valid()?.claim.as_deref());
        let marks = marks.map(|it| it.trim_start_matches("default/"));
        let claim = free("claim", claims.chain(data).chain(marks));
        let pv = self.pvs.get_mut(name).filter(|_| !is_bound)?;
        let is_free = pv.phase == Phase::Available && !pv.deleting && pv.claim.is_none();
        is_free.then_some(())?;
        (pv.phase, pv.bound_by_controller) = (Phase::Bound, true);
        pv.claim =
            Some(ClaimRef { namespace: "default".into(), name: claim.clone(), uid: Some(claim) });
        Some(())
    }

    /// The tenant reads and writes what is at the path of its PV.
    fn write(&mut self) -> Option<()> {
        let pv = self.pvs.values().find(|pv| pv.phase == Phase::Bound)?;
        let at = self.at(pv)?;
        let claim = pv.claim.as_ref()?.name.clone();
        let is_its_disk = pv.identity.as_ref() == Some(&self.candidate(at).identity.text);
        let disk = &mut self.disks[at];
        // What is written to another disk is lost: the path does not prove the disk.
        if !is_its_disk || disk.data.as_ref() == Some(&claim) {
            return None;
        }
        let before = disk.data.replace(claim).filter(|_| !disk.is_forged);
        let is_judged = self.judged.get(&pv.uid) == Some(&at);
        if let Some(before) = before.as_ref().filter(|_| is_judged) {
            let fault = format!("the tenant of {} finds the data of {before}", pv.name);
            self.fault = Some(fault);
        }
        // It came before the provisioner could look, or its PV was restored after the wipe.
        disk.is_forged |= before.is_some() || disk.mark.is_free();
        Some(())
    }

    /// The API server is as it was.
    fn roll_back(&mut self) -> Option<()> {
        self.pvs = self.backup.clone()?;
        self.judged.clear();
        for disk in &mut self.disks {
            let is_used = disk.mark.valid().is_some_and(|it| it.state >= MarkState::Used);
            disk.is_forged |= disk.data.is_some() && !is_used;
        }
        Some(())
    }

    /// The disk at a path.
    pub fn at_path(&self, wanted: &str) -> Option<usize> {
        let slot = (0..DISKS).find(|slot| path(*slot) == wanted)?;
        self.slots[slot]
    }

    /// The disk at a PV's path.
    pub fn at(&self, pv: &PvView) -> Option<usize> {
        self.at_path(pv.path()?.as_str())
    }

    /// A PV is gone.
    pub fn remove(&mut self, name: &str) {
        let pv = self.pvs.remove(name).unwrap();
        self.judged.remove(&pv.uid);
        if let Some(offer) = pv.offer.clone().filter(|_| pv.had_no_tenant()) {
            self.ended.insert((offer, pv.uid));
        }
    }

    /// A Terminating PV goes when nothing holds it.
    pub fn settle(&mut self, name: &str) {
        let pv = &self.pvs[name];
        if pv.deleting && pv.phase != Phase::Bound && !pv.has_finalizer() {
            self.remove(name);
        }
    }

    pub fn candidate(&self, at: usize) -> Candidate {
        let mut state = State::default();
        for disk in &self.disks {
            let global = GlobalIdentity { hash: String::new(), is_unique: false, is_shared: false };
            let mut copy = SimDisk::new(VolumeMode::Filesystem, 1, global);
            copy.data.clone_from(&disk.data);
            state.disks.push(copy);
        }
        state.set_mark(0, at, self.disks[at].mark.clone());
        let is_taken = self.pvs.values().any(|pv| self.at(pv) == Some(at));
        let reads = self.disks[at].mark != MarkOnDisk::Absent && !is_taken;
        let candidate = state.candidate(0, at, reads);
        Candidate { global: None, ..candidate }
    }

    pub fn snapshot(&self) -> Snapshot {
        let (name, class) = self.settings().config.classes.first_key_value().unwrap();
        let entries = (0..DISKS).map(|slot| {
            let entry = format!("d{slot}");
            let finding = match self.slots[slot] {
                Some(disk) => {
                    let volume = Volume::new(class, &entry, self.candidate(disk));
                    Finding::Volume(Arc::new(volume))
                }
                None => Finding::Skipped(Skip::new(SkipReason::NotMounted, "not mounted").gone()),
            };
            (entry, finding)
        });
        let observation = Observation {
            entries: Arc::new(entries.filter(|_| self.has_class).collect()),
            complete: true,
            ..Observation::default()
        };
        let storage_class = StorageClassView {
            reclaim_policy: ReclaimPolicy::Delete,
            mount_options: Vec::new(),
            expandable: false,
        };
        let searched = self.disks.iter().filter(|disk| disk.is_searched);
        Snapshot {
            node: Some(node()),
            storage_classes: BTreeMap::from([(name.clone(), Some(storage_class))]),
            observed: BTreeMap::from([(name.clone(), observation)]),
            pvs: Some(self.pvs.values().cloned().collect()),
            ledger: Ledger {
                searched: searched.map(|disk| disk.mark.digest()).collect(),
                ..Ledger::default()
            },
            ended: self.ended.clone(),
            now: Duration::from_secs(100),
            date: date() + SignedDuration::from_secs(100),
            boot_time: Some(BootTime { boot_id: "boot".into(), seconds: 100 }),
            ..Snapshot::default()
        }
    }
}
