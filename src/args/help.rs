//! The texts of `--help` and `--version` that belong to no single flag.

use std::sync::LazyLock;

/// The version, and the revision that it was built from where the build names one.
pub(super) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let revision = option_env!("LVP_REVISION").unwrap_or("unknown");
    format!("{} (revision {revision})", env!("CARGO_PKG_VERSION"))
});

pub(super) const AFTER: &str = "\
As kubectl-local_volume in the PATH it is a plugin: kubectl local-volume list.

Exit code: 0 success, 1 failure or a problem was found, 2 usage or configuration error.";

pub(super) const RUN: &str = "\
Long flags may have one dash, as in Go (-listen-address=:9090). The logging flags of klog
(--logtostderr, --vmodule and so on) are ignored.

Environment:
  MY_NODE_NAME         the name of this node's Node object; required
  MY_NAMESPACE         the pod's namespace [default: default]
  MY_DAEMONSET         the pod's DaemonSet, whose PersistentVolumes this provisioner manages
  JOB_CONTAINER_IMAGE  the image of cleaning Jobs (JOB_IMAGE_PULL_SECRETS: the Secrets to pull it)
  POD_NAME, POD_UID    this pod, for events and to recognise the kubelet's directory
  STATE_DIRECTORY      the host's directory for marks; without it, marks are off (docs/marks.md)
  KUBECONFIG           the API server and the credentials for it; not needed in a pod

Signals:
  SIGTERM, SIGINT      stop; the next process repeats cleanups that this interrupts

Exit code: 0 success, 1 failure, 2 usage or configuration error.

Example:
  $ MY_NODE_NAME=worker-3 local-volume-provisioner run --config ./config";

#[cfg(test)]
mod tests;
