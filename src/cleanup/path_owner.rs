//! Finds a PV that owns the storage of a volume by a path that the plan does not know: that of a PV of another
//! provisioner, often through a link or another mount.

use crate::host::footprint::Footprint;
use crate::types::HostPath;

use super::{CleanupContext, PassFacts};

/// The PV of another UID than `uid` that owns the volume, and how. Each PV that would be one is read again, since the
/// list of these PVs may be an hour old; one that cannot be read stays an owner.
pub(crate) async fn path_owner(
    context: &CleanupContext,
    path: &HostPath,
    volume: &Footprint,
    uid: &str,
) -> Option<String> {
    let state = context.state.borrow().clone();
    if state.occupied.owners.is_empty() {
        return None;
    }
    let facts = PassFacts::new(state.settings.config.clone());
    let owners = context
        .host
        .path_owners(&state.occupied.owners, (path, volume), &facts)
        .await;
    for (owner, relation) in owners.into_iter().filter(|(owner, _)| owner.uid != uid) {
        let found = context.cluster.pv(&owner.pv).await;
        if !found.is_ok_and(|it| it.is_none_or(|pv| pv.uid != owner.uid)) {
            return Some(format!(
                "PV {} has the path {}, {relation}",
                owner.pv, owner.path
            ));
        }
    }
    None
}
