//! Arguments of `adopt`.

use super::Provisioners;

/// Arguments of `adopt`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Each volume gets a PersistentVolume that is reserved for the claim that its mark names, by namespace and name. \
    When a claim of this name is created there, it gets the data, and no other claim does. A volume stays as it is if its mark \
    names no claim with data, if several marks name the same claim, or if another PersistentVolume names that claim.\n\n\
    Exit code: 0 success, 1 when a volume stays as it is, failure or timeout, 2 when there is no such volume, or on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume adopt --from-cluster 6c1d2a30-5f0e-4b8e-9d60-2f6b7c9f1e11 --dry-run\n  \
    $ kubectl local-volume adopt --from-cluster 6c1d2a30-5f0e-4b8e-9d60-2f6b7c9f1e11"
)]
pub struct Adopt {
    /// The UID of the namespace kube-system of the former cluster, as the marks name it.
    #[arg(long, value_name = "UID")]
    pub from_cluster: String,

    /// Only the volumes of this node.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Only the volumes of this class.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Show the volumes, and change nothing. Then marks of several nodes are not compared.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
