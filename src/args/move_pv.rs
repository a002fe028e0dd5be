//! Arguments of `move`.

use super::Provisioners;

/// Arguments of `move`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "For classes with binding: disk. First drain the node, and mount the disk in the directory of the same class on \
    the other one. The command shows what both nodes report. It asks before it confirms that the former node does not use the \
    disk any more: if it did, the disk would have two writers.\n\n\
    Exit code: 0 success, 1 failure, 2 on a usage error, or when the answer was no.\n\n\
    Examples:\n  \
    $ kubectl local-volume move local-pv-5e3a1f20 --to worker-4 --dry-run\n  \
    $ kubectl local-volume move local-pv-5e3a1f20 --to worker-4"
)]
pub struct Move {
    /// The PersistentVolume whose disk was moved.
    #[arg(value_name = "PV")]
    pub pv: String,

    /// The node that has the disk now.
    #[arg(long, value_name = "NODE")]
    pub to: String,

    /// Show what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
