//! What this machine says about its disks: mounts, devices, filesystems, identities, users.
//!
//! Everything here only *looks*. The one mark that is left behind is the advisory lock of
//! [`lock`], and that goes with its descriptor. Two rules hold throughout:
//!
//! * A path is resolved once. Whatever is asked afterwards is asked of the descriptor, so that a
//!   disk that is swapped or a link that is turned in between cannot vouch for another.
//! * Only directories and block devices are ever opened. Opening a FIFO would hang and opening a
//!   tape would wind it, so a file's type is read from an `O_PATH` handle first.

pub mod claims;
pub mod device;
pub mod dir_watch;
pub mod filesystem;
pub mod footprint;
mod fs_uuid;
pub mod identity;
mod ioctl;
pub mod kubelet;
pub mod lock;
pub mod mounts;
pub mod sysfs;
pub mod system;
pub mod users;
pub mod watch;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

/// The kernel's random name for the time since it booted.
///
/// # Errors
/// When `/proc` is not there.
pub fn boot_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim_end().to_owned())
}

/// The name under which the file behind a descriptor can be opened again or looked at: the file
/// itself, whatever has meanwhile been put at its path.
fn through_proc(fd: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}
