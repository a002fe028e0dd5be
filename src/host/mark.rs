//! The mark of a volume: the cluster, PV, class and claim to which it belongs, and its state.
//!
//! A mark lies in the attribute `security.local-volume` on the root of a filesystem, which no tenant can change. Where
//! there is none, or it cannot be written, it lies in a file of the state directory. Marks of devices always do.
//!
//! A write takes effect in one step, which is durable when [`StateDir::write`] returns. Two rules hold for a volume
//! that has several records:
//!
//! * A record names the digests of all records that it replaces, and these do not count any more. So a crash after the
//!   write changes nothing, and neither does an older attribute that a full, immutable or read-only filesystem keeps.
//! * Of the others the most restrictive counts: unreadable, `wiping`, `used`, `offered`, `pending`, `free`, none. Of
//!   two in one state, the later counts.
//!
//! An attribute is never removed. It keeps its space for the next write, and protects a disk that is moved to another
//! node, where the file that replaces it is missing. Files are removed after an attribute replaced them.
//!
//! The callers hold the volume's lock while they write. This module never decides what a mark means.

mod attribute;
mod codec;
mod files;
mod header;
mod listing;
mod root;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::boot::BootTime;
use super::identity::Identity;
use super::sha256;
use attribute::Attribute;
use codec::Record;
use listing::Files;

pub use super::ioctl::Inode;
pub use files::StateDir;
pub use header::{header_hash, is_distinctive};
pub use root::{RootAttributes, Unusable, check_usable};

/// The keys that a later version writes. A version that reads none of them must not treat a missing one as clean.
pub type Unknown = BTreeMap<String, serde_json::Value>;

/// The state of a volume. The order is that of a volume's life, in which a mark only goes forward.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum MarkState {
    /// Its PV is about to be created.
    #[default]
    Pending,
    /// It has a PV.
    Offered,
    /// Its PV was seen Bound.
    Used,
    /// Its wipe has begun.
    Wiping,
    /// It was wiped, or its PV was deleted without ever being used.
    Free,
}

impl MarkState {
    /// From the least to the most restrictive.
    const ALL: [Self; 5] = [Self::Free, Self::Pending, Self::Offered, Self::Used, Self::Wiping];

    /// The spelling on disk, in messages and in consents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Offered => "offered",
            Self::Used => "used",
            Self::Wiping => "wiping",
            Self::Free => "free",
        }
    }
}

/// What is recorded of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The UID of the namespace kube-system.
    pub cluster: String,
    /// The UID of the PV; empty while it is not known.
    pub pv_uid: String,
    /// The token of the offer, which the PV has as an annotation.
    pub token: String,
    /// How far the volume has come.
    pub state: MarkState,
    /// The hash of the volume's identity.
    pub identity_hash: String,
    /// The name of the class.
    pub class: String,
    /// The claim as `namespace/name`, from the first bind.
    pub claim: Option<String>,
    /// The UID of that claim, if the PV is bound to its disk; empty while the PV is only reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// The [`header_hash`] of a device at its offer.
    pub header: Option<String>,
    /// Whether the volume was read-only at its offer.
    pub read_only: bool,
    /// The attributes of a filesystem's root at its offer.
    pub root: Option<RootAttributes>,
    /// Whether the last cleanup left data that can be read from the device. `None`: it is not known, as of an external
    /// cleaner, and of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_left: Option<bool>,
    /// The release for which the volume was wiped, see [`crate::view::PvView::release`]. A mark `free` vouches for no other
    /// one.
    pub release: Option<String>,
    /// When it was written, for people and for the order of two records.
    pub written_at: Timestamp,
    /// When it was written `pending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_time: Option<BootTime>,
    /// What a later version recorded, which this one keeps.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Mark {
    /// Whether its PV, which is about to be created, is for the claim that it names and for no other.
    pub fn is_adoption(&self) -> bool {
        self.state == MarkState::Pending && self.claim.is_some()
    }
}

/// The hexadecimal digits of a digest.
const DIGEST_LENGTH: usize = 16;

/// The mark of a volume as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one for each volume, and most are valid")]
pub enum MarkOnDisk {
    /// There is none.
    #[default]
    Absent,
    /// There is one.
    Valid(Mark),
    /// There is one that is corrupt, truncated or of an unknown version.
    Unreadable {
        /// The first 16 hexadecimal digits of the SHA-256 of its bytes.
        digest: String,
    },
}

impl MarkOnDisk {
    /// The mark, if it is readable.
    pub fn valid(&self) -> Option<&Mark> {
        match self {
            Self::Valid(mark) => Some(mark),
            Self::Absent | Self::Unreadable { .. } => None,
        }
    }

    /// Names its contents, in consents: 16 hexadecimal digits, or `none`. Each write of a mark has another time.
    pub fn digest(&self) -> String {
        let mut digest = match self {
            Self::Absent => return "none".to_owned(),
            Self::Unreadable { digest } => return digest.clone(),
            Self::Valid(mark) => sha256(&serde_json::to_vec(mark).unwrap_or_default()),
        };
        digest.truncate(DIGEST_LENGTH);
        digest
    }

