//! The container of a recycler pod, as a process of this machine.
//!
//! It runs the command that it would run in the pod. As there is neither an image nor a mount, it works
//! in the directory of the volume, and in its command line that directory is `.` instead of the path
//! at which the pod mounts it. The directory was opened below the test root and stays open until
//! the process is in it, so that nothing else can get into its place.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use crate::{
    controllers::object::{Pod, text},
    host_paths::{HostPaths, Refused},
    pv_controller::recycler_pod::MOUNT_PATH,
};

/// The directory that a recycler pod is to empty.
pub(super) fn directory(host_paths: Option<&HostPaths>, pod: &Pod) -> Result<OwnedFd, String> {
    let volume = &pod["spec"]["volumes"][0];
    if !volume["hostPath"].is_object() {
        return Err("only hostPath volumes can be mounted here; nothing was touched".to_owned());
    }
    let host_paths = host_paths.ok_or_else(|| Refused::NoRoot.to_string())?;
    let path = Path::new(text(&volume["hostPath"]["path"]));
    host_paths.directory(path).map_err(|why| why.to_string())
}

/// A path by which a child can enter an open directory.
pub(super) fn path(directory: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// A word of the command line, for a process that works in the directory.
pub(super) fn here(word: &str) -> String {
    word.replace(MOUNT_PATH, ".")
}
