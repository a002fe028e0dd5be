//! Whether an open volume may be cleaned, as far as this machine shows.

use std::io;
use std::path::Path;

use crate::clean::dirfd::DirFd;
use crate::clean::inspect::{Obstacle, inspect, kubelet_overlap, shown};
use crate::clean::protect::is_read_only_subvolume;
use crate::clean::volume::Volume;
use crate::host::filesystem::FsRoot;
use crate::scan::{Candidate, Machine, candidate_of_device, candidate_of_filesystem};
use crate::types::MountPath;

use super::Refusal;
use super::needs::Needs;
use super::ourselves;
use super::target::looking_at;

fn refusal(obstacle: Obstacle, path: &Path) -> Refusal {
    let owned = path.to_owned();
    match obstacle {
        Obstacle::InUse(by) => Refusal::InUse { path: owned, by },
        Obstacle::Nested(point) => Refusal::Nested {
            path: owned,
            point: shown(&point),
        },
        Obstacle::System(why) => Refusal::Needed { path: owned, why },
        Obstacle::NotLocal(fs_type) => Refusal::Elsewhere {
            path: owned,
            fs_type,
        },
        Obstacle::Unknown(error) => looking_at(path)(error),
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
        return Err(Refusal::PodsUnseen { pods });
    }
    let refusal = |obstacle| refusal(obstacle, path.as_path());
    inspect(volume, machine, &needs.kubelet, &needs.system).map_err(refusal)?;
    let candidate = match volume {
        Volume::Filesystem(root) => {
            if let Some(obstacle) = kubelet_overlap(root.mount(), &machine.mounts, &needs.kubelet) {
                return Err(refusal(obstacle));
            }
            // Files of its lower layers are only hidden when they are deleted.
            if root.mount().fs_type == "overlay" {
                return Err(refusal(Obstacle::NotLocal("overlay".to_owned())));
            }
            if !ourselves::may_delete_anything() {
                return Err(Refusal::NotRoot { path: owned() });
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
    if let Volume::Device(_) = volume {
        // Refused even if they are not in use: the cluster is not asked whether they have PVs.
        let twins = machine.sysfs.twins(candidate.footprint.devices());
        let twins = twins.map_err(looking_at(path.as_path()))?;
        if !twins.is_empty() {
            let twins = twins.into_iter().map(|twin| twin.name).collect();
            return Err(Refusal::Twin {
                path: owned(),
                twins,
            });
        }
    }
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
