//! Reads the names in a discovery directory, and the facts that the probes of all entries share. It never touches
//! an entry.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::Class;
use crate::host::Machine;
use crate::host::kubelet::{KubeletDir, PodMounts};
use crate::host::mark::StateDir;
use crate::types::VolumeMode;

/// A reading of the directory.
pub(super) struct Listing {
    pub(super) machine: Machine,
    /// The directory's path without links.
    pub(super) real: PathBuf,
    /// The kubelet's mounts of local PVs.
    pub(super) pod_mounts: PodMounts,
    /// The sorted names. One that is not UTF-8 is an error: its escaped text, for messages.
    pub(super) names: Vec<Result<String, String>>,
    /// Why names may be missing.
    pub(super) fault: Option<String>,
}

impl Listing {
    /// Blocks.
    ///
    /// # Errors
    /// When the mount table cannot be read.
    pub(super) fn read(
        dir: &Path,
        class: &Class,
        state: &StateDir,
        kubelet: Option<&KubeletDir>,
    ) -> Result<Self, String> {
        let machine = Machine::read(state).map_err(|error| {
            format!(
                "the mount table or the state directory cannot be read: {error}; is /proc mounted?"
            )
        })?;
        let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        // A container may have the host's directory mounted without mount propagation.
        let mount = machine.mounts.at(&real);
        let of_filesystems = class.volume_mode == VolumeMode::Filesystem;
        let is_stale = of_filesystems && mount.is_some_and(|mount| !mount.propagates);
        // The kubelet would give the empty directory to a pod.
        let is_hidden = class.makes_filesystems() && mount.is_some_and(|mount| !mount.is_shared);
        let mut names = Vec::new();
        let shown = dir.display();
        let fault = if is_stale {
            Some(format!(
                "mounts of the host do not appear in {shown} of this container, so it may show disks that are not there any more; set mountPropagation: HostToContainer for this volumeMount"
            ))
        } else if is_hidden {
            Some(format!(
                "what is mounted in {shown} of this container does not appear on the host; set mountPropagation: Bidirectional for this volumeMount"
            ))
        } else {
            let listed = list(dir, &mut names).err();
            listed.map(|error| format!("the directory {shown} cannot be read: {error}"))
        };
        names.sort();
        let pod_mounts = kubelet.map(|it| it.pod_mounts(&machine.mounts));
        Ok(Self { machine, real, pod_mounts: pod_mounts.unwrap_or_default(), names, fault })
    }
}

/// Adds the names in a directory. The entries are not touched: one may be a dead disk.
fn list(dir: &Path, names: &mut Vec<Result<String, String>>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().into_string();
        names.push(name.map_err(|name| name.as_bytes().escape_ascii().to_string()));
    }
    Ok(())
}
