//! The next step of `rebind --to`, by the present state alone.

use anyhow::{Context, Result, bail, ensure};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::cluster::ClaimView;
use crate::cmd::explain::cause;
use crate::cmd::fleet::Answer;
use crate::cmd::status::show::text;
use crate::cmd::volume::{Volume, ensure_detached, volumes};
use crate::names::{
    ANNOTATION_CONSENT, ANNOTATION_IDENTITY, ANNOTATION_INSTALLATION, ANNOTATION_MOVED_FROM,
    ANNOTATION_PROVISIONED_BY, ANNOTATION_STATE_DIRECTORY, LABEL_HOSTNAME, nodes_of_provisioner,
    provisioner_name,
};
use crate::view::{ClaimRef, PvView, ReclaimPolicy};

/// Annotations of the former place. The provisioner sets the present ones.
const OF_PLACE: [&str; 3] =
    [ANNOTATION_CONSENT, ANNOTATION_INSTALLATION, ANNOTATION_STATE_DIRECTORY];

/// Kubernetes schedules pods by the labels of a PV with this prefix.
const TOPOLOGY: &str = "topology.kubernetes.io/";

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    AwaitPods,
    /// Set the policy Retain.
    Keep,
    /// Keep the new manifest in the Node.
    Save(String),
    /// Delete the PV, to create it by this manifest.
    Delete(Value),
    Create(Value),
    /// The provisioner has not verified the disk yet.
    Await(String),
    /// Restore the policy, and remove the annotations.
    Finish,
    Done,
}

/// The PV and its claim as they are now, and what the nodes report.
pub(super) struct Present {
    /// The PV, or the manifest that the Node keeps.
    pub manifest: Value,
    /// The same. Without a UID, there is no PV.
    pub pv: PvView,
    pub of: ClaimRef,
    pub claim: Option<ClaimView>,
    pub pods: Vec<String>,
    pub answers: Vec<Answer>,
    /// The node that has the disk now.
    pub node: ObjectMeta,
    /// The manifest that it keeps.
    pub kept: Option<String>,
}

impl Present {
    /// The next step.
    ///
    /// # Errors
    /// Why the disk cannot be given to the claim.
    pub fn step(&self, node: &str) -> Result<Step> {
        let (pv, of, name) = (&self.pv, &self.of, &self.pv.name);
        ensure!(
            pv.link.is_none(),
            "PV {name} is bound to its disk and moves with it: kubectl local-volume move {name} --to {node}"
        );
        let claim =
            self.claim.as_ref().filter(|it| of.uid.as_ref() == Some(&it.uid) && !it.deleting);
        ensure!(
            claim.is_some() || !self.exists(),
            "claim {of} was deleted; first create it again: kubectl local-volume rebind {name}"
        );
        let marked: Vec<_> =
            volumes(&self.answers).filter(|it| self.is_marked(&it.report)).collect();
        ensure_detached(&self.answers, name, |it| marked.is_empty() && it.node == node)?;
        let marked = match &marked[..] {
            [] => return self.arrived(node, claim),
            [one] => one,
            more => {
                let places: Vec<_> = more.iter().map(Volume::place).collect();
                bail!(
                    "more than one volume has the mark of PV {name}: {}; unmount all but the claim's",
                    places.join(", ")
                );
            }
        };
        let (place, class) = (marked.place(), &marked.class);
        ensure!(
            marked.node == node,
            "the disk of PV {name} is {place}: run the command with --to {}",
            marked.node
        );
        ensure!(
            *class == pv.class,
            "the disk of PV {name} is {place}, of class {class}: mount it in the directory of class {}",
            pv.class
        );
        let state = text(&marked.report["mark"], "state");
        ensure!(
            state == "used",
            "the mark at {place} is {state}, which does not prove the data of PV {name}: copy it into another volume"
        );
        if !self.pods.is_empty() {
            return Ok(Step::AwaitPods);
        }
        if pv.policy != ReclaimPolicy::Retain {
            return Ok(Step::Keep);
        }
        let manifest = self.moved(&marked.report)?;
        let text = manifest.to_string();
        Ok(match (self.kept.as_ref() == Some(&text), self.exists()) {
            (false, _) => Step::Save(text),
            (true, true) => Step::Delete(manifest),
            (true, false) => Step::Create(manifest),
        })
    }

    pub fn exists(&self) -> bool {
        !self.pv.uid.is_empty()
    }

    /// The UID of the PV that the mark names.
    fn marked_uid(&self) -> String {
        let from = self.from();
        from.split(':').next().unwrap_or_default().to_owned()
    }

