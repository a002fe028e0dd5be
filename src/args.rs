//! The command line and the environment.

mod clean;
mod environment;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::{self, duration};

pub use clean::{Clean, CleanBy};
pub use environment::{Environment, EnvironmentError};

/// Offers a node's local disks as PersistentVolumes, and cleans them when they are released.
///
/// Without a command it runs as the provisioner of one node.
#[derive(Clone, Debug, Parser)]
#[command(name = "local-volume-provisioner", version, args_override_self = true)]
#[command(
    after_help = "Flags may be written with one dash, as in -listen-address=:9090. The \
    logging flags of klog (--logtostderr, --vmodule and so on) are accepted and ignored.\n\n\
    Environment: MY_NODE_NAME (required to run), MY_NAMESPACE (default \"default\"), \
    JOB_CONTAINER_IMAGE, POD_NAME and POD_UID (for events on the pod, and to know the \
    kubelet's directory by it), KUBECONFIG."
)]
pub struct Args {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Directory with the configuration, one file per key.
    #[arg(long, global = true, value_name = "DIR", default_value = config::DEFAULT_DIR)]
    pub config: PathBuf,

    /// Address of the HTTP server for metrics, probes and status; without a host, all addresses.
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8080")]
    pub listen_address: ListenAddress,

    /// Path of the metrics on that server.
    #[arg(long, value_name = "PATH", default_value = "/metrics", value_parser = absolute)]
    pub metrics_path: String,

    /// Time between two looks at the discovery directories when nothing happens.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub discovery_period: Duration,

    /// Time between two looks at the configuration directory when nothing happens.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub config_sync_period: Duration,

    /// The kubelet's directory, where a volume that a pod still uses shows.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/var/lib/kubelet"
    )]
    pub kubelet_dir: PathBuf,

    /// Where the kubelet's directory cannot be seen: time to leave a released volume alone.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub release_quiet_period: Duration,

    /// An admission policy lets this node's provisioner change its own node's objects only. It goes
    /// by the node's name: refuse to start where that is not enough.
    #[arg(long)]
    pub node_isolation: bool,

    /// How log lines look.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// How much is logged. Wins over -v.
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<LogLevel>,

    /// How much is logged, in klog's numbers: from 4 on debug, from 6 on trace.
    #[arg(short = 'v', long = "v", global = true, value_name = "NUMBER")]
    #[arg(allow_negative_numbers = true)]
    verbosity: Option<i32>,
}

/// The commands for people, and one for ourselves.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Shows what would be offered on this node, and why the rest would not. Changes nothing.
    Discover(Discover),
    /// Checks the configuration. Exits with 2 when something in it cannot be used.
    CheckConfig,
    /// Cleans one volume by hand, as the provisioner would. Shows what is there, and asks first.
    Clean(Clean),
    /// Takes our finalizer off PersistentVolumes, to uninstall or after a node is gone. Wipes nothing.
    Release(Release),
    /// Runs an external cleaner so that it ends when the provisioner does.
    #[command(hide = true)]
    Supervise {
        /// The program and its arguments, passed on as they are.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

/// Arguments of `discover`.
#[derive(Clone, Debug, clap::Args)]
pub struct Discover {
    /// Name of the node, which is part of the PVs' names [default: MY_NODE_NAME].
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// How the result is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
}

/// Arguments of `release`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "PVs whose volumes still hold a tenant's data are listed and stay (exit code 1), unless \
    --abandon-uncleaned says otherwise. It may be run again at any time."
)]
pub struct Release {
    /// Take the finalizer off, so that the PersistentVolumes can go without the provisioner.
    #[arg(long, required = true)]
    pub finalizers: bool,

    /// First wait for its last cleanups, delete this DaemonSet, and wait until its pods are gone.
    #[arg(long, value_name = "NAME", conflicts_with = "node")]
    pub daemonset: Option<String>,

    /// The provisioner's namespace [default: MY_NAMESPACE].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Only the PersistentVolumes of this node, which must be gone.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Let those go, too, whose volumes were not cleaned. Their data stays on the disks.
    #[arg(long)]
    pub abandon_uncleaned: bool,

    /// How long to wait for the last cleanups, and then for the pods.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    pub timeout: Duration,

    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}

/// How a command writes its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OutputFormat {
    Table,
    Json,
    Yaml,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How much is logged; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

