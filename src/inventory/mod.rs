//! The inventory of the discovery directories: one actor for each class, which alone touches its disks.
//!
//! A scan opens directories and block devices for reading and nothing else. It reports everything that it
//! found beside everything that is wrong, never just the first error. The main loop never waits for a disk.

mod actor;
mod classes;
mod contents;
mod listing;
mod mount_watch;
mod probe;
mod shield;

use std::collections::BTreeSet;

use crate::host::footprint::Footprint;
use crate::host::identity::Identity;
use crate::host::mounts::DeviceNumber;
use crate::types::{SkipReason, VolumeMode};

pub use classes::{ClassInventory, Inventory, Observed, Taken};
pub use contents::Contents;
pub(crate) use probe::device_user;
pub use probe::{Machine, candidate_of_device, candidate_of_filesystem, probe};

/// One class's discovery directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What is in it, sorted by name.
    pub entries: Vec<Entry>,
    /// Whether that is all. If not, nothing may be concluded from an entry's absence.
    pub complete: bool,
    /// Why the directory itself could not be read.
    pub fault: Option<String>,
}

impl Observation {
    /// What the entry of that name is.
    #[must_use]
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.name.as_str().cmp(name))
            .ok()?;
        Some(&self.entries[at].finding)
    }

    /// The entries that are volumes, with their names.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &Candidate)> {
        self.entries
            .iter()
            .filter_map(|entry| match &entry.finding {
                Finding::Volume(candidate) => Some((entry.name.as_str(), &**candidate)),
                Finding::Skipped(_) => None,
            })
    }
}

/// One entry of a discovery directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; escaped where it is not UTF-8, and then the finding is a skip.
    pub name: String,
    /// What it is.
    pub finding: Finding,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Something that can be offered as a volume.
    Volume(Box<Candidate>),
    /// Something else.
    Skipped(Skip),
}

/// Why an entry is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The reason's name, the same everywhere.
    pub reason: SkipReason,
    /// One sentence for an operator, with the path and what is wrong with it.
    pub detail: String,
    /// Whether that is because the volume is not there: nothing is mounted, a link leads to nothing.
    pub gone: bool,
}

impl Skip {
    /// A skip.
    pub fn new(reason: SkipReason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            gone: false,
        }
    }

    /// The same, where there is no volume (any more).
    #[must_use]
    pub fn gone(mut self) -> Self {
        self.gone = true;
        self
    }
}

/// A volume as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Whether it is a mount point or a device, whatever the class makes of it.
    pub kind: VolumeMode,
    /// Size in bytes, not rounded.
    pub capacity: u64,
    /// What tells it from every other volume.
    pub identity: Identity,
    /// The storage that it occupies.
    pub footprint: Footprint,
    /// Whether it is mounted read-only, or the device is.
    pub read_only: bool,
    /// Who uses the device (a mount, LVM, md, ...), as far as looking shows.
    pub in_use: Option<String>,
    /// What is in it.
    pub contents: Contents,
    /// The disks below that have to seek: cleaning two volumes of one at a time is slower than one
    /// after the other.
    pub rotational: BTreeSet<DeviceNumber>,
}
