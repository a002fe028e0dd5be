//! Reads the names in a discovery directory, and the facts that the probes of all entries share. It never touches
//! an entry.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::host::dir_watch::DirWatch;
use crate::host::mounts::MountTable;
use crate::types::VolumeMode;

use super::probe::Machine;

/// A reading of the directory.
pub(super) struct Listing {
    pub(super) watch: Option<DirWatch>,
    /// Why the directory is not watched.
    pub(super) warning: Option<String>,
    pub(super) machine: io::Result<Machine>,
    /// The directory's path without links.
    pub(super) real: PathBuf,
    pub(super) names: Vec<Name>,
    pub(super) fault: Option<String>,
}

pub(super) struct Name {
    /// For messages, and for the API if `utf8`.
    pub(super) text: String,
    pub(super) utf8: bool,
}

impl Listing {
    /// Blocks. The watch is set first, so that no change after the reading is missed.
    pub(super) fn read(dir: &Path, mode: VolumeMode, mut watch: Option<DirWatch>) -> Self {
        let fault = watch.as_mut().and_then(|it| it.set_dir(dir).err());
        let warning = fault.map(|error| {
            format!("{error}; if it says no space, raise the sysctl fs.inotify.max_user_watches")
        });
        let (machine, real) = (
            Machine::read(),
            dir.canonicalize().unwrap_or_else(|_| dir.to_owned()),
        );
        let (names, fault) = match &machine {
            Ok(machine) if mode == VolumeMode::Filesystem && is_stale(&machine.mounts, &real) => {
                let fault = format!(
                    "mounts of the host do not appear in {} of this container, so it may show disks that are not there any more; set mountPropagation: HostToContainer for this volumeMount",
                    dir.display()
                );
                (Vec::new(), Some(fault))
            }
            _ => list(dir),
        };
        Self {
            watch,
            warning,
            machine,
            real,
            names,
            fault,
        }
    }
}

/// Whether a container has this directory of the host mounted without mount propagation.
fn is_stale(mounts: &MountTable, dir: &Path) -> bool {
    mounts.at(dir).is_some_and(|mount| !mount.propagates)
}

/// The names in a directory, and the last error. The entries are not touched: one may be a dead disk.
fn list(dir: &Path) -> (Vec<Name>, Option<String>) {
    let unreadable =
        |error: io::Error| format!("the directory {} cannot be read: {error}", dir.display());
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return (Vec::new(), Some(unreadable(error))),
    };
    let (mut names, mut fault) = (Vec::new(), None);
    for entry in entries {
        match entry {
            Ok(entry) => names.push(Name::of(&entry.file_name())),
            Err(error) => fault = Some(unreadable(error)),
        }
    }
    names.sort_by(|a: &Name, b| a.text.cmp(&b.text));
    (names, fault)
}

impl Name {
    fn of(name: &OsStr) -> Self {
        match name.to_str() {
            Some(text) => Self {
                text: text.into(),
                utf8: true,
            },
            None => Self {
                text: name.as_bytes().escape_ascii().to_string(),
                utf8: false,
            },
        }
    }
}