impl Args {
    /// Reads a command line, the program's name first, in the spellings that existing manifests use.
    ///
    /// # Errors
    /// clap's own error, which also stands for `--help` and `--version`: print it and exit with its
    /// code.
    pub fn from_command_line(
        line: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        Self::try_parse_from(normalise(line))
    }

    /// The level to log at: `--log-level`, else what `-v` comes to, else info.
    #[must_use]
    pub fn log_level(&self) -> LogLevel {
        self.log_level.unwrap_or(match self.verbosity {
            Some(6..) => LogLevel::Trace,
            Some(4..6) => LogLevel::Debug,
            _ => LogLevel::Info,
        })
    }
}

/// klog's flags, in the spelling with underscores, and whether each takes a value. Go's switches
/// take theirs only behind a `=`.
const KLOG_FLAGS: [(&str, bool); 14] = [
    ("add_dir_header", false),
    ("alsologtostderr", false),
    ("legacy_stderr_threshold_behavior", false),
    ("log_backtrace_at", true),
    ("log_dir", true),
    ("log_file", true),
    ("log_file_max_size", true),
    ("log_flush_frequency", true),
    ("logtostderr", false),
    ("one_output", false),
    ("skip_headers", false),
    ("skip_log_headers", false),
    ("stderrthreshold", true),
    ("vmodule", true),
];

/// Makes of a command line in Go's manner one in clap's: long flags get their second dash, and
/// klog's flags go. The words behind `--` or `supervise` belong to somebody else and stay.
#[must_use]
pub fn normalise(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let long_flags = long_flags(&Args::command());
    let mut line = line.into_iter();
    // The program's name.
    let mut normal: Vec<OsString> = line.by_ref().take(1).collect();
    while let Some(word) = line.next() {
        if word == "--" || word == "supervise" {
            normal.push(word);
            normal.extend(line);
            break;
        }
        let Some((name, value)) = word.to_str().and_then(long_flag) else {
            normal.push(word);
            continue;
        };
        if let Some(takes_value) = klog_flag(name) {
            if takes_value && value.is_none() {
                line.next();
            }
        } else if long_flags.contains(name) {
            normal.push(
                value
                    .map_or_else(|| format!("--{name}"), |v| format!("--{name}={v}"))
                    .into(),
            );
        } else {
            normal.push(word);
        }
    }
    normal
}

/// The name and value of `-name`, `-name=value` and the same with two dashes.
fn long_flag(word: &str) -> Option<(&str, Option<&str>)> {
    let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    Some(
        flag.split_once('=')
            .map_or((flag, None), |(name, value)| (name, Some(value))),
    )
}

fn klog_flag(name: &str) -> Option<bool> {
    let name = name.replace('-', "_");
    KLOG_FLAGS
        .iter()
        .find(|(flag, _)| *flag == name)
        .map(|(_, takes_value)| *takes_value)
}

/// Every long flag of the command and its subcommands. Only these may have one dash: `-o` and `-ojson`
/// are clap's business.
fn long_flags(command: &clap::Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .map(str::to_owned);
    let of_subcommands = command.get_subcommands().flat_map(long_flags);
    own.chain(of_subcommands)
        .chain(["help".into(), "version".into()])
        .collect()
}

/// Where to listen, as Go writes it: `host:port`, `[::1]:port` or `:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    host: String,
    port: u16,
}

impl ListenAddress {
    /// The addresses to try to bind, in this order, until one succeeds. Without a host these are IPv6's
    /// wildcard, which serves IPv4 as well, and IPv4's, for a kernel that has no IPv6.
    ///
    /// # Errors
    /// When the host's name cannot be resolved.
    pub fn candidates(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.is_empty() {
            let any = [
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ];
            return Ok(any
                .map(|address| SocketAddr::new(address, self.port))
                .to_vec());
        }
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or("the port is missing; write host:port, or :port for all addresses")?;
        let port = port
            .parse()
            .map_err(|_| format!("\"{port}\" is no port from 0 to 65535"))?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(host) => host,
            None if host.contains(':') => return Err("write an IPv6 address in brackets".into()),
            None => host,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

fn absolute(text: &str) -> Result<String, String> {
    if text.starts_with('/') {
        Ok(text.into())
    } else {
        Err("it must begin with \"/\"".into())
    }
}

/// A period of zero would be a loop without a pause.
fn positive(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => Err("it must be more than zero".into()),
        Ok(period) => Ok(period),
        Err(fault) => Err(format!("{fault}; write a duration such as 10s or 1m30s")),
    }
}

#[cfg(test)]
mod tests;
