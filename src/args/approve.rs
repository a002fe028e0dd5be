//! Arguments of `approve`.

use super::Provisioners;

/// Arguments of `approve`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Each class with devices and approve: Plan has a list of the blank disks that it would take in. The approval is for \
    exactly this list: if a disk is added, exchanged or removed meanwhile, it permits nothing. A disk that is taken in becomes a \
    volume; nothing on it is changed.\n\n\
    Exit code: 0 success, 1 failure, 2 when no disk waits for an approval, the answer was no, or on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume approve worker-3 --dry-run\n  \
    $ kubectl local-volume approve worker-3\n  \
    $ kubectl local-volume approve worker-3 --class fast --plan 6c1d2a305f0e4b8e"
)]
pub struct Approve {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: String,

    /// Only the disks of this class.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Only the list with this hash, as an event or /status names it. Does not ask.
    #[arg(long, value_name = "HASH")]
    pub plan: Option<String>,

    /// Show the disks, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
