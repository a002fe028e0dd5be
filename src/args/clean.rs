//! Arguments of `clean`.

use std::path::PathBuf;

use clap::{ArgAction, ValueEnum};

/// Arguments of `clean`.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(
    after_help = "It does not ask the cluster: see for yourself that no PersistentVolume with data in \
    use is at PATH. What is mounted, held, locked or needed by the machine is refused.\n\n\
    Exit code: 0 when the volume is clean (or the dry run found nothing against it), 1 when cleaning \
    failed, 2 when it was refused and nothing was touched, 130 when it was interrupted, which leaves \
    the volume half cleaned. It may be run again at any time, and begins from the start.\n\n\
    Examples:\n  \
    $ local-volume-provisioner clean --dry-run /mnt/disks/ssd1\n  \
    $ local-volume-provisioner clean --method zero --verify /dev/disk/by-id/wwn-0x5000c500a1b2c3d4"
)]
pub struct Clean {
    /// The mount point of a filesystem, or a block device, or a link to one.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// How [default: contents for a filesystem, quick for a device].
    #[arg(long, value_name = "METHOD")]
    pub method: Option<CleanBy>,

    /// How often zero and overwrite go over the device [default: 1 and 3].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub passes: Option<u32>,

    /// Whether the disk below a filesystem is told in the end which blocks are free.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub trim: bool,

    /// Read the whole device back in the end, which takes about as long as to make it zero once; fails at
    /// the first byte that is not zero.
    #[arg(long)]
    pub verify: bool,

    /// Only look, and say what would be done.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// The ways to clean, in the words of a class's `cleanMethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CleanBy {
    /// A filesystem: everything in it is deleted.
    Contents,
    /// A device: its contents dropped where it can, all signatures overwritten.
    Quick,
    /// A device: every byte zero.
    Zero,
    /// A device: random bytes over everything, and then zeros.
    Overwrite,
    /// A device: told to drop its contents, and read back; zeros where that does not do.
    Discard,
    /// A device: the cheapest of these after which every byte is certainly zero.
    Auto,
}
