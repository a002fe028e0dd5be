//! The node that the control plane registers at start, as its kubelet would.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{controllers::selector::HOSTNAME, meta, resource, status::Status, store::Store};

/// A node to register.
///
/// ```
/// use control_plane::{ControlPlane, NodeOptions, Options, resource};
///
/// let mut node = NodeOptions::new("node-1");
/// node.labels.insert("topology.kubernetes.io/zone".into(), "a".into());
/// let control_plane = ControlPlane::start(Options { node: Some(node), ..Options::default() })?;
/// let node = control_plane.store().get(&resource::NODES, "", "node-1")?;
/// assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-1");
/// assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "a");
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// Its name.
    pub name: String,
    /// Its labels. Those that every kubelet sets (`kubernetes.io/hostname`, which is the name
    /// unless said otherwise, `kubernetes.io/os`, `kubernetes.io/arch`) are added.
    pub labels: BTreeMap<String, String>,
}

impl NodeOptions {
    /// A node with the labels of its kubelet only.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), labels: BTreeMap::new() }
    }
}

/// Creates the node, Ready. One that exists already is left as it is, UID included.
pub(crate) fn register(store: &Store, options: &NodeOptions) -> Result<(), Status> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let own = [
        (HOSTNAME, options.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
    ];
    let mut labels: BTreeMap<String, String> =
        own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    labels.extend(options.labels.clone());
    let now = meta::now();
    let node = json!({
        "metadata": {"name": options.name, "labels": labels},
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": options.name},
            ],
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }],
            "nodeInfo": {
                "architecture": arch,
                "operatingSystem": "linux",
                "kubeletVersion": crate::version(),
            },
        },
    });
    match store.create(&resource::NODES, "", node) {
        Err(status) if !status.is_already_exists() => Err(status),
        _ => Ok(()),
    }
}
