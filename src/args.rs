//! The command line and the environment.

// A doc comment is a text of --help; on a flattened struct it replaces the description of the command.
#![allow(missing_docs, reason = "see above")]

mod adopt;
mod approve;
mod bundle;
mod check;
mod check_config;
mod clean;
mod common;
mod consent;
mod environment;
mod explain;
mod help;
mod job;
mod list;
mod move_pv;
mod node_cleanup;
mod pause;
mod rebind;
mod release;
mod retire;
mod run;
mod spelling;
mod status;

use std::ffi::OsString;
use std::str::FromStr;

use clap::{FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use adopt::Adopt;
pub use approve::Approve;
pub use bundle::Bundle;
pub use check::Check;
pub use check_config::CheckConfig;
pub use clean::Clean;
pub use common::{ApiServer, ConfigDir, Kubelet, Log, LogFormat, Provisioners, Server};
pub use consent::{Consent, Verb};
pub use environment::Environment;
pub use explain::Explain;
pub use job::Job;
pub use list::{List, ListFormat};
pub use move_pv::Move;
pub use node_cleanup::NodeCleanup;
pub use pause::Pause;
pub use rebind::Rebind;
pub use release::Release;
pub use retire::{Replace, Retire, Steps};
pub use run::Run;
pub use spelling::program;
pub use status::Status;

/// Offers the local disks of nodes as PersistentVolumes, cleans them when they are released, and shows and changes
/// their state.
#[derive(Clone, Debug, Parser)]
#[command(name = "local-volume-provisioner", version = help::VERSION.as_str(), args_override_self = true)]
#[command(max_term_width = 100, after_help = help::AFTER)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands for operators, for containers, and hidden ones for the program itself.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Runs the provisioner of one node. It is the command without arguments where MY_NODE_NAME is set.
    Run(Run),
    /// Checks the whole installation, one line for each check, with the remedy.
    Check(Check),
    /// Lists the volumes of all nodes, those that need attention first.
    List(List),
    /// Explains the state of a volume: each check with its result, what happens next, and the command that changes it.
    Explain(Explain),
    /// Permits one act on a volume that the provisioner refuses otherwise: to wipe it, to accept it, or to forget its PV.
    Consent(Consent),
    /// Offers the volumes of a former cluster again, each with its data and to its former claim only.
    Adopt(Adopt),
    /// Permits a node to take in the blank disks that the rules of its classes select.
    Approve(Approve),
    /// Pauses the cleaning of a PV's volume, of a node, or of the cluster.
    Pause(Pause),
    /// Resumes the cleaning that pause has stopped.
    Resume(Pause),
    /// Binds a PV again: to a new claim, if its claim was deleted by mistake, or on another node, if its disk was moved there.
    Rebind(Rebind),
    /// Moves a PV that is bound to its disk to the node that has the disk now.
    Move(Move),
    /// Replaces a failed disk: each step is shown, checked, and taken when it is possible.
    Replace(Replace),
    /// Takes a disk, or all disks of a node, out of service, step by step.
    Retire(Retire),
    /// Shows the state of provisioners, problems first.
    Status(Status),
    /// Collects what a bug report needs in one archive, without the names of tenants.
    Bundle(Bundle),
    /// Shows what this node would offer, and why it would skip the rest. Changes nothing.
    #[command(
        after_help = "Exit code: 0 success, 1 when a class has a fault or its directory cannot be read, 2 on a usage error.\n\n\
            Examples:\n  $ kubectl exec POD -- /local-volume-provisioner discover\n  \
            $ local-volume-provisioner discover --config ./config"
    )]
    Discover {
        #[command(flatten)]
        config: ConfigDir,

        /// Format of the output.
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: OutputFormat,
    },
    /// Checks a configuration: a directory, a ConfigMap, or rendered manifests. Shows each fault and the effective values.
    CheckConfig(CheckConfig),
    /// Cleans one volume of a configured class. Shows what is there, and asks first.
    Clean(Clean),
    /// Removes the finalizer from PersistentVolumes, to uninstall or after a node is gone. Wipes nothing.
    Release(Release),
    /// Runs once per cluster: removes claims and PersistentVolumes of nodes that are gone.
    NodeCleanup(NodeCleanup),
    /// Prints the completions of a shell.
    #[command(after_help = "Example:\n  $ source <(local-volume-provisioner completion bash)\n\n\
        For kubectl, put an executable kubectl_complete-local_volume into the PATH (docs/install.md).")]
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Prints what may complete the last word, for kubectl.
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words of the command line.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
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
pub enum OutputFormat {
    Table,
    Json,
    Yaml,
}

impl Args {
    /// Parses a command line, whose first word is the program name. It accepts the spellings of Go. `is_node` says
    /// whether a command line without arguments runs the provisioner, as in the pods of the Go program.
    ///
    /// # Errors
    /// clap's error, also for `--help` and `--version`: print it and exit with its code.
    pub fn from_command_line(
        line: impl IntoIterator<Item = OsString>,
        is_node: bool,
    ) -> Result<Self, clap::Error> {
        let line: Vec<_> = line.into_iter().collect();
        let mut program = spelling::named(line.first());
        let line = spelling::normalise(line, is_node, &program);
        let matches = program.try_get_matches_from_mut(line)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut program))
    }

    /// The format and the level of log lines.
    pub fn log(&self) -> Log {
        match &self.command {
            Command::Run(Run { log, .. })
            | Command::Clean(Clean { log, .. })
            | Command::NodeCleanup(NodeCleanup { log, .. })
            | Command::Job(Job { log, .. }) => log.clone(),
            _ => Log::default(),
        }
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
