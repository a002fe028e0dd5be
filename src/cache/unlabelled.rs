//! PVs of this node without the hostname label.
//!
//! They are not watched, since that would watch the PVs of all other drivers too. A background task lists them once
//! for each set of directories, and reads the PVs it found every minute.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::types::HostPath;
use crate::view::{NodeView, PvView};

use super::expectations::Expectations;

/// How often the found PVs are read.
const READ_PERIOD: Duration = Duration::from_mins(1);
/// The pauses after the list failed.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};

type Dirs = BTreeSet<HostPath>;

#[derive(Debug)]
pub(super) struct Unlabelled {
    cluster: Cluster,
    expectations: Expectations,
    wake: Arc<Notify>,
    /// The directories whose PVs are listed.
    listed: watch::Sender<Dirs>,
    /// The background task and its directories.
    task: Option<(Dirs, JoinHandle<()>)>,
}

impl Unlabelled {
    pub(super) fn new(cluster: Cluster, expectations: Expectations, wake: Arc<Notify>) -> Self {
        Self {
            cluster,
            expectations,
            wake,
            listed: watch::Sender::new(Dirs::new()),
            task: None,
        }
    }

    /// Whether the PVs in these directories are known.
    pub(super) fn is_known(&self, dirs: &Dirs) -> bool {
        self.listed.borrow().is_superset(dirs)
    }

    /// Starts the background task for these directories, unless it already runs.
    pub(super) fn find(&mut self, node: &NodeView, dirs: &Dirs) {
        if self.task.as_ref().is_some_and(|(of, _)| of == dirs) {
            return;
        }
        self.stop();
        // A directory that is configured again later is listed again.
        self.listed
            .send_modify(|listed| listed.retain(|dir| dirs.contains(dir)));
        let task = list_and_read(
            self.cluster.clone(),
            self.expectations.clone(),
            (node.clone(), dirs.clone()),
            (self.listed.clone(), Arc::clone(&self.wake)),
        );
        self.task = Some((dirs.clone(), tokio::spawn(task)));
    }

    fn stop(&mut self) {
        if let Some((_, task)) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Unlabelled {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn list_and_read(
    cluster: Cluster,
    expectations: Expectations,
    (node, dirs): (NodeView, Dirs),
    (listed, wake): (watch::Sender<Dirs>, Arc<Notify>),
) {
    let is_inside = |path: &HostPath| dirs.iter().any(|dir| path.is_within(dir));
    let ours = |pv: &PvView| pv.stands_on(&node) && pv.path().is_some_and(is_inside);
    let mut failures = 0;
    while !listed.borrow().is_superset(&dirs) {
        match cluster.unlabelled_pvs(ours).await {
            Ok(pvs) => {
                if !pvs.is_empty() {
                    let names: Vec<_> = pvs.iter().map(|pv| pv.name.as_str()).collect();
                    let pvs = names.join(", ");
                    tracing::info!(pvs, "found PVs without a hostname label in our directories");
                }
                expectations.set_unlabelled(pvs);
                listed.send_replace(dirs.clone());
                wake.notify_one();
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%error, "the PVs without a hostname label could not be listed; no PV is created or cleaned until they are");
                }
                sleep(RETRY.pause(failures)).await;
                failures += 1;
            }
        }
    }
    loop {
        sleep(READ_PERIOD).await;
        for pv in expectations.unlabelled() {
            expectations.read(&pv).await;
        }
    }
}
