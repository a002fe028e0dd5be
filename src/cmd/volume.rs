//! One volume of the cluster, as an operator names it: by its PV, or by its node and path.

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::fleet::{self, Answer};
use super::status::show::{list, text};
use crate::args::Verb;
use crate::cluster::Cluster;
use crate::names::nodes_of_provisioner;
use crate::plan::verdict::{Due, due};
use crate::plan::{consents_in, forget};
use crate::view::PvView;

/// The state of one volume, as its provisioner reports it, and its PV.
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
            let found = Self::of(&answers, |report| text(report, "path") == path);
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
        let pv = pv(cluster, name).await?.ok_or_else(|| {
            anyhow!("there is no PersistentVolume {name}; list shows all volumes, and those without a PV are named NODE:PATH")
        })?;
        let mut pods = fleet::provisioners(cluster, namespace, None).await?;
        let by = pv.provisioned_by.as_deref().map(nodes_of_provisioner);
        let by = by.unwrap_or_default();
        let is_named = |node: &str| by.contains(&node) || pv.hostnames.iter().any(|it| it == node);
        // A PV that is bound to its disk names no node.
        if pv.link.is_none() && pods.iter().any(|pod| is_named(&pod.node)) {
            pods.retain(|pod| is_named(&pod.node));
        }
        let answers = fleet::ask_pods(cluster, pods).await;
        let found = Self::of(&answers, |report| text(report, "pv") == pv.name);
        let found = found.ok_or_else(|| {
            let nodes = pv.hostnames.join(", ");
            match silent(&answers) {
                Some(error) => anyhow!("no provisioner that answers reports PV {name} (of node {nodes}): {error}"),
                None => anyhow!("no provisioner reports PV {name} (of node {nodes}): if that node is gone for good, see release and docs/node-cleanup.md"),
            }
        })?;
        Ok(Self {
            pv: Some(pv),
            ..found
        })
    }

    fn of(answers: &[Answer], is_wanted: impl Fn(&Value) -> bool) -> Option<Self> {
        let mut volumes = volumes(answers);
        let (answer, class, report) = volumes.find(|(_, _, report)| is_wanted(report))?;
        Some(Self {
            node: answer.node.clone(),
            class: text(class, "name").to_owned(),
            report: report.clone(),
            is_node_paused: answer.document["paused"] == true,
            pv: None,
        })
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
        place(&self.node, &self.report)
    }

    /// How commands name it.
    pub fn name(&self) -> String {
        self.pv
            .as_ref()
            .map_or_else(|| self.place(), |pv| pv.name.clone())
    }

    /// The consents for which its provisioner waits.
    pub fn consents(&self) -> Vec<(Verb, String)> {
        let mut consents = consents(&self.report);
        let is_due = |pv: &&PvView| due(pv) != Due::No;
        if consents.iter().all(|it| it.0 != Verb::Forget) {
            let pv = self.pv.as_ref().filter(is_due);
            consents.extend(pv.map(|pv| (Verb::Forget, forget(pv))));
        }
        consents
    }
}

/// Reads a PV, also by its name as `kubectl --output name` writes it.
pub(super) async fn pv(cluster: &Cluster, name: &str) -> Result<Option<PvView>> {
    let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
    let pv = cluster.pv(name).await;
    pv.with_context(|| format!("reading PV {name}"))
}

/// NODE:PATH.
pub(super) fn place(node: &str, report: &Value) -> String {
    format!("{node}:{}", text(report, "path"))
}

/// The error of a provisioner that did not answer.
fn silent(answers: &[Answer]) -> Option<&str> {
    answers.iter().find_map(Answer::error)
}

/// The volumes of all answers, with their classes.
pub(super) fn volumes<'a>(
    answers: impl IntoIterator<Item = &'a Answer>,
) -> impl Iterator<Item = (&'a Answer, &'a Value, &'a Value)> {
    answers.into_iter().flat_map(|answer| {
        let classes = list(&answer.document, "classes");
        classes.flat_map(move |class| {
            list(class, "volumes").map(move |volume| (answer, class, volume))
        })
    })
}

/// The consents that the texts of a report name.
pub(super) fn consents(report: &Value) -> Vec<(Verb, String)> {
    let cleanup = &report["cleanup"];
    let texts = [
        text(report, "detail"),
        text(cleanup, "waitingFor"),
        text(cleanup, "lastError"),
    ];
    let named = texts.into_iter().flat_map(consents_in);
    let mut found: Vec<(Verb, String)> = Vec::new();
    for consent in named {
        let verb = match consent.split_once(':').map(|it| it.0) {
            Some("accept") => Verb::Accept,
            Some("forget") => Verb::Forget,
            Some("wipe") => Verb::Wipe,
            // Another command confirms a move.
            _ => continue,
        };
        if found.iter().all(|it| it.0 != verb) {
            found.push((verb, consent.to_owned()));
        }
    }
    found
}
