//! The scanner of one class on this machine: the only one that lists, probes and watches the class's directory.
//!
//! Each system call that touches the directory runs on a thread that the scanner can abandon. An entry that does not
//! answer in time is published as `TimedOut`, and is not probed again until its thread returns. Another thread
//! continues with the next entry.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::config::Class;
use crate::host::footprint::Footprint;
use crate::host::mounts::DeviceNumber;
use crate::host::watch::{DirEvents, MountEvents};
use crate::types::SkipReason;

use super::classes::Taken;
use super::listing::{Listing, Name};
use super::mount_watch::{Concern, MountWatch};
use super::probe::{Machine, probe};
use super::stuck::{MAX_STUCK, Stuck};
use super::{Disks, Entry, Finding, Observation, Scanner, Skip};

/// The timeout of the first entry that does not answer. A healthy one takes microseconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of each further entry: where one disk is dead, its neighbours often are.
const NEXT_PROBE_TIMEOUT: Duration = Duration::from_millis(100);
/// The name of a stuck thread that lists the directory.
const DIRECTORY: &str = "/";

/// The discovery directories of this machine.
#[derive(Debug)]
pub struct LocalDisks {
    mounts: Arc<MountWatch>,
    watching: JoinHandle<()>,
}

impl Default for LocalDisks {
    /// Starts to watch the mount table. Requires a tokio runtime with I/O.
    fn default() -> Self {
        let mounts = Arc::new(MountWatch::default());
        let watch = Arc::clone(&mounts);
        let events = MountEvents::new();
        let watching = tokio::spawn(async move {
            let ended = match events {
                Ok(events) => watch.run(events).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::error!(%error, "changes of the mount table are noticed by the periodic scan only");
            }
        });
        Self { mounts, watching }
    }
}

impl Drop for LocalDisks {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Disks for LocalDisks {
    fn scanner(&self, class: &Arc<Class>) -> Box<dyn Scanner> {
        Box::new(DirScanner {
            class: Arc::clone(class),
            mounts: Arc::clone(&self.mounts),
            mounts_changed: Arc::new(Notify::new()),
            events: None,
            stuck: Stuck::default(),
            warning: String::new(),
        })
    }
}

#[derive(Debug)]
struct DirScanner {
    class: Arc<Class>,
    mounts: Arc<MountWatch>,
    mounts_changed: Arc<Notify>,
    events: Option<DirEvents>,
    stuck: Stuck,
    /// The last logged warning that changes are not watched.
    warning: String,
}

impl Scanner for DirScanner {
    fn scan<'a>(&'a mut self, taken: &'a Taken) -> BoxFuture<'a, Observation> {
        self.scan_dir(taken).boxed()
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        self.event().boxed()
    }
}

/// What a probing thread has found so far.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    /// The devices through which the devices in use can be written.
    in_use: BTreeSet<DeviceNumber>,
    abandoned: bool,
}

