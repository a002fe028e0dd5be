//! Arguments of `release`.

use std::time::Duration;

use crate::config::duration;

/// Arguments of `release`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "PVs whose volumes still hold a tenant's data are listed and stay (exit code 1), unless \
    --abandon-uncleaned says otherwise. It may be run again at any time.\n\n\
    Examples:\n  \
    $ local-volume-provisioner release --finalizers --node worker-3 --dry-run\n  \
    $ local-volume-provisioner release --finalizers --daemonset local-volumes --namespace kube-system"
)]
pub struct Release {
    /// Take the finalizer off, so that the PersistentVolumes can go without the provisioner.
    #[arg(long, required = true)]
    pub finalizers: bool,

    /// First wait for its last cleanups, delete this DaemonSet, and wait until its pods are gone.
    #[arg(long, value_name = "NAME", conflicts_with = "node")]
    pub daemonset: Option<String>,

    /// The provisioner's namespace [default: MY_NAMESPACE].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Only the PersistentVolumes of this node, which must be gone.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Let those go, too, whose volumes were not cleaned. Their data stays on the disks.
    #[arg(long)]
    pub abandon_uncleaned: bool,

    /// How long to wait for the last cleanups, and then for the pods.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    pub timeout: Duration,

    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}
