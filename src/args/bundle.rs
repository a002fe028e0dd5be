//! Arguments of `bundle`.

use std::path::PathBuf;
use std::time::Duration;

use super::Provisioners;
use crate::config::duration;

/// Arguments of `bundle`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It has the status of all nodes, logs, events, configuration, PersistentVolumes, StorageClasses, DaemonSets, the \
    versions, and the result of check. Names of tenants' namespaces, claims and pods are replaced by pseudonyms, the same in each \
    file. Names of nodes, paths, and serial numbers of disks stay. It has no Secrets. What cannot be read is listed in errors.txt.\n\n\
    Exit code: 0 success, 1 when something could not be read, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume bundle\n  \
    $ kubectl local-volume bundle --since 24h -o bundle.tar.gz\n  \
    $ kubectl local-volume bundle -o - | tar -tz"
)]
pub struct Bundle {
    /// The archive to create, or - for the standard output [default: local-volume-bundle-TIME.tar.gz].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Keep the names of tenants' namespaces, claims and pods.
    #[arg(long)]
    pub with_names: bool,

    /// Only log lines of this time until now [default: the last 10 MiB of each log].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    pub since: Option<Duration>,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
