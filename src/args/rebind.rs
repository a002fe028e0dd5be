//! Arguments of `rebind`.

use std::time::Duration;

use super::ApiServer;
use crate::config::duration;

/// Arguments of `rebind`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The first step sets the policy Retain, so the data is kept while the command waits for the pods of the deleted \
    claim to end. The labels and annotations of the claim are not restored. A PersistentVolume that is being deleted itself \
    cannot be bound again: the command pauses its cleaning, and says so.\n\n\
    Exit code: 0 success, 1 failure or timeout, 2 on a usage error.\n\n\
    Example:\n  $ kubectl local-volume rebind local-pv-5e3a1f20"
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

    #[command(flatten)]
    pub api_server: ApiServer,
}
