//! The Pods of the node that have a volume, or a part of it, as a path of the node.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;

use crate::cluster::{ApiError, PodView};
use crate::host::footprint::Footprint;
use crate::host::host_paths::HostPathTarget;
use crate::types::HostPath;

use super::{CleanupContext, Obstacle, PassFacts};

/// A path of the node that a Pod has.
#[derive(Clone, Debug)]
pub struct HostPathUse {
    /// The Pod, as `namespace/name`.
    pub pod: String,
    /// What the path leads to.
    pub target: HostPathTarget,
}

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

/// Fails if a Pod has a path in the volume at `path`.
///
/// # Errors
/// [`Obstacle::InUse`] with the names of the Pods.
pub(crate) fn ensure_no_host_path(
    uses: &[HostPathUse],
    path: &HostPath,
    volume: &Footprint,
) -> Result<(), Obstacle> {
    let path = path.as_str().as_ref();
    let inside = uses.iter().filter(|it| it.target.is_in(path, volume));
    let pods: BTreeSet<_> = inside.map(|it| it.pod.as_str()).collect();
    if pods.is_empty() {
        return Ok(());
    }
    let pods = Vec::from_iter(pods).join(", ");
    Err(Obstacle::InUse {
        user: format!("pods mount it by hostPath: {pods}"),
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
            let uses = context.host.host_paths(&pods, self).await;
            uses.map_err(|obstacle| obstacle.to_string())
        };
        let listed = self.host_paths.get_or_init(|| listed.boxed());
        let uses = listed.await.as_ref();
        let uses = uses.map_err(|why| Obstacle::Unknown(why.clone()))?;
        ensure_no_host_path(uses, path, volume)
    }
}
