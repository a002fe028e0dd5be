//! The parts of a bundle besides the logs. All are read before the first one is added, since each may have names that
//! pseudonyms replace in the others.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use serde_json::Value;

use super::objects::{Reader, config_map, container};
use super::pseudonyms::Pseudonyms;
use crate::cmd::check;
use crate::cmd::fleet::ask_all;
use crate::cmd::status::show::text;
use crate::errors::chain;

/// What was read.
pub(super) struct Parts {
    /// The pods of provisioners and of node-cleanup.
    pub own_pods: Vec<Value>,
    /// The files with their names.
    pub files: Vec<(String, Value)>,
    /// The pseudonyms of tenants' names; `None` if a list could not be read that has such names.
    pub names: Option<Pseudonyms>,
}

impl Parts {
    /// Reads all parts.
    pub async fn read(reader: &mut Reader<'_>, namespace: Option<&str>) -> Self {
        let cluster = reader.cluster;
        let is_ours = |set: &Value| container(template(set)).is_some();
        let sets = reader.list::<DaemonSet>(namespace, is_ours).await;
        let is_ours = |pod: &Value| container(&pod["spec"]).is_some();
        let own_pods = reader.list::<Pod>(namespace, is_ours).await;
        let own = sets.iter().chain(&own_pods).map(|it| &it["metadata"]);
        let own: BTreeSet<_> =
            own.flat_map(|it| [text(it, "namespace"), text(it, "name")]).chain(namespace).collect();
        let is_local = |pv: &Value| pv["spec"]["local"].is_object();
        let pvs = reader.list::<PersistentVolume>(None, is_local).await;
        // Others can have credentials as parameters.
        let is_local = |class: &Value| class["provisioner"] == "kubernetes.io/no-provisioner";
        let classes = reader.list::<StorageClass>(None, is_local).await;
        let is_relevant = |event: &Value| {
            let object = &event["involvedObject"];
            text(object, "kind") == "PersistentVolume" || own.contains(text(object, "namespace"))
        };
        let events = reader.list::<Event>(None, is_relevant).await;
        let pods = cluster.pods(None, ListParams::default(), |_| true).await;
        let pods = reader.require("pods", pods).unwrap_or_default();
        let are_names_known = reader.errors.is_empty();
        let answers = ask_all(cluster, namespace, None).await;
        let answers = reader.require("nodes", answers).unwrap_or_default();
        let check = check::installed(cluster, namespace).await;
        let check = check.map_or_else(|error| chain(error.as_ref()) + "\n", |it| it.text(false));

        let mut names = Pseudonyms::new(own.iter().copied());
        names.add_pods(&pods);
        names.add_objects(&pvs, &events);
        names.learn(&check);
        let mut files = vec![("check.txt".to_owned(), check.into())];
        for answer in answers {
            names.learn(&answer.document.to_string());
            if let Some(error) = answer.error() {
                reader.failed(&format!("node {}", answer.node), error);
            }
            files.push((format!("nodes/{}.json", answer.node), answer.document));
        }
        for set in &sets {
            let namespace = text(&set["metadata"], "namespace");
            if let Some(name) = config_map(template(set)) {
                let map = reader.get::<ConfigMap>(namespace, name).await;
                files.extend(map.map(|map| (format!("configmaps/{namespace}_{name}.json"), map)));
            }
        }
        let lists = [
            ("pvs.json", pvs),
            ("events.json", events),
            ("daemonsets.json", sets),
            ("storageclasses.json", classes),
        ];
        files.extend(lists.map(|(file, objects)| (file.to_owned(), objects.into())));
        Self { own_pods, files, names: Some(names).filter(|_| are_names_known) }
    }
}

/// The spec of a DaemonSet's pods.
fn template(daemon_set: &Value) -> &Value {
    &daemon_set["spec"]["template"]["spec"]
}
