//! Whether an open volume may be cleaned, as far as this machine shows.

use std::io;

use crate::clean::dirfd::DirFd;
use crate::clean::protect::is_read_only_subvolume;
use crate::clean::volume::Volume;
use crate::host::filesystem::FsRoot;
use crate::host::users;
use crate::scan::{Candidate, Machine, candidate_of_device, candidate_of_filesystem};
use crate::types::MountPath;

use super::Refusal;
use super::needs::{Needs, shown};
use super::ourselves;
use super::target::{looking_at, patiently};

/// Filesystems that have their data on devices of this machine, or in its memory, and for themselves.
const LOCAL: [&str; 19] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "hfsplus", "jfs",
    "msdos", "nilfs2", "ntfs", "ntfs3", "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// No process and no loop device has it, as far as that can be seen. The provisioner looks at it now
/// and then.
fn no_others(volume: &Volume, machine: &Machine, path: &MountPath) -> Result<(), Refusal> {
    let find = || {
        let storage = volume.storage(&machine.sysfs)?;
        let mut found = users::loops_in(&storage, &machine.mounts, &machine.sysfs)?;
        found.extend(users::processes_using(&storage)?);
        Ok(found)
    };
    let found = find().map_err(looking_at(path.as_path()))?;
    match users::in_words(&found) {
        None => Ok(()),
        Some(by) => Err(Refusal::InUse {
            path: path.as_path().to_owned(),
            by,
        }),
    }
}

/// Whether it may be cleaned.
pub(super) fn judge(
    volume: &Volume,
    path: &MountPath,
    machine: &Machine,
    needs: &Needs,
) -> Result<Candidate, Refusal> {
    let owned = || path.as_path().to_owned();
    if needs.must_see_pods()
        && let Some(pods) = needs.unseen_pods(volume.kind())
    {
        let pods = pods.to_owned();
        return Err(Refusal::PodsUnseen { pods });
    }
    let candidate = match volume {
        Volume::Filesystem(root) => {
            let (mount, table) = (root.mount(), &machine.mounts);
            if let Some(why) = needs.forbid(mount, table) {
                return Err(Refusal::Needed { path: owned(), why });
            }
            if let Some(by) = needs.kubelet_use(mount, table) {
                return Err(Refusal::InUse { path: owned(), by });
            }
            if !LOCAL.contains(&&*mount.fs_type) {
                return Err(Refusal::Elsewhere {
                    path: owned(),
                    fs_type: mount.fs_type.clone(),
                });
            }
            if !ourselves::may_delete_anything() {
                return Err(Refusal::NotRoot { path: owned() });
            }
            if let Some(nested) = table.inside(mount.device, &mount.root).next() {
                return Err(Refusal::Nested {
                    path: owned(),
                    point: shown(&nested.point),
                });
            }
            if let Some(part) = table.of_parts(mount).next() {
                let by = format!("a part of it is mounted at {} as well", shown(&part.point));
                return Err(Refusal::InUse { path: owned(), by });
            }
            if is_read_only_snapshot(root).map_err(looking_at(path.as_path()))? {
                return Err(Refusal::ReadOnlySubvolume { path: owned() });
            }
            candidate_of_filesystem(root, machine)
        }
        Volume::Device(device) => candidate_of_device(device, path, machine),
    };
    let candidate = candidate.map_err(looking_at(path.as_path()))?;
    if let Some(by) = candidate.in_use {
        return Err(Refusal::InUse { path: owned(), by });
    }
    if let Volume::Device(device) = volume {
        let facts = machine.sysfs.device(device.number());
        let twins = facts.and_then(|facts| machine.sysfs.twins(&facts));
        let twins = twins.map_err(looking_at(path.as_path()))?;
        if !twins.is_empty() {
            let path = owned();
            return Err(Refusal::Twin { path, twins });
        }
    }
    let may_pass = |refusal: &Refusal| matches!(refusal, Refusal::InUse { .. });
    patiently(|| no_others(volume, machine, path), may_pass)?;
    if candidate.read_only {
        return Err(Refusal::ReadOnly { path: owned() });
    }
    if candidate.capacity == 0 {
        return Err(Refusal::NoCapacity { path: owned() });
    }
    Ok(candidate)
}

fn is_read_only_snapshot(root: &FsRoot) -> io::Result<bool> {
    if root.mount().fs_type != "btrfs" {
        return Ok(false);
    }
    Ok(is_read_only_subvolume(&DirFd::reopen(root.as_fd())?))
}
