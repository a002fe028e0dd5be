//! The requests of `release` and `status` about the DaemonSet and the Pods of provisioners.

use std::ffi::OsString;
use std::path::Path;

use http::Request;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::Api;
use kube::api::{ListParams, ObjectMeta};

use super::{ApiError, Cluster, has_ended};
use crate::args::Args;
use crate::config;
use crate::names::LABEL_HOSTNAME;

/// The environment variable of every provisioner container.
const NODE_NAME_VARIABLE: &str = "MY_NODE_NAME";

/// The port of the default `--listen-address`, the Go program's too.
const DEFAULT_PORT: u16 = 8080;

/// A Pod that may be a provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionerPod {
    /// `namespace/name`.
    pub name: String,
    /// The node, or empty while it has none.
    pub node: String,
    /// The DaemonSet that owns it, which may be gone.
    pub daemon_set: Option<String>,
    /// The port of `/status`.
    pub port: u16,
    /// Whether one of its containers has the node name variable and the configuration of a provisioner, ours or the
    /// Go program.
    pub is_provisioner: bool,
}

impl Cluster {
    /// Reads a DaemonSet's metadata.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn daemon_set(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ObjectMeta>, ApiError> {
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
        let found = self.limited("daemonsets.apps", "get", api.get_metadata_opt(name));
        Ok(found.await?.map(|set| set.metadata))
    }

    /// Lists the running Pods that look like provisioners, in one namespace or in all.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn provisioners(
        &self,
        namespace: Option<&str>,
    ) -> Result<Vec<ProvisionerPod>, ApiError> {
        self.running_pods(namespace, |pod| pod.is_provisioner).await
    }

    /// Lists running Pods, in one namespace or in all.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn running_pods(
        &self,
        namespace: Option<&str>,
        wanted: impl Fn(&ProvisionerPod) -> bool,
    ) -> Result<Vec<ProvisionerPod>, ApiError> {
        let api: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let keep = |pod| {
            let running = Some(pod).filter(|pod| !has_ended(pod));
            running.map(provisioner_pod).filter(&wanted)
        };
        self.list_pages("pods", api, ListParams::default(), keep)
            .await
    }

    /// Reads `/status` of a provisioner through the API server.
    ///
    /// # Errors
    /// [`ApiError`], also when the API server cannot reach the pod.
    pub async fn provisioner_status(&self, pod: &ProvisionerPod) -> Result<String, ApiError> {
        let (namespace, name) = pod.name.split_once('/').unwrap_or(("", &pod.name));
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{name}:{}/proxy/status",
            pod.port
        );
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| ApiError::Failed(error.to_string()))?;
        let answer = self.client.request_text(request);
        self.limited("pods/proxy", "get", answer).await
    }

    /// The Nodes with this name or hostname label.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn nodes_known_as(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let by_name = self
            .limited("nodes", "get", api.get_metadata_opt(name))
            .await?;
        let params = ListParams::default().labels(&format!("{LABEL_HOSTNAME}={name}"));
        let by_label = self
            .limited("nodes", "list", api.list_metadata(&params))
            .await?;
        let mut names: Vec<_> = by_name
            .into_iter()
            .chain(by_label.items)
            .filter_map(|node| node.metadata.name)
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}

fn provisioner_pod(pod: Pod) -> ProvisionerPod {
    let spec = pod.spec.unwrap_or_default();
    let metadata = pod.metadata;
    let owners = metadata.owner_references.into_iter().flatten();
    ProvisionerPod {
        name: format!(
            "{}/{}",
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default()
        ),
        node: spec.node_name.unwrap_or_default(),
        daemon_set: owners
            .filter(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet")
            .map(|owner| owner.name)
            .next(),
        port: port(&spec.containers),
        is_provisioner: spec.containers.iter().any(is_provisioner),
    }
}

/// The port of `--listen-address`, or the default if the flags cannot be parsed.
fn port(containers: &[Container]) -> u16 {
    let container = containers.iter().find(|it| is_provisioner(it));
    let words = container.into_iter().flat_map(|container| {
        let command = container.command.iter().flatten().skip(1);
        command.chain(container.args.iter().flatten())
    });
    let line = std::iter::once("provisioner").chain(words.map(String::as_str));
    let args = Args::from_command_line(line.map(OsString::from));
    args.map_or(DEFAULT_PORT, |args| args.listen_address.port())
}

/// Requires the variable and a configuration: network plugins use a variable of the same name.
fn is_provisioner(container: &Container) -> bool {
    let mut variables = container.env.iter().flatten();
    let mut mounts = container.volume_mounts.iter().flatten();
    let words = [&container.command, &container.args].into_iter().flatten();
    let has_usual_config =
        mounts.any(|mount| Path::new(config::DEFAULT_DIR).starts_with(&mount.mount_path));
    let has_other_config = words
        .flatten()
        .any(|word| word.starts_with("--config") || word.starts_with("-config"));
    variables.any(|variable| variable.name == NODE_NAME_VARIABLE)
        && (has_usual_config || has_other_config)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn port_is_that_of_the_flags() {
        for (command, args, wanted) in [
            (json!(null), json!(null), 8080),
            (json!(null), json!(["--v=4", "-listen-address=:9090"]), 9090),
            (
                json!(["/program", "--listen-address", "0.0.0.0:81"]),
                json!(["-v=2"]),
                81,
            ),
            (json!(null), json!(["--of-another-program"]), 8080),
        ] {
            let container: Value = json!({
                "name": "c", "env": [{ "name": "MY_NODE_NAME" }], "command": command, "args": args,
                "volumeMounts": [{ "name": "v", "mountPath": "/etc/provisioner/config" }],
            });
            let containers = [
                json!({ "name": "sidecar", "args": ["--listen-address=:1"] }),
                container,
            ];
            let parsed = containers.map(|one| serde_json::from_value(one).unwrap());
            assert_eq!(port(&parsed), wanted, "{command} {args}");
        }
    }

    #[test]
    fn provisioner_has_a_node_name_and_a_configuration() {
        let (env, other) = (
            json!([{ "name": "MY_NODE_NAME" }]),
            json!([{ "name": "NODE" }]),
        );
        let mount = |path: &str| json!([{ "name": "v", "mountPath": path }]);
        let config = mount("/etc/provisioner/config");
        for (env, mounts, args, is) in [
            (&env, &config, json!([]), true),
            (&env, &mount("/etc/provisioner/"), json!([]), true),
            (
                &env,
                &json!([]),
                json!(["--v=4", "--config=/etc/disks"]),
                true,
            ),
            (&env, &json!([]), json!(["-config", "/etc/disks"]), true),
            // The AWS CNI plugin.
            (&env, &mount("/host/etc/cni/net.d"), json!([]), false),
            (&env, &json!([]), json!([]), false),
            (&other, &config, json!([]), false),
        ] {
            let container: Value = json!({
                "name": "c", "env": env, "volumeMounts": mounts, "args": args,
            });
            let parsed = serde_json::from_value(container.clone()).unwrap();
            assert_eq!(is_provisioner(&parsed), is, "{container}");
        }
    }
}
