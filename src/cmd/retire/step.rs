//! The next step of a volume that is taken out of service, by its present state alone.

use std::iter;

use serde_json::Value;

use crate::cluster::{ClaimView, PodView};
use crate::cmd::status::show::text;
use crate::types::{HostPath, VolumeMode};
use crate::view::{ClaimRef, Phase, PvView, ReclaimPolicy};

/// The claim for which a volume is reserved, so that no other binds to it. It never exists.
pub(super) const RESERVED_FOR: (&str, &str) = ("kube-system", "taken-out");

/// What is done with the data of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// It stays on the disk, which may have failed.
    Kept,
    /// The provisioner cleans it.
    Cleaned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Withhold it from claims and from cleaning.
    Withhold,
    /// Delete its claim and the pods of that, and wait for their end.
    Release,
    AwaitCleaning,
    /// An operator unmounts it.
    AwaitUnmount,
    Delete,
    AwaitDeletion,
}

/// A volume as it is now.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Its report in `/status`.
    pub report: Value,
    pub pv: PvView,
    /// The claim of the PV, if it exists.
    pub claim: Option<ClaimView>,
    /// The pods of the claim that have not ended.
    pub pods: Vec<PodView>,
}

impl Target {
    pub fn step(&self, data: Data) -> Step {
        let pv = &self.pv;
        let is_absent = matches!(text(&self.report, "state"), "NotMounted" | "Missing");
        let is_kept = self.is_kept();
        match pv.phase {
            _ if pv.deleting => Step::AwaitDeletion,
            Phase::Bound if data == Data::Kept && !is_kept => Step::Withhold,
            Phase::Bound => Step::Release,
            Phase::Released if data == Data::Cleaned && !is_kept => Step::AwaitCleaning,
            // A PV that is reserved for another claim stays so.
            Phase::Available | Phase::Pending if pv.claim.is_none() => Step::Withhold,
            _ if !is_kept => Step::Withhold,
            _ if is_absent => Step::Delete,
            _ => Step::AwaitUnmount,
        }
    }

    /// Whether the policy of the PV keeps its data.
    pub fn is_kept(&self) -> bool {
        self.pv.policy == ReclaimPolicy::Retain
    }

    /// What the step does, or waits for.
    pub fn said(&self, step: Step, node: &str) -> String {
        let path = self.pv.path().map_or("(unknown)", HostPath::as_str);
        let claim = self.claim_name();
        match step {
            Step::Withhold => "no other claim can bind to it, and it is not cleaned".into(),
            Step::Release => match self.pod_names() {
                None => format!("claim {claim} is deleted; its PV is about to be Released"),
                Some(pods) => format!(
                    "claim {claim} and its pods {pods} are deleted; if a pod hangs on a failed disk: kubectl delete pod --force"
                ),
            },
            Step::AwaitCleaning => format!(
                "waiting until it is clean, state {}; explain {} has the cause",
                text(&self.report, "state"),
                self.pv.name
            ),
            Step::AwaitUnmount => match self.pv.mode {
                VolumeMode::Filesystem => format!(
                    "waiting until it is unmounted; on node {node}: umount {path} (umount --lazy, if the disk hangs), and remove its line from /etc/fstab; if its class has devices.filesystem: rmdir {path}"
                ),
                VolumeMode::Block => {
                    format!("waiting until its link is removed; on node {node}: rm {path}")
                }
            },
            Step::Delete => "deleting its PV".into(),
            Step::AwaitDeletion => "waiting until its PV is deleted".into(),
        }
    }

