//! To whom a Job belongs. One that has not started goes with its PV, whoever is there to see it. One
//! that is at work comes to its end, or its device would be offered half clean.

use crate::cluster::{ApiError, REMEDY};
use crate::plan::{About, CleanOrder, reasons};
use crate::view::JobView;

use crate::clean::gate::{SHUTTING_DOWN, api};
use crate::clean::{Ground, Stop};

/// What becomes of a volume that is partly clean and has no PV.
const OFFERED: &str = "is going to be offered as it is; where the next user must not read what is left, clean it by hand \
                       before it is used";

/// What happened to the Jobs of one cleanup while somebody waited for their end. It is kept for all of
/// the cleanup: nobody who looks for the first time can tell.
#[derive(Debug, Default)]
pub(in crate::clean) struct Watched {
    has_begun: bool,
    is_told: bool,
}

impl Watched {
    /// Whether a Job has begun of which it is not known what became.
    pub(in crate::clean) fn has_begun(&self) -> bool {
        self.has_begun
    }

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
    /// [`Stop`] if the PV cannot be looked at; it is to be asked again then.
    pub(super) async fn is_gone(
        &mut self,
        ground: &Ground,
        order: &CleanOrder,
    ) -> Result<(), Stop> {
        if !self.has_begun {
            return Ok(());
        }
        let (pv, path, shown) = (&order.pv.name, &order.path, ground.jobs.job_of(order));
        let found = ground.cluster.pv(pv).await.map_err(api("reading the PV"))?;
        self.has_begun = false;
        if found.is_some_and(|found| found.uid == order.pv.uid) {
            return Ok(());
        }
        let text = format!(
            "Job {shown} was deleted while it cleaned {path}, and PV {pv} is gone too: the volume is only partly clean and \
             {OFFERED}"
        );
        tracing::warn!(pv, %path, job = shown, "{text}");
        let reason = reasons::VOLUME_FAILED_DELETE;
        let reporter = &ground.reporter;
        reporter.warning(&About::Pod, reason, "Clean", &text);
        Ok(())
    }

    /// The program shuts down, and it was not seen what became of the Job.
    pub(in crate::clean) fn is_left(&self, ground: &Ground, order: &CleanOrder) -> Stop {
        if self.has_begun {
            let (pv, path, shown) = (&order.pv.name, &order.path, ground.jobs.job_of(order));
            tracing::warn!(
                pv, %path, job = shown,
                "the Job was at work when it was last seen, and it could not be read whether it and the PV are still there; if \
                 both are gone, the volume is only partly clean and {OFFERED}"
            );
        }
        Stop::NotDue(SHUTTING_DOWN.into())
    }
}
