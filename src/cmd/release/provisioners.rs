//! Checks that no provisioner runs. It never deletes anything.

use std::io::Write;

use anyhow::{Result, bail, ensure};
use tokio::time::{Instant, sleep};

use super::{PASS_PAUSE, Releaser, Scope, api};
use crate::cluster::{ApiError, ProvisionerPod};
use crate::cmd::run::UsageError;

/// The number of Pods that a message names.
const NAMED: usize = 5;

/// What a look at an installation found.
enum Found {
    Installed,
    Left(String),
    Gone,
}

impl Releaser {
    /// Waits until the DaemonSet in scope was absent for a while and its Pods are gone. A dry run does not wait.
    /// Returns false if it exists.
    ///
    /// If the chart was rendered and applied, its hook is an ordinary Job that may run before the DaemonSet is
    /// applied. So the DaemonSet must be absent for a while, not only in one look.
    pub(super) async fn wait_until_gone(&self, out: &mut (dyn Write + Send)) -> Result<bool> {
        let (namespace, name) = match &self.scope {
            Scope::Installation { namespace, name } if !self.args.dry_run => (namespace, name),
            _ => return Ok(true),
        };
        let limit = self.args.timeout + self.args.absent_for;
        let deadline = Instant::now() + limit;
        let (mut absent_since, mut reported) = (None, String::new());
        loop {
            let left = match self.look(namespace, name, &mut absent_since).await {
                Ok(Found::Installed) => {
                    writeln!(
                        out,
                        "DaemonSet {namespace}/{name} exists: nothing was changed. To uninstall it, delete it and run this again."
                    )?;
                    return Ok(false);
                }
                Ok(Found::Gone) => return Ok(true),
                Ok(Found::Left(left)) => left,
                Err(error) if error.is_passing() => format!("{error}; trying again"),
                Err(error) => return Err(api("looking for the DaemonSet and its Pods")(error)),
            };
            ensure!(
                Instant::now() < deadline,
                "no finalizer was removed: after {limit:?} this is left of DaemonSet {namespace}/{name}: {left}; if a Pod's node is gone, delete the Pod with --force; then run this again"
            );
            if reported != left {
                writeln!(
                    out,
                    "Waiting; left of DaemonSet {namespace}/{name}: {left}."
                )?;
                reported = left;
            }
            sleep(PASS_PAUSE).await;
        }
    }

    /// The garbage collector deletes the Pods after their DaemonSet. Until they end, they clean volumes and add the
    /// finalizer again.
    async fn look(
        &self,
        namespace: &str,
        name: &str,
        absent_since: &mut Option<Instant>,
    ) -> Result<Found, ApiError> {
        // A failed request does not prove that the DaemonSet is absent.
        let since = absent_since.take().unwrap_or_else(Instant::now);
        match self.cluster.daemon_set(namespace, name).await? {
            Some(set) if set.deletion_timestamp.is_none() => return Ok(Found::Installed),
            Some(_) => {
                let left = "the DaemonSet, which is being deleted".to_owned();
                return Ok(Found::Left(left));
            }
            None => *absent_since = Some(since),
        }
        let absent_for = self.args.absent_for;
        if since.elapsed() < absent_for {
            return Ok(Found::Left(format!(
                "nothing; it must be absent for {absent_for:?}, as it may be about to be applied"
            )));
        }
        let is_its = |pod: &ProvisionerPod| pod.daemon_set.as_deref() == Some(name);
        let pods = self.cluster.running_pods(Some(namespace), is_its).await?;
        Ok(match pods.as_slice() {
            [] => Found::Gone,
            pods => Found::Left(format!("its Pods: {}", names(pods))),
        })
    }

    /// Finds and reports provisioners in all namespaces; if that is denied, in this one.
    ///
    /// A running provisioner adds the finalizer again. It may also be cleaning an uncleaned volume, or offer it again
    /// with the data, so no volume is abandoned meanwhile. The Go provisioner ignores the finalizer but looks the
    /// same, so otherwise this is only a warning.
    ///
    /// # Errors
    /// [`UsageError`] if one runs and uncleaned volumes were to be abandoned.
    pub(super) async fn check_provisioners(
        &self,
        namespace: Option<&str>,
        out: &mut (dyn Write + Send),
    ) -> Result<()> {
        let (mut found, mut place) = (self.cluster.provisioners(None).await, "any namespace");
        if let (Err(ApiError::Forbidden { .. }), Some(name)) = (&found, namespace) {
            (found, place) = (self.cluster.provisioners(namespace).await, name);
        }
        let running = found.map_err(api(format!("looking for provisioners in {place}")))?;
        if running.is_empty() {
            writeln!(out, "No other provisioner runs in {place}.")?;
            return Ok(());
        }
        let names = names(&running);
        if self.args.abandon_uncleaned {
            bail!(UsageError(format!(
                "provisioners run in {place}: {names}; one may be cleaning or offering uncleaned volumes, so none is abandoned; delete their DaemonSet first (a Pod whose node is gone: kubectl delete pod --force)"
            )));
        }
        writeln!(
            out,
            "WARNING: these look like provisioners: {names}. If they are this program's, they add the finalizer again; delete their DaemonSet."
        )?;
        Ok(())
    }
}

/// Pods with their nodes, for a message.
fn names(pods: &[ProvisionerPod]) -> String {
    let named = pods.iter().take(NAMED);
    let named = named.map(|pod| format!("{} on {}", pod.name, pod.node));
    let named: Vec<_> = named.collect();
    let more = match pods.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}
