//! Arguments of `release`.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;

use super::ApiServer;
use crate::config::duration;

/// Arguments of `release`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "PVs whose volumes still hold a tenant's data and have no mark, or are being wiped, are listed and stay \
    (exit code 1), unless --abandon-unmarked is given. It can be run again at any time.\n\n\
    Examples:\n  \
    $ local-volume-provisioner release --finalizers --node worker-3\n  \
    $ local-volume-provisioner release --finalizers --daemonset local-volumes --namespace kube-system"
)]
pub struct Release {
    /// Remove the finalizer, so that the PersistentVolumes can be deleted without the provisioner.
    #[arg(long, required = true)]
    pub finalizers: bool,

    /// Only the PersistentVolumes of this DaemonSet's installation. Delete it first: while it exists, nothing is done. The
    /// command waits for its pods to end and deletes its cleaning Jobs.
    #[arg(long, value_name = "NAME", requires = "namespace")]
    #[arg(required_unless_present = "node", conflicts_with = "node")]
    pub daemonset: Option<String>,

    /// How long the DaemonSet must be absent first.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "20s", value_parser = duration::parse)]
    pub absent_for: Duration,

    /// Exit with code 0, not 1, while the DaemonSet exists.
    #[arg(long, requires = "daemonset")]
    pub unless_installed: bool,

    /// The namespace of the DaemonSet.
    #[arg(long, value_name = "NAME", env = "MY_NAMESPACE", hide_env_values = true)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,

    /// Only the PersistentVolumes of this node, which must be gone.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub node: Option<String>,

    /// Also release PVs whose volumes were not cleaned and have no mark, or are being wiped. Their data stays on the disks.
    #[arg(long)]
    pub abandon_unmarked: bool,

    /// How long to wait for the DaemonSet and its pods to end, and to retry transient errors.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "2m", value_parser = duration::parse)]
    pub timeout: Duration,

    #[command(flatten)]
    pub api_server: ApiServer,
}
