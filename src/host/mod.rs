//! Reads the host's storage: mounts, devices, filesystems, identities, users.
//!
//! It never changes the data of a volume. Its side effects are the advisory lock of [`lock`], which ends with its
//! descriptor, what [`mark`] writes, and the links of [`link`]. Two invariants hold:
//!
//! * A path is resolved once, and all later queries use the descriptor. A disk that is replaced or a link that is
//!   changed meanwhile cannot be confused with the first.
//! * Only directories and block devices are opened. Opening a FIFO would block and opening a tape would rewind
//!   it, so the file type is read through an `O_PATH` handle first.

pub mod access;
pub mod boot;
pub mod device;
pub mod filesystem;
pub mod footprint;
pub mod host_path;
pub mod identity;
mod ioctl;
pub mod kubelet;
pub mod link;
pub mod lock;
pub mod mark;
pub mod mounts;
pub mod protection;
pub mod sysfs;
pub mod system;
pub mod users;
pub mod watch;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::escape::quoted;
use mark::{Marks, StateDir};
use mounts::MountTable;
use ring::digest::{SHA256, digest};
use sysfs::Sysfs;

pub use link::LinkDir;

/// The facts of the machine, read once for several volumes.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The mounts of our mount namespace.
    pub mounts: MountTable,
    /// The facts about block devices.
    pub sysfs: Sysfs,
    /// The state directory.
    pub state: StateDir,
    /// The marks in it.
    pub marks: Marks,
}

impl Machine {
    /// Reads the tables.
    ///
    /// # Errors
    /// When `/proc` is not there, or the state directory cannot be read.
    pub fn read(state: &StateDir) -> io::Result<Self> {
        Ok(Self {
            mounts: MountTable::read()?,
            sysfs: Sysfs::default(),
            state: state.clone(),
            marks: state.read_all()?,
        })
    }
}

/// Opens a file or directory read-only, with further flags of open(2).
fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// A path that leads to the open file itself, whatever is at its original path now.
fn through_proc(fd: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

/// The sorted entries of a directory.
fn paths_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(dir).and_then(|it| it.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<_> = paths.map_err(|error| with_path(&error, dir))?;
    paths.sort();
    Ok(paths)
}

/// The error with the path that it is about.
pub(crate) fn with_path(error: &io::Error, path: &Path) -> io::Error {
    let path = quoted(path.as_os_str().as_encoded_bytes());
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// The SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.map(|digit| char::from_digit(digit.into(), 16).unwrap_or_default());
    digits.collect()
}
