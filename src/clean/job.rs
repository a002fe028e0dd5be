//! Cleaning by Jobs (`useJobForCleaning`): devices only, as in the Go provisioner.
//!
//! One cleanup by a Job goes through permit, gate and commit twice, and a crash at any point only
//! means that the next process begins again at the first step:
//!
//! ```text
//!           ┌──────────────────────────────────────────────────────────────┐
//!           ▼                                                              │
//!  permit ► the Job ─ none ────────► gate ► commit ► hand over (create it) ┤
//!               ├─── at work ──────► wait ─────────────────────────────────┤
//!               ├─── a stranger's ─► delete, wait ─────────────────────────┘
//!               ├─── failed ───────► failed, until somebody deletes it
//!               └─── succeeded ────► gate ► commit ► accept (check, delete it) ► release
//! ```
//!
//! The Job's own word is not enough: its image may be foreign. What lets the volume go is a look of
//! ours at the device, opened and locked and judged like one that we clean ourselves.

mod hands;
pub mod object;
mod owner;
mod settle;

use tokio::sync::watch;

use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::names::job_name;
use crate::plan::CleanOrder;
use crate::view::{JobView, Jobs};

use super::gate::api;
use super::{Ground, Stop, Tell};

pub(super) use owner::Watched;
pub(super) use settle::settle;

/// Where Jobs are made.
#[derive(Clone, Debug)]
pub struct Place {
    /// Our own namespace.
    pub namespace: String,
    /// The image that they run.
    pub image: Option<String>,
    /// What it takes to pull it: Secrets of that namespace.
    pub pull_secrets: Vec<String>,
    /// What a watch knows of them.
    pub known: watch::Receiver<Option<Jobs>>,
}

impl Place {
    /// `namespace/name` of a PV's Job.
    pub(super) fn job_of(&self, order: &CleanOrder) -> String {
        format!("{}/{}", self.namespace, job_name(&order.pv.name))
    }
}

/// What is known of a Job; from here on its changes are news.
fn known(watched: &mut watch::Receiver<Option<Jobs>>, name: &str) -> Option<JobView> {
    watched.borrow_and_update().as_ref()?.get(name).cloned()
}

/// Waits until something else is known of a Job. There may be many, and each change of one wakes all
/// that wait for the others.
async fn another(
    watched: &mut watch::Receiver<Option<Jobs>>,
    name: &str,
    before: Option<&JobView>,
) {
    loop {
        if watched.changed().await.is_err() {
            // The main loop is gone; the shutdown cancels us.
            std::future::pending::<()>().await;
        }
        if known(watched, name).as_ref() != before {
            return;
        }
    }
}

/// Makes sure that no pod is left of a Job that is gone: it would wipe the device sooner or later,
/// whoever has it then. Deleting Jobs leaves their pods behind, unless somebody asks for more.
async fn nobody_left(ground: &Ground, order: &CleanOrder) -> Result<(), Stop> {
    let namespace = &ground.jobs.namespace;
    let pods = match ground.cluster.pods_of_jobs(namespace, &order.pv.uid).await {
        // As in the gate.
        Err(ApiError::Forbidden { .. }) => Vec::new(),
        pods => pods.map_err(api("listing the pods of cleaning Jobs"))?,
    };
    if pods.is_empty() {
        return Ok(());
    }
    let pods = pods.join(" ");
    Err(Stop::InUse {
        by: format!(
            "pods of a cleaning Job are there whose Job is gone: {pods}; unless they come to an end: kubectl --namespace \
             {namespace} delete pod {pods}"
        ),
        tell: Tell::Soon,
    })
}

/// Begins to delete a Job. That it is gone already, or is another one now, is found out by reading.
async fn delete(ground: &Ground, job: &JobView) -> Result<(), Stop> {
    let namespace = &ground.jobs.namespace;
    crash_point("delete-job");
    match ground.cluster.delete_job(namespace, job).await {
        Ok(()) | Err(ApiError::NotFound | ApiError::Conflict) => Ok(()),
        Err(error) => Err(api("deleting the cleaning Job")(error)),
    }
}
