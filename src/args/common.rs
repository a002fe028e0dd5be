//! Options that several commands have.

use std::path::PathBuf;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

use super::{absolute, parsed};
use crate::config;

#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ApiServer {
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current context].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Provisioners {
    /// The provisioners' namespace [default: all namespaces].
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub api_server: ApiServer,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ConfigDir {
    /// Directory with the configuration, one file per key.
    #[arg(long, value_name = "DIR", default_value = config::DEFAULT_DIR)]
    pub config: PathBuf,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Kubelet {
    /// The kubelet's directory. A volume that a pod uses is mounted below it.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Server {
    /// Address of the HTTP server for metrics, probes and status; without a host, all addresses.
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8080")]
    pub listen_address: String,

    /// Path of the metrics on that server.
    #[arg(long, value_name = "PATH", default_value = "/metrics", value_parser = absolute)]
    pub metrics_path: String,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Log {
    /// Format of log lines.
    #[arg(long = "log-format", value_name = "FORMAT", default_value = "text")]
    pub format: LogFormat,

    /// Log level until the configuration sets one (key logLevel): error, warn, info, debug or trace. Overrides -v.
    #[arg(long = "log-level", value_name = "LEVEL")]
    #[arg(value_parser = parsed::<LevelFilter>("write error, warn, info, debug or trace"))]
    level: Option<LevelFilter>,

    /// Verbosity as in klog: 4 and more is debug, 6 and more is trace.
    #[arg(short = 'v', long = "v", value_name = "NUMBER")]
    #[arg(allow_negative_numbers = true, value_parser = parsed::<i32>("write a whole number, such as 4"))]
    verbosity: Option<i32>,
}

impl Log {
    /// The log level: `--log-level`, else the level of `-v`, else info.
    pub fn level(&self) -> LevelFilter {
        self.level.unwrap_or(match self.verbosity {
            Some(6..) => LevelFilter::TRACE,
            Some(4..6) => LevelFilter::DEBUG,
            _ => LevelFilter::INFO,
        })
    }
}
