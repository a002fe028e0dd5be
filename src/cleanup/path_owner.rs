//! Finds a PV that owns the storage of a volume by a path that the plan does not know: that of a PV of another
//! provisioner, often through a link or another mount.

use std::path::PathBuf;

use crate::host::footprint::Footprint;
use crate::host::host_path::{HostPaths, Relation};
use crate::types::HostPath;
use crate::view::PathOwner;

use super::{CleanupContext, Obstacle, PassFacts};

/// The paths by which [`owns`] compares the PVs with the volume at `entry`.
pub(crate) fn paths_of(owners: &[PathOwner], entry: &HostPath) -> Vec<PathBuf> {
    let paths = owners.iter().map(|it| it.path.as_str());
    paths.chain([entry.as_str()]).map(PathBuf::from).collect()
}

/// How the PV owns the volume at `entry`, if it does.
pub(crate) fn owns(
    owner: &PathOwner,
    paths: &HostPaths,
    entry: &HostPath,
    volume: &Footprint,
) -> Option<String> {
    let (pv, path) = (&owner.pv, &owner.path);
    let relation = paths.relation(path.as_ref(), entry.as_str().as_ref(), volume);
    let relation = relation.filter(|it| owner.owns_below || *it != Relation::Around)?;
    Some(format!("PV {pv} has the path {path}, {relation}"))
}

/// The PV of another UID than `uid` that owns the volume, and how. Each PV that would be one is read again, since the
/// list of these PVs may be an hour old; one that cannot be read stays an owner.
///
/// # Errors
/// When the paths of the PVs do not answer.
pub(crate) async fn path_owner(
    context: &CleanupContext,
    entry: &HostPath,
    volume: &Footprint,
    uid: &str,
    facts: &PassFacts,
) -> Result<Option<String>, Obstacle> {
    let state = context.state.borrow().clone();
    let owners = &state.occupied.owners;
    if owners.is_empty() {
        return Ok(None);
    }
    let paths = context.host.follow(paths_of(owners, entry), facts).await?;
    for owner in owners.iter().filter(|it| it.uid != uid) {
        let Some(how) = owns(owner, &paths, entry, volume) else {
            continue;
        };
        let found = context.cluster.pv(&owner.pv).await;
        if !found.is_ok_and(|it| it.is_none_or(|pv| pv.uid != owner.uid)) {
            return Ok(Some(how));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::host::mounts::DeviceNumber;

    #[test]
    fn hostpath_pv_owns_no_volume_below_its_path() {
        let entry = HostPath::from_api("/mnt/fast/a").unwrap();
        let volume = Footprint::Filesystem {
            devices: BTreeSet::new(),
            fs: DeviceNumber::default(),
            root: "/".into(),
        };
        for (path, local, hostpath) in [
            ("/mnt/fast/a", true, true),
            ("/mnt/fast/a/b", true, true),
            ("/mnt/fast", true, false),
            ("/", true, false),
            ("/mnt/fast/b", false, false),
        ] {
            for (owns_below, expected) in [(true, local), (false, hostpath)] {
                let (pv, uid, path) = ("pv".into(), "uid".into(), path.into());
                let owner = PathOwner { pv, uid, path, owns_below };
                let found = owns(&owner, &HostPaths::default(), &entry, &volume);
                assert_eq!(found.is_some(), expected, "{owner:?}");
            }
        }
    }
}
