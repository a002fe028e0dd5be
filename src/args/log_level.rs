//! Arguments of `log-level`.

use clap::ValueEnum;

/// Arguments of `log-level`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It sends a signal to the provisioner that runs in the same container: SIGUSR1 for \
    more, SIGUSR2 for default. `status` shows the level in force.\n\n\
    Example:\n  $ kubectl exec POD -- /local-volume-provisioner log-level more"
)]
pub struct ChangeLogLevel {
    /// What to change.
    #[arg(value_name = "CHANGE")]
    pub change: Change,

    /// The process, where there is more than one.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
}

/// What to change about the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Change {
    /// One step more.
    More,
    /// As the flags of the provisioner say.
    Default,
}
