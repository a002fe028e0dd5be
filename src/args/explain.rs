//! Arguments of `explain`.

use super::{OutputFormat, Provisioners};

/// Arguments of `explain`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 when the volume has no problem, 1 when it has one or could not be read, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume explain local-pv-5e3a1f20\n  \
    $ kubectl local-volume explain worker-3:/mnt/disks/ssd1"
)]
pub struct Explain {
    /// The volume: the name of its PersistentVolume, or its node and its path on the host.
    #[arg(value_name = "PV|NODE:PATH")]
    pub volume: String,

    /// Format of the output.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
