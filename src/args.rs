//! The command line and the environment.

mod clean;
mod environment;
mod help;
mod job;
mod node_cleanup;
mod release;
mod spelling;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{FromArgMatches, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use crate::config::{self, duration};

pub use clean::Clean;
pub use environment::Environment;
pub use job::Job;
pub use node_cleanup::NodeCleanup;
pub use release::Release;
pub use spelling::program;
pub use status::Status;

/// Offers a node's local disks as PersistentVolumes, and cleans them when they are released.
///
/// Without a command it runs as the provisioner of one node.
#[derive(Clone, Debug, Parser)]
#[command(name = "local-volume-provisioner", version = help::VERSION.as_str(), args_override_self = true)]
#[command(disable_help_subcommand = true, max_term_width = 100, after_help = help::AFTER)]
pub struct Args {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Directory with the configuration, one file per key.
    #[arg(long, global = true, value_name = "DIR", default_value = config::DEFAULT_DIR)]
    pub config: PathBuf,

    /// Address of the HTTP server for metrics, probes and status; without a host, all addresses. `status` asks it.
    #[arg(long, global = true, value_name = "[HOST]:PORT")]
    #[arg(default_value = ":8080")]
    pub listen_address: String,

    /// Path of the metrics on that server.
    #[arg(long, global = true, value_name = "PATH", default_value = "/metrics")]
    #[arg(value_parser = absolute)]
    pub metrics_path: String,

    /// Time between two scans of the discovery directories when nothing changes.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "10s", value_parser = duration::parse_positive)]
    pub discovery_period: Duration,

    /// Time between two reads of the configuration directory while its changes are not reported.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "5s", value_parser = duration::parse_positive)]
    pub config_sync_period: Duration,

    /// The kubelet's directory. A volume that a pod uses is mounted below it.
    #[arg(long, global = true, value_name = "DIR")]
    #[arg(default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,

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

    /// Format of log lines.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Log level until the configuration sets one (key logLevel): error, warn, info, debug or trace. Overrides -v.
    #[arg(long, global = true, value_name = "LEVEL")]
    #[arg(value_parser = parsed::<LevelFilter>("write error, warn, info, debug or trace"))]
    log_level: Option<LevelFilter>,

    /// Verbosity as in klog: 4 and more is debug, 6 and more is trace.
    #[arg(short = 'v', long = "v", global = true, value_name = "NUMBER")]
    #[arg(allow_negative_numbers = true, value_parser = parsed::<i32>("write a whole number, such as 4"))]
    verbosity: Option<i32>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable.
    Text,
    /// One JSON object per line.
    Json,
}

/// The commands for operators, and two hidden ones for the program itself.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Shows the state of a node's provisioner and its volumes, problems first.
    Status(Status),
    /// Shows what this node would offer, and why it would skip the rest. Changes nothing.
    #[command(
        after_help = "Exit code: 0 success, 1 when a class has a fault or its directory cannot be read, 2 on a usage error.\n\n\
            Examples:\n  $ kubectl exec POD -- /local-volume-provisioner discover\n  \
            $ local-volume-provisioner discover --config ./config"
    )]
    Discover {
        /// Format of the output.
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: OutputFormat,
    },
    /// Checks the configuration. Exits with 2 if it has a fault.
    #[command(
        after_help = "Example:\n  $ local-volume-provisioner check-config --config ./my-config"
    )]
    CheckConfig,
    /// Cleans one volume of a configured class. Shows what is there, and asks first.
    Clean(Clean),
    /// Removes the finalizer from PersistentVolumes, to uninstall or after a node is gone. Wipes nothing.
    Release(Release),
    /// Runs once per cluster: removes claims and PersistentVolumes of nodes that are gone.
    NodeCleanup(NodeCleanup),
    /// Cleans one device in the container of a cleaning Job, whose environment has the other parameters.
    #[command(hide = true)]
    Job(Job),
    /// Runs an external cleaner so that it ends when the provisioner does.
    #[command(hide = true)]
    Supervise {
        /// The program and its arguments, passed on as they are.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

/// The format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum OutputFormat {
    Table,
    Json,
    Yaml,
}

impl Args {
    /// Parses a command line, whose first word is the program name. It accepts the spellings of Go.
    ///
    /// # Errors
    /// clap's error, also for `--help` and `--version`: print it and exit with its code.
    pub fn from_command_line(
        line: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let mut program = program();
        let matches = program.try_get_matches_from_mut(spelling::normalise(line))?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut program))
    }

    /// The log level: `--log-level`, else the level of `-v`, else info.
    pub fn log_level(&self) -> LevelFilter {
        self.log_level.unwrap_or(match self.verbosity {
            Some(6..) => LevelFilter::TRACE,
            Some(4..6) => LevelFilter::DEBUG,
            _ => LevelFilter::INFO,
        })
    }
}

/// Parses a value. Its error is the remedy, since those of the types are in the words of a programmer.
fn parsed<T: FromStr>(remedy: &'static str) -> impl Fn(&str) -> Result<T, &'static str> + Clone {
    move |text| text.parse().map_err(|_| remedy)
}

/// Validates the path of the metrics. The router panics on a path that is in use, and on patterns.
fn absolute(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    if ["/healthz", "/ready", "/status"].contains(&text) {
        Err("this path is served already: choose another, such as /metrics".into())
    } else if text.starts_with('/') && text.bytes().all(is_plain) {
        Ok(text.into())
    } else {
        Err("it must begin with \"/\" and have letters, digits, -, _, . and / only".into())
    }
}

#[cfg(test)]
mod tests;
