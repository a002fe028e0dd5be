//! The scanner of one class on this machine: the only one that lists, probes and watches the class's directory.
//!
//! Each system call that touches the directory runs on a thread that the scanner can abandon. An entry that does not
//! answer in time is published as `TimedOut`, and is not probed again until its thread returns. Another thread
//! continues with the next entry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::config::Class;
use crate::host::Machine;
use crate::host::kubelet::KubeletDir;
use crate::host::mark::StateDir;
use crate::host::mounts;
use crate::host::watch::DirEvents;
use crate::types::{MountPath, SkipReason};

use super::classes::Taken;
use super::listing::Listing;
use super::mount_watch::{Concern, MountWatch};
use super::probe::probe;
use super::{BlockDisk, Disks, Finding, Observation, Scanner, Skip, Volume, disk};

/// The timeout of the first entry that does not answer. A healthy one takes microseconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of each further entry: where one disk is dead, its neighbours often are.
const NEXT_PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// The maximum number of stuck threads in one discovery directory.
const MAX_STUCK: usize = 64;

/// The warning that changes are not watched. The next scan would repeat it.
static WARNING: Once = Once::new();

/// What the threads of all classes are stuck on: an entry, or a discovery directory itself. They are in
/// uninterruptible system calls, as on a dead disk or network filesystem. Nothing waits for such a thread; it ends when
/// its call returns, also if its class was reconfigured meanwhile.
type StuckThreads = watch::Sender<BTreeSet<MountPath>>;

/// The discovery directories of this machine.
#[derive(Debug)]
pub struct LocalDisks {
    /// The state directory.
    pub state: StateDir,
    kubelet: Option<KubeletDir>,
    mounts: Arc<MountWatch>,
    stuck: StuckThreads,
}

impl LocalDisks {
    /// With the marks in a state directory, and the kubelet's mounts. Requires a tokio runtime with I/O.
    pub fn new(state: StateDir, kubelet: Option<KubeletDir>) -> Self {
        let mounts = Arc::new(MountWatch::default());
        let watch = Arc::clone(&mounts);
        // Changes count from now on, not when the task begins to run.
        let before = mounts::read().unwrap_or_default();
        tokio::spawn(async move {
            let Err(error) = watch.run(before).await;
            tracing::error!(%error, "changes of the mount table are noticed by the periodic scan only");
        });
        Self { state, kubelet, mounts, stuck: StuckThreads::default() }
    }

    /// The path of a discovery directory without links, as its last listing found it. It does not touch the disk,
    /// which may hang.
    pub fn real_dir(&self, dir: &MountPath) -> PathBuf {
        self.mounts.real_dir(dir.as_path())
    }
}

impl Disks for LocalDisks {
    fn scanner(&self, class: &Arc<Class>) -> Box<dyn Scanner> {
        Box::new(DirScanner {
            class: Arc::clone(class),
            state: self.state.clone(),
            kubelet: self.kubelet.clone(),
            mounts: Arc::clone(&self.mounts),
            mounts_changed: Arc::new(Notify::new()),
            events: None,
            seen: Arc::default(),
            returned: self.stuck.subscribe(),
            stuck: self.stuck.clone(),
        })
    }
}

#[derive(Debug)]
struct DirScanner {
    class: Arc<Class>,
    state: StateDir,
    kubelet: Option<KubeletDir>,
    mounts: Arc<MountWatch>,
    mounts_changed: Arc<Notify>,
    events: Option<DirEvents>,
    /// Locked by the survey that is under way.
    seen: Arc<Mutex<disk::Seen>>,
    stuck: StuckThreads,
    /// Changes when a stuck thread has returned.
    returned: watch::Receiver<BTreeSet<MountPath>>,
}

impl Scanner for DirScanner {
    fn scan<'a>(&'a mut self, taken: &'a Taken) -> BoxFuture<'a, Observation> {
        let scan = self.scan_dir(taken);
        scan.map(|scanned| scanned.unwrap_or_else(Observation::failed)).boxed()
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        let event = async move {
            tokio::select! {
                biased;
                () = self.mounts_changed.notified() => {}
                () = DirEvents::next_change(&mut self.events) => {}
                _ = self.returned.changed() => {}
            }
        };
        event.boxed()
    }
}