    /// The same, with the token of its offer.
    fn from(&self) -> String {
        let pv = &self.pv;
        match &pv.moved_from {
            Some(from) if !self.exists() => from.clone(),
            _ => format!("{}:{}", pv.uid, pv.offer.as_ref().unwrap_or(&pv.uid)),
        }
    }

    /// Whether a volume without a PV has the mark of this one.
    pub fn is_marked(&self, report: &Value) -> bool {
        let uid = text(&report["mark"], "pvUid");
        text(report, "state") == "Skipped" && !uid.is_empty() && uid == self.marked_uid()
    }

    /// The step when no other volume has the mark: the PV may have its disk already.
    fn arrived(&self, node: &str, claim: Option<&ClaimView>) -> Result<Step> {
        let pv = &self.pv;
        let mut answers = self.answers.iter().filter(|it| it.node == node).peekable();
        ensure!(answers.peek().is_some(), "no provisioner runs on node {node}");
        if let Some(error) = answers.clone().find_map(Answer::error) {
            bail!("the provisioner of node {node} does not answer: {error}");
        }
        let found: Vec<_> = volumes(answers).filter(|it| it.class == pv.class).collect();
        let report = found.iter().map(|it| &it.report).find(|it| text(it, "pv") == pv.name);
        let is_verified = report.is_some_and(|report| {
            text(report, "state") == "Bound" && text(&report["mark"], "pvUid") == pv.uid
        });
        if self.exists() && is_verified && claim.and_then(|it| it.phase.as_deref()) == Some("Bound")
        {
            let is_changed = pv.moved_from.is_some() || self.kept.is_some();
            return Ok(if is_changed { Step::Finish } else { Step::Done });
        }
        if self.exists() && pv.moved_from.is_some() {
            let state = report.map(|it| format!("state {} {}", text(it, "state"), cause(it)));
            let state = state.unwrap_or_else(|| "it has not reported the PV yet".into());
            return Ok(Step::Await(state.trim_end().to_owned()));
        }
        let others = found.iter().filter(|it| text(&it.report, "state") == "Skipped");
        let others: Vec<_> =
            others.map(|it| format!("{} ({})", it.place(), text(&it.report, "reason"))).collect();
        let others = match &others[..] {
            [] => "none that is not offered".to_owned(),
            others => others.join(", "),
        };
        bail!(
            "no volume has the mark of PV {} (of PV UID {}): mount its disk in the directory of class {} on node {node}. There it has {others}",
            pv.name,
            self.marked_uid(),
            pv.class
        );
    }

    /// The PV with another node and path.
    ///
    /// # Errors
    /// When the Node lacks its hostname label.
    fn moved(&self, report: &Value) -> Result<Value> {
        let (before, mut pv) = (&self.pv, self.manifest.clone());
        let [name, uid] = [&self.node.name, &self.node.uid].map(|it| it.as_deref());
        let name = name.unwrap_or_default();
        let of_node = |key: &str| self.node.labels.as_ref()?.get(key);
        let hostname = of_node(LABEL_HOSTNAME);
        let hostname =
            hostname.with_context(|| format!("node {name} has no label {LABEL_HOSTNAME}"))?;
        let by = before.provisioned_by.as_deref().unwrap_or_default();
        let is_name_only = nodes_of_provisioner(by).len() == 1;
        let [mut labels, mut annotations] =
            ["labels", "annotations"].map(|key| pv["metadata"][key].take());
        if let Some(labels) = labels.as_object_mut() {
            labels.retain(|key, value| {
                if !key.starts_with(TOPOLOGY) {
                    return true;
                }
                *value = json!(of_node(key));
                !value.is_null()
            });
        }
        labels[LABEL_HOSTNAME] = json!(hostname);
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|key, _| !OF_PLACE.contains(&key.as_str()));
        }
        annotations[ANNOTATION_MOVED_FROM] = json!(self.from());
        annotations[ANNOTATION_PROVISIONED_BY] =
            json!(provisioner_name(name, uid.unwrap_or_default(), is_name_only));
        annotations[ANNOTATION_IDENTITY] = report["identity"].clone();
        pv["metadata"] =
            json!({ "name": before.name, "labels": labels, "annotations": annotations });
        pv["spec"]["local"]["path"] = report["path"].clone();
        pv["spec"]["claimRef"]["resourceVersion"] = Value::Null;
        pv["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": LABEL_HOSTNAME, "operator": "In", "values": [hostname] },
        ] }] } });
        if let Some(pv) = pv.as_object_mut() {
            pv.remove("status");
        }
        Ok(pv)
    }
}

#[cfg(test)]
mod tests;
