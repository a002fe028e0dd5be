//! The machines of a cluster: disks, the places where they are plugged in, and what tenants wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use control_plane::{Store, resource};
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::host::mark::MarkOnDisk;
use local_volume_provisioner::types::VolumeMode;
use serde_json::Value;
use tokio::sync::Notify;

use crate::links::Bindings;
use crate::made::Made;
use crate::process;
use crate::spares::Spares;

/// The nodes; most worlds have the first ones only.
pub const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The classes: the first has filesystems and devices, the second devices only.
pub const CLASSES: [&str; 2] = ["c0", "c1"];

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Disk {
    pub kind: VolumeMode,
    pub gib: u64,
    /// The node where it is or was last.
    pub node: Option<usize>,
    pub global: GlobalIdentity,
    pub hangs: bool,
    /// The mark of a filesystem. It moves with the disk.
    pub mark: MarkOnDisk,
    /// The tenant who has written data, by the UID of its claim.
    pub data: Option<String>,
    /// The nodes and PVs, by name, for which a kubelet has it mounted.
    pub mounted_for: BTreeSet<(usize, String)>,
    pub is_wiped: bool,
    /// When the last wipe began.
    pub wiped_since: Duration,
    pub next_wipe_fails: bool,
    pub lock: Option<Lock>,
    /// How often it was plugged in: what was open before fails.
    pub plugged: u32,
    /// Whether nothing but an administrator can know what is on it, since its mark was tampered with.
    pub is_forged: bool,
    /// Whether an administrator permits to wipe it.
    pub has_consent: bool,
    /// The filesystem that a provisioner makes on it.
    pub made: Made,
}

impl Disk {
    pub fn new(kind: VolumeMode, gib: u64, global: GlobalIdentity) -> Self {
        Self {
            kind,
            gib,
            node: None,
            global,
            hangs: false,
            mark: MarkOnDisk::Absent,
            data: None,
            mounted_for: BTreeSet::new(),
            is_wiped: false,
            wiped_since: Duration::ZERO,
            next_wipe_fails: false,
            lock: None,
            plugged: 0,
            is_forged: false,
            has_consent: false,
            made: Made::default(),
        }
    }

    /// The disk is plugged in or out: what has it open fails.
    pub fn unplug(&mut self) {
        self.plugged += 1;
        (self.is_wiped, self.lock, self.made.lock) = (false, None, None);
    }

    fn unlock(&mut self, is_it: impl Fn(Lock) -> bool) {
        for place in [&mut self.lock, &mut self.made.lock] {
            if place.is_some_and(&is_it) {
                *place = None;
                self.is_wiped = false;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    number: u64,
    /// The process that holds it; `None`: the pod of a Job.
    process: Option<u64>,
}

/// An entry in a discovery directory of a node.
#[derive(Debug)]
pub struct Slot {
    pub node: usize,
    pub class: usize,
    /// On the host, and in the container.
    pub path: String,
    pub disk: Option<usize>,
    /// Where the disk belongs.
    pub home: Option<usize>,
    /// When another disk was plugged in.
    pub changed_at: Duration,
}

impl Slot {
    pub fn new(node: usize, class: usize, entry: usize, disk: Option<usize>) -> Self {
        Self {
            node,
            class,
            path: format!("/mnt/{}/d{entry}", CLASSES[class]),
            disk,
            home: disk,
            changed_at: Duration::ZERO,
        }
    }
}

#[derive(Debug, Default)]
pub struct State {
    pub disks: Vec<Disk>,
    pub slots: Vec<Slot>,
    /// The marks of devices, in the state directories of the nodes.
    pub marks: BTreeMap<(usize, usize), MarkOnDisk>,
    pub violations: Vec<String>,
    /// The PVs that an administrator made or changed, by UID.
    pub by_hand: BTreeSet<String>,
    /// The disks that provisioners made PVs for, by UID.
    pub made_for: BTreeMap<String, usize>,
    /// Since when PVs are gone, by UID.
    pub gone_at: BTreeMap<String, Duration>,
    /// Whether watches show an earlier state.
    pub is_stale: bool,
    /// When etcd was last restored from a backup.
    pub rolled_back_at: Duration,
    /// Since when cleaning is paused.
    pub paused_at: Option<Duration>,
    /// Since when the policy of PVs is Retain, by UID.
    pub retained_at: BTreeMap<String, Duration>,
    pub bindings: Bindings,
    pub spares: Spares,
    locks: u64,
    processes: u64,
    pub wipes: u64,
    /// When requests were answered, and how long that took, if it was longer than a moment.
    pub slow: Vec<(Duration, Duration)>,
    /// The durable effects of processes so far, and the one after which the process crashes.
    pub effects: u64,
    pub crash_after: Option<u64>,
    /// Counts the changes.
    pub version: u64,
}

impl State {
    /// Records that something that must hold does not, and when.
    pub fn violation(&mut self, text: &str) {
        let at = process::elapsed().as_secs_f64();
        self.violations.push(format!("{at:.3} {text}"));
    }

    /// The slot at a path of a node.
    pub fn slot(&self, node: usize, path: &str) -> Option<usize> {
        let mut slots = self.slots.iter();
        slots.position(|slot| slot.node == node && slot.path == path)
    }

    /// Where a disk is plugged in on a node.
    pub fn slot_of(&self, node: usize, disk: usize) -> Option<&Slot> {
        let mut slots = self.slots.iter();
        slots.find(|slot| slot.node == node && slot.disk == Some(disk))
    }

    /// Plugs disks in. What is open and mounted of them fails.
    pub fn plug(&mut self, slot: usize, disk: Option<usize>) {
        let before = std::mem::replace(&mut self.slots[slot].disk, disk);
        self.slots[slot].changed_at = process::elapsed();
        for disk in before.into_iter().chain(disk) {
            self.disks[disk].unplug();
        }
        let node = self.slots[slot].node;
        if let Some(disk) = disk.map(|disk| &mut self.disks[disk])
            && disk.node.replace(node) != Some(node)
        {
            disk.mounted_for.clear();
        }
    }

    /// Whether a disk may be moved to a node. A device with data has its mark on its node: elsewhere nothing protects it
    /// but a PV, and that only if its identity is unique.
    pub fn may_be_on(&self, node: usize, disk: usize) -> bool {
        let disk = &self.disks[disk];
        disk.kind == VolumeMode::Filesystem || disk.data.is_none() || disk.node == Some(node)
    }
}

/// The machines. They survive the provisioners' processes.
#[derive(Debug)]
pub struct World {
    state: Mutex<State>,
    pub store: Store,
    /// Wakes in the order of the waiters, which a channel does not.
    changed: Notify,
    /// Whether mount tables show the kubelets' mounts.
    pub shows_mounts: bool,
}

/// A pause of up to this many milliseconds.
pub async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..=millis))).await;
}

