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
mod settle;

use tokio::sync::watch;

use crate::cluster::ApiError;
use crate::names::job_name;
use crate::plan::CleanOrder;
use crate::view::{JobView, Jobs};

use super::gate::api;
use super::{Ground, Stop};

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

async fn change(watched: &mut watch::Receiver<Option<Jobs>>) {
    if watched.changed().await.is_err() {
        // The main loop is gone; the shutdown cancels us.
        std::future::pending::<()>().await;
    }
}

/// Begins to delete a Job. That it is gone already, or is another one now, is found out by reading.
async fn delete(ground: &Ground, job: &JobView) -> Result<(), Stop> {
    let namespace = &ground.jobs.namespace;
    match ground
        .cluster
        .delete_job(namespace, &job.name, &job.uid)
        .await
    {
        Ok(()) | Err(ApiError::NotFound | ApiError::Conflict) => Ok(()),
        Err(error) => Err(api("deleting the cleaning Job")(error)),
    }
}
