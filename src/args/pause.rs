//! Arguments of `pause` and `resume`.

use clap::ArgGroup;

use super::Provisioners;

/// Arguments of `pause` and `resume`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A paused volume is not cleaned; a running cleanup is suspended. pause returns when the provisioners have \
    applied it. Cleaning continues when neither the volume, nor its node, nor the configuration (pauseCleaning) pauses it.\n\n\
    Exit code: 0 success, 1 failure, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume pause local-pv-5e3a1f20\n  \
    $ kubectl local-volume pause --node worker-3\n  \
    $ kubectl local-volume resume --all",
    group(ArgGroup::new("target").required(true))
)]
pub struct Pause {
    /// The PersistentVolume whose volume is meant.
    #[arg(value_name = "PV", group = "target")]
    pub pv: Option<String>,

    /// All volumes of this node.
    #[arg(long, value_name = "NAME", group = "target")]
    pub node: Option<String>,

    /// All volumes of all nodes that have a provisioner.
    #[arg(long, group = "target")]
    pub all: bool,

    /// Show what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
