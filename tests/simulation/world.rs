//! The disks of the simulated machine, and the checks of what happens to them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use control_plane::{Store, resource};
use local_volume_provisioner::host::footprint::Footprint;
use local_volume_provisioner::host::identity::{GlobalIdentity, Identity};
use local_volume_provisioner::host::mark::{MarkFact, MarkOnDisk, Place};
use local_volume_provisioner::host::mounts::DeviceNumber;
use local_volume_provisioner::inventory::{Candidate, Contents};
use local_volume_provisioner::names::FINALIZER;
use local_volume_provisioner::types::VolumeMode;
use serde_json::Value;
use tokio::sync::Notify;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Disk {
    pub class: String,
    /// Its path on the host, and in the container.
    pub path: String,
    pub kind: VolumeMode,
    pub global: GlobalIdentity,
    pub is_present: bool,
    pub hangs: bool,
    /// Its mark, which survives the provisioner's process.
    pub mark: MarkOnDisk,
    /// The PV whose tenant has written data, by its UID.
    pub data: Option<String>,
    /// The PVs, by name, for which the kubelet has it mounted.
    pub mounted_for: BTreeSet<String>,
    pub is_wiped: bool,
    pub next_wipe_fails: bool,
    /// The number of the lock that is held.
    pub lock: Option<u64>,
    /// Whether a Job's pod holds it.
    pub is_locked_by_job: bool,
}

#[derive(Debug)]
pub struct State {
    pub disks: Vec<Disk>,
    pub violations: Vec<String>,
    locks: u64,
    pub wipes: u64,
    /// Counts the changes.
    pub version: u64,
}

/// What a wipe is for.
#[derive(Clone, Debug)]
pub struct Wipe {
    pub path: String,
    pub pv: String,
    pub pv_uid: String,
    pub identity: String,
}

/// The machine. It survives the provisioner's process.
#[derive(Debug)]
pub struct World {
    state: Mutex<State>,
    pub store: Store,
    /// Wakes in the order of the waiters, which a channel does not.
    changed: Notify,
    /// Whether the mount table shows the kubelet's mounts.
    pub shows_mounts: bool,
}

/// A pause of up to this many milliseconds.
pub async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..=millis))).await;
}