impl DirScanner {
    async fn event(&mut self) {
        let in_dir = async {
            match &mut self.events {
                Some(events) => events.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.mounts_changed.notified() => {}
            changed = in_dir => if let Err(error) = changed {
                self.events = None;
                self.warn(format!("reading events: {error}"));
            },
            () = self.stuck.returned() => {}
        }
    }

    fn warn(&mut self, warning: String) {
        if self.warning != warning {
            let dir = &self.class.mount_dir;
            tracing::warn!(%dir, "changes are noticed by the periodic scan only: {warning}");
            self.warning = warning;
        }
    }

    /// Lists the directory and probes each entry once.
    async fn scan_dir(&mut self, taken: &Taken) -> Observation {
        self.stuck.forget_returned();
        let listing = match self.list().await {
            Ok(listing) => listing,
            Err(fault) => return Observation::failed(fault),
        };
        let machine = match listing.machine {
            Ok(machine) => Arc::new(machine),
            Err(error) => {
                return Observation::failed(format!(
                    "the mount table cannot be read: {error}; is /proc mounted?"
                ));
            }
        };
        let mut fault = listing.fault;
        let mut entries = Vec::with_capacity(listing.names.len());
        let mut todo = Vec::new();
        for name in listing.names {
            match self.without_probe(&name) {
                Some(finding) => entries.push(Entry {
                    name: name.text,
                    finding,
                }),
                None => todo.push(name.text),
            }
        }
        let in_use = self
            .probe_all(todo, &machine, taken, &mut entries, &mut fault)
            .await;
        let dirs = vec![self.class.mount_dir.as_path().to_owned(), listing.real];
        let concern = Concern::new(&machine.mounts, dirs, in_use, &self.mounts_changed);
        self.mounts.set(&self.class.name, concern);
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Observation {
            entries,
            complete: fault.is_none(),
            fault,
        }
    }

    /// Watches and lists the directory, and reads what the probes of all entries need.
    async fn list(&mut self) -> Result<Listing, String> {
        let dir = self.class.mount_dir.as_path().to_owned();
        let silent = format!(
            "{}: the directory did not answer for {PROBE_TIMEOUT:?}",
            dir.display()
        );
        if self.stuck.contains(DIRECTORY) {
            return Err(silent);
        }
        if self.events.is_none() {
            match DirEvents::new() {
                Ok(events) => self.events = Some(events),
                Err(error) => self.warn(format!(
                    "{error}; raise the sysctl fs.inotify.max_user_instances"
                )),
            }
        }
        let mode = self.class.volume_mode;
        let watch = self.events.as_mut().and_then(DirEvents::take);
        let mut thread = tokio::task::spawn_blocking(move || Listing::read(&dir, mode, watch));
        let mut listing = match tokio::time::timeout(PROBE_TIMEOUT, &mut thread).await {
            Ok(Ok(listing)) => listing,
            Ok(Err(panic)) => {
                self.events = None;
                return Err(format!("listing it ended in a panic ({panic}): a bug"));
            }
            Err(_) => {
                // The thread has the watch.
                self.events = None;
                self.stuck.push(DIRECTORY, thread);
                return Err(silent);
            }
        };
        if let (Some(events), Some(watch)) = (&mut self.events, listing.watch.take()) {
            events.restore(watch);
        }
        if let Some(warning) = listing.warning.take() {
            self.warn(warning);
        }
        Ok(listing)
    }

    /// The finding of an entry that is not probed.
    fn without_probe(&self, Name { text, utf8 }: &Name) -> Option<Finding> {
        let (dir, pattern) = (&self.class.mount_dir, &self.class.name_pattern);
        let (reason, why) = if !utf8 {
            let why = format!(
                "{dir}: the name \"{text}\" is not UTF-8, which a PersistentVolume cannot hold; rename it"
            );
            (SkipReason::NameNotUtf8, why)
        } else if !pattern.matches(text) {
            let why = format!("{dir}/{text} does not match namePattern {pattern}");
            (SkipReason::NamePatternMismatch, why)
        } else if self.stuck.contains(text) {
            let why = format!("{dir}/{text} has not answered since an earlier scan");
            (SkipReason::TimedOut, why)
        } else {
            return None;
        };
        Some(skipped(reason, why))
    }

    /// Probes entries on one thread, and on another after each entry that hangs. Returns the devices through
    /// which the devices in use can be written.
    async fn probe_all(
        &mut self,
        mut todo: Vec<String>,
        machine: &Arc<Machine>,
        taken: &Taken,
        entries: &mut Vec<Entry>,
        fault: &mut Option<String>,
    ) -> BTreeSet<DeviceNumber> {
        let dir = self.class.mount_dir.clone();
        let mut in_use = BTreeSet::new();
        let mut timeout = PROBE_TIMEOUT;
        while !todo.is_empty() {
            if self.stuck.is_full() {
                *fault = Some(format!(
                    "{dir}: {MAX_STUCK} entries do not answer; {} others were not looked at",
                    todo.len()
                ));
                break;
            }
            let (mut thread, found) = self.start_probing(&todo, machine, taken);
            let ended = ended_in_time(&mut thread, &found, timeout).await;
            let nothing_more = Found {
                abandoned: true,
                ..Found::default()
            };
            let found = std::mem::replace(&mut *lock(&found), nothing_more);
            in_use.extend(found.in_use);
            let probed = todo.drain(..found.findings.len());
            entries.extend(
                probed
                    .zip(found.findings)
                    .map(|(name, finding)| Entry { name, finding }),
            );
            if todo.is_empty() {
                break;
            }
            let name = todo.remove(0);
            let finding = if let Some(panic) = ended {
                let why = format!("{dir}/{name}: looking at it ended in a panic ({panic}): a bug");
                skipped(SkipReason::Unreadable, why)
            } else {
                self.stuck.push(&name, thread);
                let why = format!("{dir}: the entry {name:?} did not answer for {timeout:?}");
                timeout = NEXT_PROBE_TIMEOUT;
                skipped(SkipReason::TimedOut, why)
            };
            entries.push(Entry { name, finding });
        }
        in_use
    }

    fn start_probing(
        &self,
        names: &[String],
        machine: &Arc<Machine>,
        taken: &Taken,
    ) -> (JoinHandle<()>, Arc<Mutex<Found>>) {
        let found = Arc::new(Mutex::new(Found::default()));
        let (names, result) = (names.to_vec(), Arc::clone(&found));
        let (class, machine, taken) = (Arc::clone(&self.class), Arc::clone(machine), taken.clone());
        let thread = tokio::task::spawn_blocking(move || {
            for name in names {
                let finding = probe(&class, &name, &machine, taken.as_deref());
                let in_use = used_through(&finding, &machine);
                let mut result = lock(&result);
                if result.abandoned {
                    return;
                }
                result.findings.push(finding);
                result.in_use.extend(in_use);
            }
        });
        (thread, found)
    }
}

/// Waits for a thread while it makes progress. Returns `None` on timeout, else the text of its panic, or an empty one.
async fn ended_in_time(
    thread: &mut JoinHandle<()>,
    found: &Mutex<Found>,
    timeout: Duration,
) -> Option<String> {
    let mut before = 0;
    loop {
        if let Ok(ended) = tokio::time::timeout(timeout, &mut *thread).await {
            return Some(ended.map_or_else(|panic| panic.to_string(), |()| String::new()));
        }
        let now = lock(found).findings.len();
        if now == before {
            return None;
        }
        before = now;
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices whose unmount may free a device that is in use.
fn used_through(finding: &Finding, machine: &Machine) -> BTreeSet<DeviceNumber> {
    match finding {
        Finding::Volume(candidate) if candidate.in_use.is_some() => match candidate.footprint {
            Footprint::Device { number, .. } => {
                machine.sysfs.writable_through(number).unwrap_or_default()
            }
            Footprint::Filesystem { .. } => BTreeSet::new(),
        },
        _ => BTreeSet::new(),
    }
}

impl Observation {
    /// The observation of a directory that could not be read.
    pub(super) fn failed(fault: String) -> Self {
        Self {
            entries: Vec::new(),
            complete: false,
            fault: Some(fault),
        }
    }
}

fn skipped(reason: SkipReason, detail: String) -> Finding {
    Finding::Skipped(Skip::new(reason, detail))
}