impl DirScanner {
    /// Lists the directory and probes each entry once.
    async fn scan_dir(&mut self, taken: &Taken) -> Result<Observation, String> {
        let listing = self.list().await?;
        let machine = Arc::new(listing.machine);
        let (mut entries, mut todo) = (BTreeMap::new(), Vec::new());
        for name in listing.names {
            match self.without_probe(&name) {
                Some(skip) => {
                    let name = name.unwrap_or_else(|escaped| escaped);
                    entries.insert(name, Finding::Skipped(skip));
                }
                None => todo.extend(name),
            }
        }
        let probed = self.probe_all(todo, &machine, taken, &mut entries).await;
        let disks = self.survey(&machine).await;
        let (disks, disks_fault) = match disks {
            Ok(disks) => (disks, None),
            Err(fault) => (Vec::new(), Some(fault)),
        };
        let fault = listing.fault.or(probed.err());
        let observation = Observation {
            entries: Arc::new(entries),
            pod_mounts: listing.pod_mounts,
            complete: fault.is_none(),
            fault,
            disks: Arc::new(disks),
            disks_fault,
        };
        // An unmount of one of these may free a device that is in use.
        let found = observation.volumes().map(|it| &it.candidate);
        let in_use = found.filter(|it| it.in_use.is_some());
        let devices = in_use.flat_map(|it| it.footprint.devices());
        let devices = devices.filter_map(|number| machine.sysfs.writable_through(*number).ok());
        let concern = Concern {
            dirs: [self.class.mount_dir.as_path().to_owned(), listing.real],
            devices: devices.flatten().collect(),
            changed: Arc::downgrade(&self.mounts_changed),
        };
        self.mounts.set(concern);
        Ok(observation)
    }

    /// Watches and lists the directory, and reads what the probes of all entries need.
    async fn list(&mut self) -> Result<Listing, String> {
        let dir = self.class.mount_dir.clone();
        let silent = format!("{dir}: the directory did not answer for {PROBE_TIMEOUT:?}");
        if self.is_stuck(&dir) {
            return Err(silent);
        }
        let events = self.events.take().map_or_else(DirEvents::new, Ok);
        let class = Arc::clone(&self.class);
        let (path, state, kubelet) = (dir.clone(), self.state.clone(), self.kubelet.clone());
        let mut thread = spawn_blocking(move || {
            let path = path.as_path();
            // First, so that no change after the reading is missed.
            let events = events.and_then(|mut events| events.set_dir(path).map(|()| events));
            (events, Listing::read(path, &class, &state, kubelet.as_ref()))
        });
        match tokio::time::timeout(PROBE_TIMEOUT, &mut thread).await {
            Ok(Ok((events, listing))) => {
                match events {
                    Ok(events) => self.events = Some(events),
                    Err(error) => WARNING.call_once(|| {
                        tracing::warn!(%error, "changes of discovery directories are noticed by the periodic scan only; if a limit is reached, raise the sysctls fs.inotify.max_user_instances and fs.inotify.max_user_watches");
                    }),
                }
                listing
            }
            Ok(Err(panic)) => Err(format!("listing the directory panicked: {panic} (bug)")),
            Err(_) => {
                self.leave_behind(dir, thread);
                Err(silent)
            }
        }
    }

    /// Finds the disks that the rule of the class matches.
    ///
    /// # Errors
    /// When the links cannot be listed, or a disk does not answer.
    async fn survey(&self, machine: &Arc<Machine>) -> Result<Vec<BlockDisk>, String> {
        let dir: MountPath = disk::DIR.parse().map_err(str::to_owned)?;
        let class = Arc::clone(&self.class);
        if class.devices.is_none() {
            return Ok(Vec::new());
        }
        let silent =
            format!("{dir}: a disk did not answer for {PROBE_TIMEOUT:?}, so none is taken in");
        // Of this class: the rule of another one may not match the disk that hangs.
        if self.seen.is_locked() {
            return Err(silent);
        }
        let (machine, seen) = (Arc::clone(machine), Arc::clone(&self.seen));
        let mut thread = spawn_blocking(move || disk::survey(&class, &machine, &mut seen.lock()));
        match tokio::time::timeout(PROBE_TIMEOUT, &mut thread).await {
            Ok(Ok(disks)) => disks
                .map_err(|error| format!("{dir} cannot be read, so no disk is taken in: {error}")),
            Ok(Err(panic)) => Err(format!("looking for disks panicked: {panic} (bug)")),
            Err(_) => {
                self.leave_behind(dir, thread);
                Err(silent)
            }
        }
    }

