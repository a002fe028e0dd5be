//! To whom a Job belongs. One that has not started goes with its PV, whoever is there to see it. One
//! that is at work comes to its end, or its device would be offered half clean.

use std::time::Duration;

use crate::cluster::{ApiError, REMEDY};
use crate::plan::{About, CleanOrder, reasons};
use crate::view::JobView;

use crate::clean::gate::{SHUTTING_DOWN, api};
use crate::clean::progress::Progress;
use crate::clean::{Ground, Stop};

/// How often an API server is asked that is busy.
const PAUSE: Duration = Duration::from_secs(1);

/// What happened to a Job while somebody waited for its end.
#[derive(Debug, Default)]
pub(super) struct Watched {
    has_begun: bool,
    is_told: bool,
}

impl Watched {
    /// The Job is at work: from here on it goes no more with its PV. Without the right to say so it
    /// works all the same, and somebody is told.
    pub(super) async fn at_work(&mut self, ground: &Ground, order: &CleanOrder, job: &JobView) {
        self.has_begun = true;
        if !job.owned {
            return;
        }
        let (pv, shown) = (&order.pv.name, ground.jobs.job_of(order));
        match ground.cluster.disown_job(&ground.jobs.namespace, job).await {
            // By then it is another one, or somebody else was faster: it is looked at again.
            Ok(()) | Err(ApiError::Conflict | ApiError::NotFound) => {}
            Err(error) if !std::mem::replace(&mut self.is_told, true) => {
                let remedy = match &error {
                    ApiError::Forbidden { .. } => format!("; {REMEDY}"),
                    _ => String::new(),
                };
                tracing::warn!(
                    pv, job = shown, %error,
                    "the Job is at work and its ownerReference could not be taken off; cleaning goes on, but while it does \
                     nobody may take the finalizers off the PV: Kubernetes would stop the Job{remedy}"
                );
            }
            Err(error) => tracing::debug!(pv, job = shown, %error, "the Job still has an owner"),
        }
    }

    /// The Job is gone. If it was at work, and its PV went too, nobody cleans what it has begun.
    ///
    /// # Errors
    /// [`Stop`] if the PV cannot be looked at.
    pub(super) async fn is_gone(
        &self,
        ground: &Ground,
        order: &CleanOrder,
        progress: &Progress,
    ) -> Result<(), Stop> {
        if !self.has_begun {
            return Ok(());
        }
        let pv = &order.pv.name;
        let found = loop {
            match ground.cluster.pv(pv).await {
                // Nobody who looks later knows that a Job was at work.
                Err(error) if error.is_passing() => tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = progress.cancelled() => return Err(Stop::NotDue(SHUTTING_DOWN.into())),
                },
                found => break found.map_err(api("reading the PV"))?,
            }
        };
        if found.is_some_and(|found| found.uid == order.pv.uid) {
            return Ok(());
        }
        let (shown, path) = (ground.jobs.job_of(order), &order.path);
        let text = format!(
            "Job {shown} was deleted while it cleaned {path}, and PV {pv} is gone too: the volume is only partly clean and is \
             going to be offered as it is; where the next user must not read what is left, clean it by hand before it is used"
        );
        tracing::warn!(pv, %path, job = shown, "{text}");
        let reason = reasons::VOLUME_FAILED_DELETE;
        let reporter = &ground.reporter;
        reporter.warning(&About::Pod, reason, "Clean", &text);
        Ok(())
    }
}
