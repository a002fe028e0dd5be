//! The inventory of the discovery directories. Each class has one actor, the only one that scans its disks.
//!
//! A scan opens only directories and block devices, for reading. It reports all entries and all errors, never only
//! the first error. The main loop never waits for a disk.

mod classes;
mod disk;
mod listing;
mod mount_watch;
mod probe;
mod scanner;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::config::Class;
use crate::host::footprint::Footprint;
use crate::host::identity::{GlobalIdentity, Identity};
use crate::host::kubelet::PodMounts;
use crate::host::mark::{MarkFact, RootAttributes};
use crate::host::mounts::DeviceNumber;
use crate::types::{HostPath, MountPath, SkipReason, VolumeMode};

pub use classes::{Inventory, Observed, Taken};
pub use disk::{BlockDisk, DiskContents, Misfit};
pub(crate) use disk::{contents, made_on};
pub use scanner::LocalDisks;
pub use volume::Contents;
pub(crate) use volume::Opened;

/// The disks of a machine.
pub trait Disks: Debug + Send + Sync {
    /// The scanner of a class. That of a class that was reconfigured may still end a scan.
    fn scanner(&self, class: &Arc<Class>) -> Box<dyn Scanner>;
}

/// Lists and probes the entries of one discovery directory.
pub trait Scanner: Debug + Send {
    /// Probes each entry once. It ends even if a disk does not answer.
    fn scan<'a>(&'a mut self, taken: &'a Taken) -> BoxFuture<'a, Observation>;

    /// Waits until the directory has to be scanned again. Cancel-safe.
    fn changed(&mut self) -> BoxFuture<'_, ()>;
}

/// One class's discovery directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Its entries by name. One that is not UTF-8 is escaped, and the finding is a skip.
    pub entries: Arc<BTreeMap<String, Finding>>,
    /// The kubelet's mounts of local PVs, by the mount table that the entries were probed with.
    pub pod_mounts: PodMounts,
    /// Whether the reading is complete. If not, an absent entry means nothing.
    pub complete: bool,
    /// Why the directory itself could not be read.
    pub fault: Option<String>,
    /// The disks that the class's rule matches.
    pub disks: Arc<Vec<BlockDisk>>,
    /// Why they could not be found.
    pub disks_fault: Option<String>,
}

impl Observation {
    /// The observation of a directory that could not be read.
    fn failed(fault: String) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    /// The entries that are volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.entries.values().filter_map(|finding| match finding {
            Finding::Volume(volume) => Some(volume),
            Finding::Skipped(_) => None,
        })
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A volume that can be offered.
    Volume(Arc<Volume>),
    /// Not a volume that can be offered.
    Skipped(Skip),
}

/// Why an entry is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The reason's name, the same everywhere.
    pub reason: SkipReason,
    /// One sentence for an operator, with the path and what is wrong with it.
    pub detail: String,
    /// Whether the volume is missing: nothing is mounted, or a link is dangling.
    pub gone: bool,
}

impl Skip {
    /// A skip.
    pub fn new(reason: SkipReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), gone: false }
    }

    /// Marks the volume as missing.
    pub fn gone(mut self) -> Self {
        self.gone = true;
        self
    }
}

/// A volume that a scan has found. All steps of a plan share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Its class.
    pub class: Arc<Class>,
    /// Its entry in the directory of the class.
    pub entry: String,
    /// Its path on the host, which PVs name.
    pub path: HostPath,
    /// The same file in our mount namespace.
    pub mount_path: MountPath,
    /// What it is.
    pub candidate: Candidate,
}

impl Volume {
    /// The volume of an entry.
    pub fn new(class: &Arc<Class>, entry: &str, candidate: Candidate) -> Self {
        Self {
            class: Arc::clone(class),
            entry: entry.to_owned(),
            path: class.host_dir.join(entry),
            mount_path: class.mount_dir.join(entry),
            candidate,
        }
    }
}

/// A volume as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Whether it is a mount point or a device, independent of the class's volume mode.
    pub kind: VolumeMode,
    /// Size in bytes, not rounded.
    pub capacity: u64,
    /// Its identity.
    pub identity: Identity,
    /// Its identity among all nodes.
    pub global: Option<GlobalIdentity>,
    /// The storage that it occupies.
    pub footprint: Footprint,
    /// Whether the mount or the device is read-only.
    pub read_only: bool,
    /// The visible user of the device (a mount, LVM, md, ...).
    pub in_use: Option<String>,
    /// What is in it.
    pub contents: Contents,
    /// The rotational disks below it. Cleaning two volumes of one in parallel is slower than in sequence.
    pub rotational: BTreeSet<DeviceNumber>,
    /// Its mark.
    pub mark: MarkFact,
    /// Whether it still has what its mark recorded: the header of an unused device, read while that decides something; the
    /// owner and the mode of a filesystem's root.
    pub is_as_offered: bool,
    /// Whether a volume without a mark and a PV is an empty filesystem, or a device that reads as zeros at all sampled
    /// places; read only where marks in the state directory were lost.
    pub is_blank: bool,
    /// The attributes of an offered filesystem's root that is not as it was offered.
    pub root: Option<RootAttributes>,
}
