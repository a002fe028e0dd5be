//! The parts of a bundle besides the logs. All are read before the first one is added, since each may have names that
//! pseudonyms replace in the others.

use std::collections::BTreeSet;
use std::io;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use serde_json::Value;

use super::archive::Archive;
use super::objects::{api, config_map, container, read, trimmed};
use super::pseudonyms::Pseudonyms;
use crate::cluster::{Cluster, PodView};
use crate::cmd::check;
use crate::cmd::fleet::{Answer, ask_pods};
use crate::cmd::status::show::text;
use crate::errors::chain;

/// What was read.
pub(super) struct Parts {
    /// Of the whole cluster, for the names.
    pods: Vec<PodView>,
    /// Of the provisioner and of node-cleanup.
    own_pods: Vec<Value>,
    answers: Vec<Answer>,
    check: String,
    pvs: Vec<Value>,
    events: Vec<Value>,
    /// The other objects, with the names of their files.
    documents: Vec<(String, Value)>,
}

impl Parts {
    /// Reads all parts. The archive records what could not be read.
    pub async fn read(
        cluster: &Cluster,
        namespace: Option<&str>,
        archive: &mut Archive<'_>,
    ) -> Self {
        let mut pods = cluster.pods(None, ListParams::default(), |_| true).await;
        if pods.is_err() && namespace.is_some() {
            pods = cluster
                .pods(namespace, ListParams::default(), |_| true)
                .await;
        }
        let pods = archive.read("pods", pods);
        let provisioners = pods.iter().filter(|pod| {
            pod.is_provisioner && namespace.is_none_or(|namespace| namespace == pod.namespace)
        });
        let running = provisioners.clone().filter(|pod| !pod.terminal).cloned();
        let answers = ask_pods(cluster, running.collect()).await;
        let check = check::installed(cluster, namespace).await;
        let check = check.map_or_else(|error| chain(error.as_ref()) + "\n", |it| it.text(false));

        let is_ours = |it: &Value| container(template(it)).is_some();
        let sets = read::<DaemonSet>(cluster, "daemonsets", namespace, is_ours).await;
        let sets = archive.read("daemonsets", sets);
        let is_local = |it: &Value| it["spec"]["local"].is_object();
        let pvs = read::<PersistentVolume>(cluster, "persistentvolumes", None, is_local).await;
        let pvs = archive.read("persistentvolumes", pvs);
        let classes = read::<StorageClass>(cluster, "storageclasses", None, |_| true).await;
        let classes = archive.read("storageclasses", classes);

        let mut namespaces: BTreeSet<_> = namespace.into_iter().collect();
        namespaces.extend(provisioners.map(|pod| pod.namespace.as_str()));
        namespaces.extend(sets.iter().map(|it| text(&it["metadata"], "namespace")));
        let is_ours = |it: &Value| {
            let object = &it["involvedObject"];
            text(object, "kind") == "PersistentVolume"
                || namespaces.contains(text(object, "namespace"))
        };
        let events = read::<Event>(cluster, "events", None, is_ours).await;
        let events = archive.read("events", events);
        let mut own_pods = Vec::new();
        for name in &namespaces {
            let is_own = |it: &Value| container(&it["spec"]).is_some();
            let found = read::<Pod>(cluster, "pods", Some(name), is_own).await;
            own_pods.extend(archive.read(&format!("pods in {name}"), found));
        }

        let mut documents = Vec::new();
        for set in &sets {
            let namespace = text(&set["metadata"], "namespace");
            let Some(name) = config_map(template(set)) else {
                continue;
            };
            let maps = api::<ConfigMap>(cluster, Some(namespace));
            let found = cluster.limited("configmaps", "get", maps.get(name)).await;
            let found = found.map(|map| vec![trimmed(&map)]);
            for map in archive.read(&format!("configmap {namespace}/{name}"), found) {
                documents.push((format!("configmaps/{namespace}_{name}.json"), map));
            }
        }
        documents.push(("daemonsets.json".into(), sets.into()));
        documents.push(("storageclasses.json".into(), classes.into()));
        Self {
            pods,
            own_pods,
            answers,
            check,
            pvs,
            events,
            documents,
        }
    }

    /// The pseudonyms of tenants' names.
    pub fn names(&self) -> Pseudonyms {
        let is_own = |pod: &&PodView| pod.is_provisioner || pod.job_pv_uid.is_some();
        let name = |pod: &PodView| pod.name.rsplit('/').next().map(str::to_owned);
        let metadata = self.own_pods.iter().map(|pod| &pod["metadata"]);
        let own = metadata.flat_map(|it| [text(it, "namespace"), text(it, "name")]);
        let own = own.map(str::to_owned);
        let mut names =
            Pseudonyms::new(own.chain(self.pods.iter().filter(is_own).filter_map(name)));
        for pod in self.pods.iter().filter(|pod| !is_own(pod)) {
            names.add("namespace", &pod.namespace);
            names.add("pod", &name(pod).unwrap_or_default());
            for claim in &pod.claims {
                names.add("claim", claim);
            }
        }
        let claims = self.pvs.iter().map(|pv| ("claim", &pv["spec"]["claimRef"]));
        let objects = self.events.iter().map(|event| &event["involvedObject"]);
        let objects = objects.filter_map(|it| match text(it, "kind") {
            "Pod" => Some(("pod", it)),
            "PersistentVolumeClaim" => Some(("claim", it)),
            _ => None,
        });
        for (kind, object) in claims.chain(objects) {
            names.add("namespace", text(object, "namespace"));
            names.add(kind, text(object, "name"));
        }
        for event in &self.events {
            names.learn(text(event, "message"));
        }
        for answer in &self.answers {
            names.learn(&answer.document.to_string());
        }
        names.learn(&self.check);
        names
    }

    /// Adds the parts to the archive, and returns the pods whose logs it requires, too.
    pub fn add_to(self, archive: &mut Archive<'_>) -> io::Result<Vec<Value>> {
        if self.answers.is_empty() {
            archive.failed("nodes", "no provisioner's pod was found");
        }
        let mut nodes = BTreeSet::new();
        for answer in self.answers {
            let Answer { node, pod, .. } = &answer;
            if let Some(error) = answer.error() {
                archive.failed(&format!("node {node}"), error);
            }
            // A node may have provisioners of two installations.
            let mut file = format!("nodes/{node}.json");
            if !nodes.insert(node.clone()) {
                file = format!("nodes/{node}_{}.json", pod.replace('/', "_"));
            }
            archive.json(&file, answer.document)?;
        }
        archive.text("check.txt", &self.check)?;
        archive.json("pvs.json", self.pvs.into())?;
        archive.json("events.json", self.events.into())?;
        for (file, document) in self.documents {
            archive.json(&file, document)?;
        }
        Ok(self.own_pods)
    }
}

/// The spec of a DaemonSet's pods.
fn template(daemon_set: &Value) -> &Value {
    &daemon_set["spec"]["template"]["spec"]
}
