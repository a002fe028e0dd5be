//! A cleaning Job, ours or the Go provisioner's.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job as FullJob, JobStatus};
use kube::ResourceExt;
use serde::de::IgnoredAny;

use crate::names::{
    ANNOTATION_CLAIM_UID, ANNOTATION_IDENTITY, ANNOTATION_JOB_CLEANER, ANNOTATION_JOB_DEVICE,
    ANNOTATION_JOB_START, ANNOTATION_JOB_TEMPLATE, LABEL_JOB_PV, LABEL_JOB_PV_UID,
};
use crate::view::{Partial, Tenancy};

/// A Job, as far as it is read.
pub type Job = Partial<FullJob, IgnoredAny, JobStatus>;

/// Jobs by name.
pub type Jobs = BTreeMap<String, JobView>;

/// The state of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// No pod of it runs: it has none yet, it waits for a retry, or its pod cannot start.
    Pending,
    /// Its pod runs, or has ended and is not counted yet: it is too late to cancel.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed: reason and message of the condition.
    Failed(String),
}

/// The part of a cleaning Job that decisions are made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
    /// The PV's name, truncated to the length of a label.
    pub pv: Option<String>,
    /// The PV's UID. `None`: it is not a cleaning Job.
    pub pv_uid: Option<String>,
    /// The claim's UID; empty where the PV named none. `None`: it is a Job of the Go provisioner.
    pub claim_uid: Option<String>,
    /// The device's path below the class's `mountDir`.
    pub device: Option<String>,
    /// The expected identity of the device.
    pub identity: Option<String>,
    /// The cleaner.
    pub cleaner: Option<String>,
    /// A hash of its template.
    pub template: Option<String>,
    /// Whether Kubernetes garbage-collects it with its PV.
    pub owned: bool,
    /// When it was created, by the clock of this node.
    pub created_at: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The state.
    pub state: JobState,
}

impl JobView {
    /// Reads metadata and status of a Job.
    pub fn from_api(job: &Job) -> Self {
        let label = |key| job.labels().get(key).cloned();
        let annotation = |key| job.annotations().get(key).cloned();
        Self {
            name: job.name_any(),
            uid: job.uid().unwrap_or_default(),
            resource_version: job.resource_version(),
            pv: label(LABEL_JOB_PV),
            pv_uid: label(LABEL_JOB_PV_UID),
            claim_uid: annotation(ANNOTATION_CLAIM_UID),
            device: annotation(ANNOTATION_JOB_DEVICE),
            identity: annotation(ANNOTATION_IDENTITY),
            cleaner: annotation(ANNOTATION_JOB_CLEANER),
            template: annotation(ANNOTATION_JOB_TEMPLATE),
            owned: !job.owner_references().is_empty(),
            created_at: annotation(ANNOTATION_JOB_START).and_then(|at| at.parse().ok()),
            deleting: job.metadata.deletion_timestamp.is_some(),
            state: state(&job.status),
        }
    }

    /// Whether we created it for this tenancy: the success of an earlier tenancy's Job proves nothing.
    pub fn is_for(&self, tenancy: &Tenancy) -> bool {
        let claim = tenancy.claim_uid.as_deref().unwrap_or_default();
        self.pv_uid.as_deref() == Some(&tenancy.pv_uid)
            && self.claim_uid.as_deref() == Some(claim)
            && self.identity.is_some()
    }
}

fn state(status: &JobStatus) -> JobState {
    let condition = |type_: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|it| it.type_ == type_ && it.status == "True")
    };
    let has = |type_| condition(type_).is_some();
    if has("Complete") {
        return JobState::Succeeded;
    }
    if let Some(failed) = condition("Failed") {
        let words = [&failed.reason, &failed.message].into_iter().flatten();
        return JobState::Failed(words.cloned().collect::<Vec<_>>().join(": "));
    }
    // No pod runs any more, and the final condition follows in a later write.
    let ends = has("SuccessCriteriaMet") || has("FailureTarget");
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let has_done = uncounted.is_some_and(|pods| pods.succeeded.iter().flatten().count() > 0);
    // Kubernetes before 1.24 does not report ready pods.
    let runs = status.ready.or(status.active).unwrap_or_default() > 0;
    if ends || has_done || runs { JobState::Running } else { JobState::Pending }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(status: &Value) -> JobView {
        let job = json!({
            "metadata": {
                "name": "cleanup-pv-1",
                "uid": "job-uid",
                "labels": { "pv": "pv-1", "pvuuid": "pv-uid", "kubernetes.io/hostname": "host-1" },
                "annotations": {
                    "device": "/mnt/raw/disk",
                    "start-time": "2026-11-21T10:20:30.123456789+01:00",
                    "local-volume-provisioner/claim-uid": "claim-uid",
                    "local-volume-provisioner/identity": "v1:wwid=a",
                },
            },
            "status": status,
        });
        JobView::from_api(&serde_json::from_value(job).unwrap())
    }

    #[test]
    fn job_state_follows_conditions_and_pods() {
        let condition = |type_: &str, status: &str| {
            json!({ "conditions": [
                { "type": type_, "status": status, "reason": "BackoffLimitExceeded", "message": "too often" },
            ] })
        };
        let uncounted =
            |how: &str| json!({ "ready": 0, "uncountedTerminatedPods": { how: ["pod-uid"] } });
        let failed = JobState::Failed("BackoffLimitExceeded: too often".into());
        for (status, state) in [
            (json!({}), JobState::Pending),
            (json!({ "active": 1, "ready": 0 }), JobState::Pending),
            (json!({ "active": 1, "ready": 1 }), JobState::Running),
            (json!({ "active": 1 }), JobState::Running),
            // Neither is final before the last pod is gone, and no pod starts any more.
            (condition("SuccessCriteriaMet", "True"), JobState::Running),
            (condition("FailureTarget", "True"), JobState::Running),
            (condition("SuccessCriteriaMet", "False"), JobState::Pending),
            (uncounted("succeeded"), JobState::Running),
            // The Job controller retries it.
            (uncounted("failed"), JobState::Pending),
            (condition("Complete", "True"), JobState::Succeeded),
            (condition("Complete", "False"), JobState::Pending),
            (condition("Failed", "True"), failed),
            (condition("Suspended", "True"), JobState::Pending),
        ] {
            assert_eq!(job(&status).state, state, "{status}");
        }
    }

    #[test]
    fn job_belongs_to_one_tenancy() {
        let ours = job(&json!({}));
        let at: Timestamp = "2026-11-21T09:20:30.123456789Z".parse().unwrap();
        assert_eq!(ours.created_at, Some(at));
        let tenancy = |pv: &str, claim: Option<&str>| Tenancy {
            pv_uid: pv.into(),
            claim_uid: claim.map(str::to_owned),
        };
        let of_no_claim = JobView { claim_uid: Some(String::new()), ..ours.clone() };
        let of_go = JobView { claim_uid: None, identity: None, ..ours.clone() };
        for (job, pv, claim, is) in [
            (&ours, "pv-uid", Some("claim-uid"), true),
            (&ours, "pv-uid", Some("another"), false),
            (&ours, "pv-uid", None, false),
            (&ours, "another", Some("claim-uid"), false),
            (&of_no_claim, "pv-uid", None, true),
            (&of_no_claim, "pv-uid", Some("claim-uid"), false),
            (&of_go, "pv-uid", Some("claim-uid"), false),
            (&of_go, "pv-uid", None, false),
        ] {
            assert_eq!(job.is_for(&tenancy(pv, claim)), is, "{job:?} {pv} {claim:?}");
        }
    }
}
