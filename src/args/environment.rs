//! The environment variables that the pod's template sets.

use std::ffi::OsString;

use crate::names::ENV_STATE;

/// The environment variables. An empty variable counts as not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `MY_NODE_NAME`: the node this runs on.
    pub node_name: Option<String>,
    /// `MY_NAMESPACE`: the pod's namespace, where Jobs are created; `default` when not set.
    pub namespace: String,
    /// Whether `MY_NAMESPACE` was not set.
    pub namespace_defaulted: bool,
    /// This installation, `<namespace>/<DaemonSet>`: `MY_NAMESPACE` and `MY_DAEMONSET`. Absent unless both are set.
    pub installation: Option<String>,
    /// `JOB_CONTAINER_IMAGE`: the image of cleaning Jobs.
    pub job_image: Option<String>,
    /// `JOB_IMAGE_PULL_SECRETS`: the names of the Secrets to pull it with, separated by commas.
    pub job_pull_secrets: Vec<String>,
    /// `POD_NAME`, or else `HOSTNAME`: the pod of this process, for events.
    pub pod_name: Option<String>,
    /// Whether `POD_NAME` and `MY_NAMESPACE` were set, so that the Pod can be read.
    pub is_pod_known: bool,
    /// `POD_UID`: its UID. Without it `kubectl describe pod` does not show these events, and the kubelet's
    /// directory cannot be recognised by this pod in it.
    pub pod_uid: Option<String>,
    /// `STATE_DIRECTORY`: the directory of the host for marks that no filesystem can hold.
    pub state_directory: Option<String>,
    /// `KUBERNETES_SERVICE_HOST`, which the kubelet sets: whether this runs in a container of a Pod.
    pub in_pod: bool,
}

impl Environment {
    /// Reads the variables with `lookup`, which is [`std::env::var_os`] in the program.
    pub fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| {
            let value = lookup(name).filter(|value| !value.is_empty())?;
            Some(value.to_string_lossy().into_owned())
        };
        let namespace = text("MY_NAMESPACE");
        let installation = namespace.as_ref().zip(text("MY_DAEMONSET"));
        Self {
            node_name: text("MY_NODE_NAME"),
            is_pod_known: namespace.is_some() && text("POD_NAME").is_some(),
            namespace_defaulted: namespace.is_none(),
            installation: installation.map(|(namespace, name)| format!("{namespace}/{name}")),
            namespace: namespace.unwrap_or_else(|| "default".into()),
            job_image: text("JOB_CONTAINER_IMAGE"),
            job_pull_secrets: text("JOB_IMAGE_PULL_SECRETS")
                .iter()
                .flat_map(|names| names.split(','))
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty())
                .collect(),
            pod_name: text("POD_NAME").or_else(|| text("HOSTNAME")),
            pod_uid: text("POD_UID"),
            state_directory: text(ENV_STATE),
            in_pod: text("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }

    /// The node's name.
    ///
    /// # Errors
    /// The remedy if it is not set.
    pub fn require_node_name(&self) -> Result<String, String> {
        self.node_name.clone().ok_or_else(|| {
            "the node's name is unknown: set MY_NODE_NAME, in the pod's template from the field spec.nodeName"
                .to_owned()
        })
    }
}
