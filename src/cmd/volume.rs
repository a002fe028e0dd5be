//! One volume of the cluster, as an operator names it: by its PV, or by its node and path.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use super::fleet::{self, Answer};
use super::status::show::{list, text};
use crate::args::Verb;
use crate::cluster::Cluster;
use crate::names::{ANNOTATION_RETIRED, nodes_of_provisioner};
use crate::plan::verdict::{Due, due};
use crate::plan::{consents_in, forget};
use crate::view::PvView;

/// The state of one volume, as its provisioner reports it, and its PV if that was read.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub node: String,
    pub class: String,
    /// The volume in the document of `/status`.
    pub report: Value,
    /// Whether the node or the configuration pauses its cleaning.
    pub is_node_paused: bool,
    pub pv: Option<PvView>,
}

impl Volume {
    /// Finds the volume of a PV, or that of NODE:PATH.
    ///
    /// # Errors
    /// Why it is not found, with the provisioners that did not answer.
    pub async fn find(cluster: &Cluster, namespace: Option<&str>, name: &str) -> Result<Self> {
        if let Some((node, path)) = name.split_once(":/") {
            let path = format!("/{path}");
            let answers = fleet::ask_all(cluster, namespace, Some(node)).await?;
            let found = volumes(&answers).find(|it| text(&it.report, "path") == path);
            let mut found = found.ok_or_else(|| match silent(&answers) {
                Some(error) => anyhow!("the provisioner of node {node} does not answer: {error}"),
                None => anyhow!(
                    "node {node} has no volume or entry {path}; list --node {node} shows all"
                ),
            })?;
            if let Some(name) = found.report["pv"].as_str() {
                found.pv = pv(cluster, name).await?;
            }
            return Ok(found);
        }
        let pv = existing_pv(cluster, name).await?;
        let mut pods = fleet::provisioners(cluster, namespace, None).await?;
        let by = pv.provisioned_by.as_deref().map(nodes_of_provisioner).unwrap_or_default();
        let is_named = |node: &str| by.contains(&node) || pv.hostnames.iter().any(|it| it == node);
        // A PV that is bound to its disk names no node.
        if pv.link.is_none() && pods.iter().any(|pod| is_named(&pod.node)) {
            pods.retain(|pod| is_named(&pod.node));
        }
        let answers = fleet::ask_pods(cluster, pods).await;
        let found = volumes(&answers).find(|it| text(&it.report, "pv") == pv.name).ok_or_else(|| {
            let nodes = pv.hostnames.join(", ");
            match silent(&answers) {
                Some(error) => anyhow!("no provisioner that answers reports PV {name} (of node {nodes}): {error}"),
                None => anyhow!("no provisioner reports PV {name} (of node {nodes}): if that node is gone for good, see release and docs/node-cleanup.md"),
            }
        })?;
        Ok(Self { pv: Some(pv), ..found })
    }

    /// Its names and its class.
    pub fn heading(&self) -> String {
        let (place, class) = (self.place(), &self.class);
        match &self.pv {
            Some(pv) => format!("{} at {place} of class {class}", pv.name),
            None => format!("{place} of class {class}"),
        }
    }

    /// NODE:PATH.
    pub fn place(&self) -> String {
        format!("{}:{}", self.node, text(&self.report, "path"))
    }

    /// How commands name it.
    pub fn name(&self) -> String {
        let pv = self.report["pv"].as_str();
        pv.map_or_else(|| self.place(), str::to_owned)
    }

    /// The consents for which its provisioner waits, the safe ones first.
    pub fn consents(&self) -> BTreeMap<Verb, String> {
        let mut consents = consents(&self.report);
        if let Some(pv) = self.pv.as_ref().filter(|pv| due(pv) != Due::No) {
            consents.entry(Verb::Forget).or_insert_with(|| forget(pv));
        }
        consents
    }
}

/// The consents that the texts of a report name.
pub(super) fn consents(report: &Value) -> BTreeMap<Verb, String> {
    let cleanup = &report["cleanup"];
    let texts = [text(report, "detail"), text(cleanup, "waitingFor"), text(cleanup, "lastError")];
    let mut consents = BTreeMap::new();
    for consent in texts.into_iter().flat_map(consents_in) {
        let is_of = |verb: &Verb| consent.split(':').next() == Some(verb.as_str());
        // Another command confirms a move.
        if let Some(verb) = Verb::ALL.into_iter().find(is_of) {
            consents.entry(verb).or_insert_with(|| consent.to_owned());
        }
    }
    consents
}

/// Reads a PV, also by its name as `kubectl --output name` writes it.
pub(super) async fn pv(cluster: &Cluster, name: &str) -> Result<Option<PvView>> {
    let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
    let pv = cluster.pv(name).await;
    pv.with_context(|| format!("reading PV {name}"))
}

/// Reads a PV that must exist.
pub(super) async fn existing_pv(cluster: &Cluster, name: &str) -> Result<PvView> {
    pv(cluster, name).await?.with_context(|| {
        format!("there is no PersistentVolume {name}; list shows all volumes, and those without a PV are named NODE:PATH")
    })
}

/// Sets the reclaim policy of a PV, and records the former one, or removes the record.
pub(super) fn policy_patch(policy: &str, former: &Value) -> Value {
    json!({
        "metadata": { "annotations": { ANNOTATION_RETIRED: former } },
        "spec": { "persistentVolumeReclaimPolicy": policy },
    })
}

/// Requires that no volume but `its` reports the disk of a PV as there.
pub(super) fn ensure_detached(
    answers: &[Answer],
    pv: &str,
    its: impl Fn(&Volume) -> bool,
) -> Result<()> {
    let is_out = |state: &str| matches!(state, "NotMounted" | "Missing" | "Unlinked");
    let in_use = volumes(answers)
        .find(|it| text(&it.report, "pv") == pv && !is_out(text(&it.report, "state")) && !its(it));
    if let Some(in_use) = in_use {
        bail!(
            "{} reports the disk of PV {pv} as in use: unmount it there first; nothing was changed",
            in_use.place()
        );
    }
    Ok(())
}

/// The error of a provisioner that did not answer.
fn silent(answers: &[Answer]) -> Option<&str> {
    answers.iter().find_map(Answer::error)
}

/// The volumes of all answers, whose PVs are not read.
pub(super) fn volumes<'a>(
    answers: impl IntoIterator<Item = &'a Answer>,
) -> impl Iterator<Item = Volume> {
    answers.into_iter().flat_map(|answer| {
        let classes = list(&answer.document, "classes");
        classes.flat_map(move |class| {
            list(class, "volumes").map(move |report| Volume {
                node: answer.node.clone(),
                class: text(class, "name").to_owned(),
                report: report.clone(),
                is_node_paused: answer.document["paused"] == true,
                pv: None,
            })
        })
    })
}
