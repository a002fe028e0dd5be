//! Arguments of `clean`.

use super::{ConfigDir, Kubelet, Log};
use crate::config::CleanMethod;

/// Arguments of `clean`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The volume must be an entry of a configured class. It is refused while its PersistentVolume is Bound or \
    Terminating or has a Job, while anything uses it, and when the API server cannot be asked.\n\n\
    Exit code: 0 when the volume is clean (or the dry run found nothing against it), 1 when cleaning \
    failed, 2 when it was refused and nothing was touched, 130 when it was interrupted, which leaves \
    the volume half cleaned. It can be run again at any time and starts from the beginning.\n\n\
    Examples:\n  \
    $ local-volume-provisioner clean --dry-run /mnt/disks/ssd1\n  \
    $ local-volume-provisioner clean --method zero local-pv-5e3a1f20"
)]
pub struct Clean {
    /// The volume: its path, or the name of its PersistentVolume.
    #[arg(value_name = "PATH|PV")]
    pub volume: String,

    /// How a device is cleaned [default: the method of its class].
    #[arg(long, value_name = "METHOD")]
    pub method: Option<CleanMethod>,

    /// Only check, and show what would be done.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(long)]
    pub yes: bool,

    #[command(flatten)]
    pub config: ConfigDir,

    #[command(flatten)]
    pub kubelet: Kubelet,

    #[command(flatten)]
    pub log: Log,
}