    /// Whether it is that of a PV in this state or a later one, and the volume was not wiped since.
    pub fn is_of(&self, pv_uid: &str, state: MarkState) -> bool {
        let states = state..MarkState::Free;
        matches!(self, Self::Valid(mark) if mark.pv_uid == pv_uid && states.contains(&mark.state))
    }

    /// Whether the volume was wiped, or its PV deleted unused.
    pub fn is_free(&self) -> bool {
        matches!(self, Self::Valid(mark) if mark.state == MarkState::Free)
    }

    /// Whether its PV is about to be created.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Valid(mark) if mark.state == MarkState::Pending)
    }
}

/// Where a mark lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the attribute of the filesystem's root.
    Attribute,
    /// In a file of the state directory.
    StateDirectory,
}

/// What is known of a volume's mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkFact {
    /// The mark.
    pub on_disk: MarkOnDisk,
    /// Where a write is expected to go; `None`: nowhere. A full filesystem is noticed only by the write.
    pub place: Option<Place>,
    /// The first digits of the ID of the state directory, if the mark lies or would lie there.
    pub directory: Option<String>,
    /// Whether a newer mark may lie in another state directory: that of another node, or one that was lost.
    pub is_outdated: bool,
}

impl MarkFact {
    /// Whether the volume was wiped, or its PV deleted unused, as far as is known.
    pub fn is_free(&self) -> bool {
        self.on_disk.is_free() && !self.is_outdated
    }

    /// Whether the volume may have a PV or the data of a tenant.
    pub fn has_past(&self) -> bool {
        self.on_disk != MarkOnDisk::Absent && !self.is_free()
    }

    /// Names the contents of the mark in consents. One that may be lost names its directory, so that a consent is used up by
    /// the next loss.
    pub fn digest(&self) -> String {
        match (&self.on_disk, &self.directory) {
            (MarkOnDisk::Absent, Some(directory)) => directory.clone(),
            (mark, _) => mark.digest(),
        }
    }
}

/// A volume whose mark is read or written.
#[derive(Clone, Copy, Debug)]
pub struct MarkedVolume<'a> {
    /// The root of a filesystem, open for reading; `None` for a device.
    pub root: Option<BorrowedFd<'a>>,
    /// The observed identity.
    pub identity: &'a Identity,
    /// The name of its class.
    pub class: &'a str,
    /// Its name in the discovery directory.
    pub entry: &'a str,
}

impl<'a> MarkedVolume<'a> {
    /// The volume at a path of a class.
    pub fn new(
        root: Option<BorrowedFd<'a>>,
        identity: &'a Identity,
        class: &'a str,
        path: &'a Path,
    ) -> Self {
        let entry = path.file_name().and_then(OsStr::to_str);
        Self { root, identity, class, entry: entry.unwrap_or_default() }
    }
}

/// Why a mark was not written.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Neither place can be written. This has the cause.
    #[error(
        "the volume's mark cannot be written ({0}), and there is no state directory: set STATE_DIRECTORY to a mounted host directory"
    )]
    NoPlace(String),
    /// A place could not be read or written. It may hold the new mark.
    #[error("the volume's mark cannot be written: {0}")]
    Failed(#[from] io::Error),
}

/// The marks of the state directory, read once for several volumes.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Those of the state directory.
    files: Arc<Files>,
    /// Whether the state directory can be used.
    has_directory: bool,
    /// The first digits of its ID.
    directory: Option<String>,
    /// Whether this process may set attributes.
    may_set_attributes: bool,
}

impl Marks {
    /// The mark of a volume. Reads the attribute now, and the files as they were when [`StateDir::read_all`] read them.
    ///
    /// # Errors
    /// When the attribute cannot be read. Then it is not known whether there is a mark.
    pub fn find(&self, volume: &MarkedVolume<'_>) -> io::Result<MarkFact> {
        let attribute = volume.root.map(attribute::read).transpose()?;
        let is_writable = attribute.as_ref().is_some_and(|it| it.is_writable);
        let place = if self.may_set_attributes && is_writable {
            Some(Place::Attribute)
        } else {
            self.has_directory.then_some(Place::StateDirectory)
        };
        let records = self.records(volume, attribute);
        let contents = records.iter().filter_map(|it| it.content.as_ref());
        let replaced: BTreeSet<_> = contents.flat_map(|it| it.replaces.clone()).collect();
        let counting = records.into_iter().filter(|it| !replaced.contains(&it.digest));
        let most_restrictive = counting.max_by_key(Record::restriction);
        let content = most_restrictive.as_ref().and_then(|it| it.content.as_ref());
        let is_outdated =
            content.is_some_and(|it| it.is_attribute() && it.directory != self.directory);
        let on_disk = most_restrictive.map_or(MarkOnDisk::Absent, Record::on_disk);
        let directory = self.directory.clone();
        Ok(MarkFact {
            on_disk,
            place,
            directory: directory.filter(|_| place == Some(Place::StateDirectory)),
            is_outdated,
        })
    }

    /// All records of a volume.
    fn records(&self, volume: &MarkedVolume<'_>, attribute: Option<Attribute>) -> Vec<Record> {
        let files = self.files_of(volume).into_iter().map(|(_, record)| record.clone());
        let attribute = attribute.and_then(|it| it.bytes);
        files.chain(attribute.map(|bytes| Record::read(&bytes))).collect()
    }
}

#[cfg(test)]
mod tests;