    /// Remembers a thread that is stuck on a path until it returns.
    fn leave_behind<T: Send + 'static>(&self, path: MountPath, thread: JoinHandle<T>) {
        let stuck = self.stuck.clone();
        stuck.send_if_modified(|paths| {
            paths.insert(path.clone());
            false
        });
        tokio::spawn(async move {
            let _ = thread.await;
            stuck.send_modify(|paths| {
                paths.remove(&path);
            });
        });
    }

    fn is_stuck(&self, path: &MountPath) -> bool {
        self.stuck.borrow().contains(path)
    }

    /// Why an entry is not probed.
    fn without_probe(&self, name: &Result<String, String>) -> Option<Skip> {
        let (dir, pattern) = (&self.class.mount_dir, &self.class.name_pattern);
        let (reason, why) = match name {
            Err(escaped) => (
                SkipReason::NameNotUtf8,
                format!(
                    "{dir}: the name \"{escaped}\" is not UTF-8, which a PersistentVolume cannot hold; rename it"
                ),
            ),
            Ok(name) if !pattern.matches(name) => (
                SkipReason::NamePatternMismatch,
                format!("{dir}/{name} does not match namePattern {pattern}"),
            ),
            Ok(name) if self.is_stuck(&dir.join(name)) => (
                SkipReason::TimedOut,
                format!("{dir}/{name} has not answered since an earlier scan"),
            ),
            Ok(_) => return None,
        };
        Some(Skip::new(reason, why))
    }

    /// Probes entries on one thread, and on another after each entry that hangs.
    ///
    /// # Errors
    /// When too many hang, so that the others were not probed.
    async fn probe_all(
        &self,
        names: Vec<String>,
        machine: &Arc<Machine>,
        taken: &Taken,
        entries: &mut BTreeMap<String, Finding>,
    ) -> Result<(), String> {
        let dir = &self.class.mount_dir;
        let mut todo = names.into_iter();
        let mut timeout = PROBE_TIMEOUT;
        while todo.len() > 0 {
            let is_here = |it: &&MountPath| it.as_path().starts_with(dir.as_path());
            if self.stuck.borrow().iter().filter(is_here).count() >= MAX_STUCK {
                return Err(format!(
                    "{dir}: {MAX_STUCK} entries do not answer; {} others were not probed",
                    todo.len()
                ));
            }
            let (send, found) = mpsc::channel();
            let (class, names) = (Arc::clone(&self.class), todo.as_slice().to_vec());
            let (machine, taken) = (Arc::clone(machine), taken.clone());
            // It ends when the receiver of its findings is dropped.
            let mut thread = spawn_blocking(move || {
                for name in names {
                    let found = probe(&class, &name, &machine, taken.as_deref());
                    if send.send(found).is_err() {
                        return;
                    }
                }
            });
            let ended = loop {
                let ended = tokio::time::timeout(timeout, &mut thread).await;
                let before = todo.len();
                let probed = found.try_iter().zip(todo.by_ref());
                entries.extend(probed.filter_map(|(found, name)| {
                    let volume = |it| Volume::new(&self.class, &name, it);
                    let found = found.transpose()?.map(|it| Finding::Volume(Arc::new(volume(it))));
                    Some((name, found.unwrap_or_else(Finding::Skipped)))
                }));
                // A thread that makes progress is not stuck.
                if ended.is_ok() || todo.len() == before {
                    break ended;
                }
            };
            let Some(name) = todo.next() else { break };
            let skip = if let Ok(ended) = ended {
                let why = format!("{dir}/{name}: the probe panicked: {ended:?} (bug)");
                Skip::new(SkipReason::Unreadable, why)
            } else {
                self.leave_behind(dir.join(&name), thread);
                let why = format!("{dir}: the entry {name:?} did not answer for {timeout:?}");
                timeout = NEXT_PROBE_TIMEOUT;
                Skip::new(SkipReason::TimedOut, why)
            };
            entries.insert(name, Finding::Skipped(skip));
        }
        Ok(())
    }
}
