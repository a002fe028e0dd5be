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
    With --to, the disk was moved to another node, and the PersistentVolume names a path (binding: path). It is deleted, and \
    created again with the other node and path. Its claim is Lost for some seconds, then Bound again. Meanwhile, the claim has the \
    manifest in an annotation, so run the command again if it was interrupted.\n\n\
    Exit code: 0 success, 1 failure or timeout, 2 on a usage error.\n\n\
    Examples:\n  $ kubectl local-volume rebind local-pv-5e3a1f20\n  \
    $ kubectl local-volume rebind local-pv-5e3a1f20 --to worker-4"
)]
pub struct Rebind {
    /// The PersistentVolume whose claim was deleted.
    #[arg(value_name = "PV")]
    pub pv: String,

    /// Show the present step, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// How long to wait for the whole.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "1h", value_parser = duration::parse)]
    pub timeout: Duration,

    /// The node that has the disk of the PersistentVolume now; its claim is kept.
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,

    /// Do not ask.
    #[arg(short, long, requires = "to")]
    pub yes: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