    /// What has to be confirmed before it is deleted: the UIDs of the claim and of its pods, each with what happens to
    /// the data.
    pub fn to_release(&self, data: Data) -> Vec<(String, String)> {
        let is_in_use = self.pv.phase == Phase::Bound && !self.pv.deleting;
        let is_left = self.claim.as_ref().is_some_and(|claim| !claim.deleting);
        let is_due = is_in_use && (is_left || !self.pods.is_empty());
        let claim = self.pv.claim.as_ref().filter(|_| is_due);
        let fate = match (data, &self.pv.policy) {
            (Data::Cleaned, ReclaimPolicy::Delete) => "its data is wiped",
            _ => "its data stays on the disk",
        };
        let fate = format!("claim {}: {fate}", self.claim_name());
        let claim = claim.and_then(|it| it.uid.as_ref());
        let pods = self.pods.iter().map(|pod| &pod.uid);
        let uids = claim.map(|uid| iter::once(uid).chain(pods));
        uids.into_iter().flatten().map(|uid| (uid.clone(), fate.clone())).collect()
    }

    /// The pods of the claim, if there are any.
    pub fn pod_names(&self) -> Option<String> {
        let names: Vec<_> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn claim_name(&self) -> String {
        let claim = self.pv.claim.as_ref();
        claim.map(ToString::to_string).unwrap_or_default()
    }
}

pub(super) fn is_reserved(claim: Option<&ClaimRef>) -> bool {
    claim.is_some_and(|it| (&*it.namespace, &*it.name) == RESERVED_FOR)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(phase: &str, policy: &str, claim: Option<&str>, state: &str) -> Target {
        let claim = claim.map(|name| match name {
            "taken-out" => json!({ "namespace": "kube-system", "name": name }),
            name => json!({ "namespace": "shop", "name": name, "uid": "claim-uid" }),
        });
        let pv = json!({
            "metadata": { "name": "pv", "uid": "pv-uid" },
            "spec": { "persistentVolumeReclaimPolicy": policy, "claimRef": claim },
            "status": { "phase": phase },
        });
        Target {
            report: json!({ "path": "/mnt/disks/a", "state": state }),
            pv: PvView::from_api(&serde_json::from_value(pv).unwrap()),
            claim: None,
            pods: Vec::new(),
        }
    }

    #[test]
    fn next_step_follows_from_the_state() {
        use Data::{Cleaned, Kept};
        use Step::*;
        let (ours, theirs) = (Some("taken-out"), Some("db"));
        for (phase, policy, claim, state, kept, cleaned) in [
            ("Available", "Delete", None, "Available", Withhold, Withhold),
            // Reserved for a claim that is not bound yet.
            ("Available", "Delete", theirs, "Available", Withhold, Withhold),
            ("Available", "Delete", ours, "Available", Withhold, Withhold),
            ("Available", "Retain", None, "Available", Withhold, Withhold),
            ("Available", "Retain", ours, "Available", AwaitUnmount, AwaitUnmount),
            ("Available", "Retain", ours, "NotMounted", Delete, Delete),
            ("Available", "Retain", theirs, "Missing", Delete, Delete),
            // Nothing is known of the volume.
            ("Available", "Retain", ours, "", AwaitUnmount, AwaitUnmount),
            ("Bound", "Delete", theirs, "Bound", Withhold, Release),
            ("Bound", "Retain", theirs, "Bound", Release, Release),
            // A mounted volume of a tenant is never deleted, whatever is missing.
            ("Bound", "Retain", theirs, "Missing", Release, Release),
            ("Released", "Delete", theirs, "Due", Withhold, AwaitCleaning),
            ("Released", "Delete", theirs, "Missing", Withhold, AwaitCleaning),
            ("Released", "Retain", theirs, "Retained", AwaitUnmount, AwaitUnmount),
            ("Released", "Retain", theirs, "Unhealthy", AwaitUnmount, AwaitUnmount),
            ("Released", "Retain", theirs, "Missing", Delete, Delete),
            ("Failed", "Retain", theirs, "NotMounted", Delete, Delete),
        ] {
            let target = target(phase, policy, claim, state);
            let found = (target.step(Kept), target.step(Cleaned));
            assert_eq!(found, (kept, cleaned), "{phase} {policy} {claim:?} {state}");
        }
    }
}
