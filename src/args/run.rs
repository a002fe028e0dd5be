//! Arguments of `run`.

use std::time::Duration;

use super::{ConfigDir, Kubelet, Log, Server, help};
use crate::config::duration;

/// Arguments of `run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::RUN)]
pub struct Run {
    #[command(flatten)]
    pub config: ConfigDir,

    #[command(flatten)]
    pub server: Server,

    /// Time between two scans of the discovery directories when nothing changes.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "10s", value_parser = duration::parse_positive)]
    pub discovery_period: Duration,

    /// Time between two reads of the configuration directory while its changes are not reported.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "5s", value_parser = duration::parse_positive)]
    pub config_sync_period: Duration,

    #[command(flatten)]
    pub kubelet: Kubelet,

    /// Time to wait after a release if the kubelet's directory is not visible.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "10s", value_parser = duration::parse)]
    pub release_quiet_period: Duration,

    /// Take over the PersistentVolumes of another installation once its DaemonSet has been absent for this time.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "60s", value_parser = duration::parse_positive)]
    pub takeover_after: Duration,

    /// The chart's admission policies (nodeIsolation) are installed. The program does not start if they would refuse the
    /// PersistentVolumes of this node.
    #[arg(long)]
    pub node_isolation: bool,

    #[command(flatten)]
    pub log: Log,
}