impl World {
    pub fn new(store: Store, disks: Vec<Disk>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                disks,
                violations: Vec::new(),
                locks: 0,
                wipes: 0,
                version: 0,
            }),
            store,
            changed: Notify::new(),
            shows_mounts: fastrand::bool(),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Changes the machine, and notifies all who wait for it.
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
    pub async fn answers(&self, at: usize) {
        pause(20).await;
        self.until(|state| !state.disks[at].hangs).await;
    }

    pub fn violation(&self, text: String) {
        self.lock().violations.push(text);
    }

    pub fn pvs(&self) -> Vec<Arc<Value>> {
        self.store.list(&resource::PERSISTENT_VOLUMES, None).items
    }

    /// Checks a wipe at the moment at which it destroys data.
    pub fn check_wipe(&self, at: usize, lock: Option<u64>, wipe: &Wipe) {
        let pv = self.store.get(&resource::PERSISTENT_VOLUMES, "", &wipe.pv);
        let state = self.lock();
        let disk = &state.disks[at];
        let pv = pv.map(|pv| (*pv).clone()).unwrap_or_default();
        let metadata = &pv["metadata"];
        let finalizers = metadata["finalizers"].as_array();
        let owner = disk.data.as_ref();
        let mut faults = Vec::new();
        for (is_fault, fault) in [
            (metadata["uid"] != wipe.pv_uid, "its PV is gone"),
            (
                !metadata["deletionTimestamp"].is_string(),
                "its PV is not Terminating",
            ),
            (
                !finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER)),
                "its PV lacks the finalizer",
            ),
            (
                pv["spec"]["local"]["path"] != disk.path,
                "it is another PV's",
            ),
            (
                owner.is_some_and(|owner| *owner != wipe.pv_uid),
                "the data is another tenant's",
            ),
            (!disk.mounted_for.is_empty(), "it is in use"),
            (lock.is_some() && disk.lock != lock, "it is not locked"),
            (
                wipe.identity != identity(at, disk.kind),
                "it is another disk",
            ),
        ] {
            if is_fault {
                faults.push(fault);
            }
        }
        let path = disk.path.clone();
        drop(state);
        if !faults.is_empty() {
            self.violation(format!("{path} is wiped, but {}", faults.join(", and ")));
        }
    }

    /// Checks a new PV.
    pub fn check_offer(&self, pv: &Value) {
        let path = &pv["spec"]["local"]["path"];
        let all = self.pvs();
        let same = all.iter().filter(|pv| pv["spec"]["local"]["path"] == *path);
        if same.count() > 1 {
            self.violation(format!("{path} has two PVs"));
        }
        let state = self.lock();
        let disk = state.disks.iter().find(|disk| *path == disk.path);
        let data = disk.and_then(|disk| disk.data.clone());
        drop(state);
        if let Some(tenant) = data.filter(|tenant| pv["metadata"]["uid"] != **tenant) {
            self.violation(format!("{path} is offered with the data of {tenant}"));
        }
    }

    pub fn find(&self, path: &str) -> usize {
        let state = self.lock();
        let at = state.disks.iter().position(|disk| disk.path == path);
        at.expect("only entries are looked at")
    }

    /// A wipe has ended well.
    pub fn wiped(&self, at: usize) {
        let mut state = self.lock();
        state.disks[at].data = None;
        state.wipes += 1;
    }

    /// Locks a disk. `None` if it is locked.
    pub fn take_lock(&self, at: usize, by_job: bool) -> Option<u64> {
        let mut state = self.lock();
        if state.disks[at].lock.is_some() {
            return None;
        }
        state.locks += 1;
        let lock = state.locks;
        state.disks[at].lock = Some(lock);
        state.disks[at].is_locked_by_job = by_job;
        Some(lock)
    }

    pub fn unlock(&self, at: usize, lock: u64) {
        let disk = &mut self.lock().disks[at];
        if disk.lock == Some(lock) {
            disk.lock = None;
            disk.is_wiped = false;
        }
    }

    /// The process is gone: its locks are free, and its wipes have stopped.
    pub fn process_ended(&self) {
        self.change(|state| {
            for disk in state.disks.iter_mut().filter(|it| !it.is_locked_by_job) {
                disk.lock = None;
                disk.is_wiped = false;
            }
        });
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap() + 1
}

fn identity(at: usize, kind: VolumeMode) -> String {
    match kind {
        VolumeMode::Filesystem => format!("v1:fs=ext4,root=/,uuid=u{}", number(at)),
        VolumeMode::Block => format!("v1:wwid=disk-{}", number(at)),
    }
}

/// What a look at a disk finds.
pub fn candidate(at: usize, disk: &Disk, reads: bool) -> Candidate {
    let device = DeviceNumber {
        major: 8,
        minor: 16 * number(at),
    };
    let below = BTreeSet::from([device]);
    let footprint = match disk.kind {
        VolumeMode::Filesystem => Footprint::Filesystem {
            devices: below,
            fs: device,
            root: "/".into(),
        },
        VolumeMode::Block => Footprint::Device {
            number: device,
            below,
            wwid: Some(format!("disk-{}", number(at))),
        },
    };
    let text = identity(at, disk.kind);
    Candidate {
        kind: disk.kind,
        capacity: u64::from(number(at)) << 30,
        identity: Identity { text, weak: false },
        global: Some(disk.global.clone()),
        footprint,
        read_only: false,
        in_use: None,
        contents: match &disk.data {
            _ if !reads => Contents::NotLookedAt,
            None => Contents::Empty,
            Some(_) => Contents::Holds("a file".into()),
        },
        rotational: BTreeSet::new(),
        mark: MarkFact {
            on_disk: disk.mark.clone(),
            place: Some(match disk.kind {
                VolumeMode::Filesystem => Place::Attribute,
                VolumeMode::Block => Place::StateDirectory,
            }),
        },
        is_as_offered: disk.kind == VolumeMode::Filesystem || disk.data.is_none(),
    }
}
