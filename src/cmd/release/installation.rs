//! Checks that the provisioner is uninstalled. It never deletes anything.
//!
//! If the chart was rendered and applied, its hook is an ordinary Job that may run before the DaemonSet is applied. So
//! the DaemonSet must be absent for a while, not only in one pass.

use std::fmt;
use std::io::Write;

use anyhow::{Result, bail};
use tokio::time::Instant;

use super::provisioners::{self, names};
use super::{Releaser, Scope, api, confirm_gone};
use crate::cluster::{Cluster, DaemonSetState};

/// The DaemonSet of a provisioner.
#[derive(Clone, Debug)]
pub(super) struct Installation {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Whether the provisioner is gone.
pub(super) enum State {
    Gone,
    Waiting,
    Installed,
}

impl Installation {
    /// The state of the DaemonSet; `None` when there is none.
    pub(super) async fn daemon_set(&self, cluster: &Cluster) -> Result<Option<DaemonSetState>> {
        let found = cluster.daemon_set(&self.namespace, &self.name).await;
        found.map_err(api(format!("reading DaemonSet {self}")))
    }
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Releaser<'_> {
    /// Checks once whether the provisioner is gone, and reports what is left. A dry run does not wait.
    pub(super) async fn wait(&mut self, out: &mut (dyn Write + Send)) -> Result<State> {
        let abandon = self.args.abandon_uncleaned;
        let installation = match self.scope {
            Scope::Node(node) => {
                confirm_gone(self.cluster, node).await?;
                return Ok(State::Gone);
            }
            Scope::All(namespace) => {
                provisioners::check(self.cluster, namespace.as_deref(), abandon, out).await?;
                return Ok(State::Gone);
            }
            Scope::Installation(installation) => installation,
        };
        let found = installation.daemon_set(self.cluster).await?;
        if self.args.dry_run {
            if found.is_some() {
                writeln!(
                    out,
                    "DaemonSet {installation} exists, and would have to be deleted first."
                )?;
            }
        } else if let Some(left) = match found {
            Some(DaemonSetState::Installed) => {
                writeln!(
                    out,
                    "DaemonSet {installation} exists: nothing was changed. To uninstall it, delete it and run this again."
                )?;
                return Ok(State::Installed);
            }
            Some(DaemonSetState::Deleting) => {
                self.absent_since = None;
                Some("the DaemonSet, which is being deleted".to_owned())
            }
            None => self.remaining(installation).await?,
        } {
            if Instant::now() >= self.deadline {
                bail!(
                    "no finalizer was removed: after {:?} this is left of DaemonSet {installation}: {left}; if a Pod's node is gone, delete the Pod with --force; then run this again",
                    self.args.timeout + self.args.absent_for
                );
            }
            if self.reported != left {
                writeln!(out, "Waiting; left of DaemonSet {installation}: {left}.")?;
                self.reported = left;
            }
            return Ok(State::Waiting);
        } else {
            writeln!(out, "DaemonSet {installation} and its Pods are gone.")?;
        }
        let namespace = Some(installation.namespace.as_str());
        provisioners::check(self.cluster, namespace, abandon, out).await?;
        Ok(State::Gone)
    }

    /// What is left of an installation whose DaemonSet is absent. The garbage collector deletes its Pods later. Until
    /// they end, they clean volumes and add the finalizer again.
    async fn remaining(&mut self, installation: &Installation) -> Result<Option<String>> {
        let absent_for = self.args.absent_for;
        let since = *self.absent_since.get_or_insert_with(Instant::now);
        if since.elapsed() < absent_for {
            return Ok(Some(format!(
                "nothing; it must be absent for {absent_for:?}, as it may be about to be applied"
            )));
        }
        let Installation { namespace, name } = installation;
        let pods = self.cluster.pods_of_daemon_set(namespace, name).await;
        let pods = pods.map_err(api(format!("listing the Pods of DaemonSet {installation}")))?;
        Ok((!pods.is_empty()).then(|| format!("its Pods: {}", names(&pods))))
    }
}
