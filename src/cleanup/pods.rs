//! The Pods of the node that have a volume, or a part of it, as a path of the node.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;

use crate::cluster::{ApiError, PodView};
use crate::host::footprint::Footprint;
use crate::host::host_path::{HostPaths, Relation};
use crate::types::HostPath;

use super::{CleanupContext, Obstacle, PassFacts};

/// Lists the Pods of the node, with the paths that they have by hostPath and by claims of other PVs; none without
/// permission.
pub(super) async fn node_pods(context: &CleanupContext) -> Result<Vec<PodView>, ApiError> {
    let (node, occupied) = {
        let state = context.state.borrow();
        (state.node.name.clone(), state.occupied.clone())
    };
    let mut pods = seen(context.cluster.pods_of(&node).await)?;
    let claims = &occupied.claims;
    context.cluster.add_claimed_paths(&mut pods, claims).await?;
    Ok(pods)
}

/// The Pods of a list; none without permission, as for claims.
pub(super) fn seen(listed: Result<Vec<PodView>, ApiError>) -> Result<Vec<PodView>, ApiError> {
    match listed {
        Err(ApiError::Forbidden { .. }) => Ok(Vec::new()),
        pods => pods,
    }
}

/// The paths of the node that Pods have that have not ended.
pub(crate) fn paths_of(pods: &[PodView]) -> Vec<PathBuf> {
    let pods = pods.iter().filter(|it| !it.terminal);
    pods.flat_map(|it| it.host_paths.clone()).collect()
}

/// Fails if one of the Pods that have not ended has a path in the volume at `entry`. A directory around it is none: it
/// may be a whole disk that the Pod only monitors.
///
/// # Errors
/// [`Obstacle::InUse`] with the names of the Pods.
pub(crate) fn ensure_no_host_path(
    pods: &[PodView],
    paths: &HostPaths,
    entry: &HostPath,
    volume: &Footprint,
) -> Result<(), Obstacle> {
    let is_in = |path: &PathBuf| {
        let relation = paths.relation(path, entry.as_str().as_ref(), volume);
        relation.is_some_and(|it| it != Relation::Around)
    };
    let users = pods.iter().filter(|it| !it.terminal).filter(|it| it.host_paths.iter().any(is_in));
    let users: BTreeSet<_> = users.map(|it| it.name.as_str()).collect();
    if users.is_empty() {
        return Ok(());
    }
    let users = Vec::from_iter(users).join(", ");
    Err(Obstacle::InUse {
        user: format!("pods mount it by hostPath: {users}"),
        notify_after: Duration::ZERO,
    })
}

impl PassFacts {
    /// Fails if a Pod has a path in the volume at `path`. The Pods are listed once for all volumes of the pass.
    pub(crate) async fn ensure_no_host_path(
        &self,
        context: &CleanupContext,
        path: &HostPath,
        volume: &Footprint,
    ) -> Result<(), Obstacle> {
        let listed = async {
            let pods = node_pods(context).await;
            let pods = pods.map_err(|error| format!("listing Pods failed: {error}"))?;
            let paths = context.host.follow(paths_of(&pods), self).await;
            let paths = paths.map_err(|obstacle| obstacle.to_string())?;
            Ok((pods, paths))
        };
        let listed = self.host_paths.get_or_init(|| listed.boxed()).await.as_ref();
        let (pods, paths) = listed.map_err(|why: &String| Obstacle::Unknown(why.clone()))?;
        ensure_no_host_path(pods, paths, path, volume)
    }
}