impl World {
    pub fn new(store: Store, mut disks: Vec<Disk>, slots: Vec<Slot>) -> Arc<Self> {
        for slot in &slots {
            if let Some(disk) = slot.disk {
                disks[disk].node = Some(slot.node);
            }
        }
        Arc::new(Self {
            state: Mutex::new(State { disks, slots, ..State::default() }),
            store,
            changed: Notify::new(),
            shows_mounts: fastrand::bool(),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Changes the machines, and notifies all who wait for it.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        state.version += 1;
        let changed = change(&mut state);
        self.changed.notify_waiters();
        changed
    }

    /// Waits until something holds. Cancel-safe.
    pub async fn until(&self, mut holds: impl FnMut(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until a disk answers.
    pub async fn answers(&self, disk: usize) {
        pause(20).await;
        self.until(|state| !state.disks[disk].hangs).await;
    }

    pub fn violation(&self, text: &str) {
        self.lock().violation(text);
    }

    pub fn pvs(&self) -> Vec<Arc<Value>> {
        self.store.list(&resource::PERSISTENT_VOLUMES, None).items
    }

    /// Counts a durable effect of a process. Returns whether the process crashes now.
    pub fn count_effect(&self) -> bool {
        let mut state = self.lock();
        state.effects += 1;
        let crashes = state.crash_after == Some(state.effects);
        if crashes {
            state.crash_after = None;
        }
        crashes
    }

    /// Locks a disk. `None` if it is locked.
    pub fn take_lock(&self, disk: usize, process: Option<u64>) -> Option<Lock> {
        self.take(process, |state| &mut state.disks[disk].lock)
    }

    /// Locks the device of a filesystem, whose root has another lock.
    pub fn take_lock_of_device(&self, disk: usize, process: u64) -> Option<Lock> {
        self.take(Some(process), |state| &mut state.disks[disk].made.lock)
    }

    fn take(
        &self,
        process: Option<u64>,
        place: impl Fn(&mut State) -> &mut Option<Lock>,
    ) -> Option<Lock> {
        let mut state = self.lock();
        if place(&mut state).is_some() {
            return None;
        }
        state.locks += 1;
        let number = state.locks;
        *place(&mut state) = Some(Lock { number, process });
        *place(&mut state)
    }

    pub fn unlock(&self, disk: usize, lock: Lock) {
        self.lock().disks[disk].unlock(|it| it == lock);
    }

    /// The number of a new process.
    pub fn next_process(&self) -> u64 {
        let mut state = self.lock();
        state.processes += 1;
        state.processes
    }

    /// A process is gone: its locks are free, and its wipes have stopped.
    pub fn process_ended(&self, process: u64) {
        self.change(|state| {
            state.bindings.serving.remove(&process);
            let of_process = |lock: Lock| lock.process == Some(process);
            for disk in &mut state.disks {
                disk.unlock(of_process);
            }
        });
    }
}
