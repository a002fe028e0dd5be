//! Arguments of `rebind`.

use std::time::Duration;

use super::Provisioners;
use crate::config::duration;

/// Arguments of `rebind`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The first step sets the policy Retain, so the data is kept while the command waits for the pods of the deleted \
    claim to end. The labels and annotations of the claim are not restored. A PersistentVolume that is being deleted itself \
    cannot be bound again: the command pauses its cleaning, and says so.\n\n\
    With --to, the disk has another node or path now, and the PersistentVolume names a path (binding: path). The command proves the \
    disk by its mark, shows the claim, its pods and what the nodes report, and asks. Then it deletes the PersistentVolume and \
    creates it again with the new node and path. Its claim is Lost for some seconds, then Bound again. Meanwhile, the Node has \
    the manifest in an annotation.\n\n\
    If the command is interrupted, run it again. Until the PersistentVolume is deleted, rebind without --to restores the policy.\n\n\
    Exit code: 0 success, 1 failure or timeout, 2 on a usage error.\n\n\
    Examples:\n  $ kubectl local-volume rebind local-pv-5e3a1f20\n  \
    $ kubectl local-volume rebind local-pv-5e3a1f20 --to worker-4"
)]
pub struct Rebind {
    /// The PersistentVolume whose claim was deleted, or whose disk was moved.
    #[arg(value_name = "PV")]
    pub pv: String,

    /// Show the present step, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// How long to wait for the whole.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "1h", value_parser = duration::parse)]
    pub timeout: Duration,

    /// The node that has the disk now. The claim is kept.
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,

    /// Do not ask.
    #[arg(short, long, requires = "to")]
    pub yes: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
