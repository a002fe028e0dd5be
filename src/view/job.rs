//! A cleaning Job, ours or the Go provisioner's.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};

use crate::names::{
    ANNOTATION_CLAIM_UID, ANNOTATION_IDENTITY, ANNOTATION_JOB_CLEANER, ANNOTATION_JOB_DEVICE,
    ANNOTATION_JOB_START, ANNOTATION_JOB_TEMPLATE, LABEL_JOB_PV, LABEL_JOB_PV_UID,
};
use crate::view::Tenancy;

/// Jobs by name.
pub type Jobs = Arc<BTreeMap<String, JobView>>;

/// How far a Job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// No pod of it runs: it has none yet, or between two tries, or none that can start.
    Pending,
    /// Its pod runs, or has ended and is being counted: there is nothing to call off (any more).
    Running,
    /// It ended well.
    Succeeded,
    /// It is given up: the API server's reason and words.
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
    /// The PV's name, as far as a label holds it.
    pub pv: Option<String>,
    /// The PV's UID. None: it is no cleaning Job.
    pub pv_uid: Option<String>,
    /// The claim's UID; empty where the PV named none. None: it is the Go provisioner's Job.
    pub claim_uid: Option<String>,
    /// The device, as it is reached below the class's `mountDir`.
    pub device: Option<String>,
    /// The identity of the device that it is to clean.
    pub identity: Option<String>,
    /// How it cleans.
    pub cleaner: Option<String>,
    /// A hash of what it runs.
    pub template: Option<String>,
    /// Whether Kubernetes deletes it when its PV is gone.
    pub owned: bool,
    /// When it was made, by the clock of this node.
    pub made_at: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// How far it is.
    pub state: JobState,
}

impl JobView {
    /// Reads metadata and status; the rest of a Job does not matter.
    #[must_use]
    pub fn from_api(job: &Job) -> Self {
        let metadata = &job.metadata;
        let get =
            |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
        let (label, annotation) = (
            |key| get(&metadata.labels, key),
            |key| get(&metadata.annotations, key),
        );
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone(),
            pv: label(LABEL_JOB_PV),
            pv_uid: label(LABEL_JOB_PV_UID),
            claim_uid: annotation(ANNOTATION_CLAIM_UID),
            device: annotation(ANNOTATION_JOB_DEVICE),
            identity: annotation(ANNOTATION_IDENTITY),
            cleaner: annotation(ANNOTATION_JOB_CLEANER),
            template: annotation(ANNOTATION_JOB_TEMPLATE),
            owned: metadata
                .owner_references
                .as_ref()
                .is_some_and(|it| !it.is_empty()),
            made_at: annotation(ANNOTATION_JOB_START).and_then(|at| at.parse().ok()),
            deleting: metadata.deletion_timestamp.is_some(),
            state: job.status.as_ref().map_or(JobState::Pending, state),
        }
    }

    /// Whether we made it for this very tenancy: an earlier one's success must not vouch for it.
    #[must_use]
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
    if condition("Complete").is_some() {
        return JobState::Succeeded;
    }
    if let Some(failed) = condition("Failed") {
        let word = failed.reason.as_deref().unwrap_or("Failed");
        return JobState::Failed(match failed.message.as_deref() {
            Some(text) if !text.is_empty() => format!("{word}: {text}"),
            _ => word.to_owned(),
        });
    }
    // By then no pod runs, and the last word comes only with a later write.
    let ends = ["SuccessCriteriaMet", "FailureTarget"]
        .iter()
        .any(|it| condition(it).is_some());
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let has_done = uncounted.is_some_and(|pods| pods.succeeded.iter().flatten().count() > 0);
    // Kubernetes before 1.24 does not count the pods that run.
    let runs = status.ready.or(status.active).unwrap_or_default() > 0;
    if ends || has_done || runs {
        JobState::Running
    } else {
        JobState::Pending
    }
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
    fn it_is_as_far_as_its_conditions_say() {
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
            // Neither counts before the last pod is gone, and nothing starts any more.
            (condition("SuccessCriteriaMet", "True"), JobState::Running),
            (condition("FailureTarget", "True"), JobState::Running),
            (condition("SuccessCriteriaMet", "False"), JobState::Pending),
            (uncounted("succeeded"), JobState::Running),
            // It is tried again.
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
    fn it_is_for_one_tenancy_only() {
        let ours = job(&json!({}));
        let at: Timestamp = "2026-11-21T09:20:30.123456789Z".parse().unwrap();
        assert_eq!(ours.made_at, Some(at));
        let tenancy = |pv: &str, claim: Option<&str>| Tenancy {
            pv_uid: pv.into(),
            claim_uid: claim.map(str::to_owned),
        };
        let of_no_claim = JobView {
            claim_uid: Some(String::new()),
            ..ours.clone()
        };
        let of_go = JobView {
            claim_uid: None,
            identity: None,
            ..ours.clone()
        };
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
            assert_eq!(
                job.is_for(&tenancy(pv, claim)),
                is,
                "{job:?} {pv} {claim:?}"
            );
        }
    }
}
