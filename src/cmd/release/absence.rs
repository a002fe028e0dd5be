//! Waits until the provisioner is uninstalled. Deletes nothing.
//!
//! Where the chart was rendered and applied, its hook is an ordinary Job that runs beside the DaemonSet,
//! perhaps before that is applied. So one look that finds no DaemonSet proves nothing.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::{Cluster, DaemonSetState, chain};

use super::others::names;
use super::patience::{a_while, patiently};
use super::{ReleaseError, Request, api};

/// Time between two looks for the DaemonSet.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The DaemonSet's namespace and name.
pub(super) struct Installation<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Installation<'_> {
    /// The DaemonSet's state; `None` when there is none.
    pub(super) async fn state(
        &self,
        cluster: &Cluster,
    ) -> Result<Option<DaemonSetState>, ReleaseError> {
        let found = cluster.daemon_set(self.namespace, self.name).await;
        found.map_err(api(format!("reading DaemonSet {self}")))
    }

    /// The Pods that the DaemonSet has left behind, for a sentence: the garbage collector deletes them
    /// after it, and until they end they clean volumes and put the finalizer back on.
    async fn remaining_pods(
        &self,
        cluster: &Cluster,
        out: &mut (dyn Write + Send),
    ) -> Result<Option<String>, ReleaseError> {
        let list = async || {
            let pods = cluster.pods_of_daemon_set(self.namespace, self.name).await;
            pods.map_err(api(format!("listing the Pods of DaemonSet {self}")))
        };
        let pods = patiently(a_while(), out, list).await?;
        Ok((!pods.is_empty()).then(|| names(&pods)))
    }
}

impl fmt::Display for Installation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Waits until each look for the requested time has found no DaemonSet, and its Pods are gone.
///
/// Returns whether that is so; `false` as soon as there is a DaemonSet that is not being deleted.
///
/// # Errors
/// [`ReleaseError::Remains`] when the DaemonSet or its Pods are not gone in time.
pub(super) async fn wait(
    cluster: &Cluster,
    installation: &Installation<'_>,
    request: &Request,
    out: &mut (dyn Write + Send),
) -> Result<bool, ReleaseError> {
    let limit = request.timeout + request.absent_for;
    let deadline = Instant::now() + limit;
    let mut absent_since = None;
    let mut reported = String::new();
    loop {
        let left = match installation.state(cluster).await {
            Ok(Some(DaemonSetState::Installed)) => return Ok(false),
            Ok(Some(DaemonSetState::Deleting)) => {
                absent_since = None;
                "the DaemonSet, which is being deleted".to_owned()
            }
            Ok(None) => {
                let since = *absent_since.get_or_insert_with(Instant::now);
                if since.elapsed() < request.absent_for {
                    format!(
                        "nothing; it must be absent for {:?}, as it may be about to be applied",
                        request.absent_for
                    )
                } else if let Some(pods) = installation.remaining_pods(cluster, out).await? {
                    format!("its Pods: {pods}")
                } else {
                    writeln!(out, "DaemonSet {installation} and its Pods are gone.")?;
                    return Ok(true);
                }
            }
            Err(error) if error.is_passing() && Instant::now() < deadline => {
                // Unseen is not absent.
                absent_since = None;
                writeln!(out, "{}; trying again.", chain(&error))?;
                tokio::time::sleep(LOOK_INTERVAL).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        if Instant::now() >= deadline {
            return Err(ReleaseError::Remains {
                name: installation.to_string(),
                waited: limit,
                left,
            });
        }
        if reported != left {
            writeln!(out, "Waiting; left of DaemonSet {installation}: {left}.")?;
            reported = left;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
