//! What `--help` and `--version` say.

use std::fmt::Write;
use std::sync::LazyLock;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Args;

/// Headings over the flags.
pub(super) const PROVISIONER: &str = "Provisioner";
pub(super) const DIRECTORIES: &str = "Directories";
pub(super) const LOGGING: &str = "Logging";

/// Lines are never longer, however wide the terminal is.
const WIDTH: usize = 100;

/// The version, and the revision that it was built from, if that was said to the compiler.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let revision = option_env!("LVP_REVISION").unwrap_or("unknown");
    format!("{} (revision {revision})", env!("CARGO_PKG_VERSION"))
});

/// The commands by what one wants.
const PURPOSES: [(&str, &[&str]); 2] = [
    (
        "To look (these change nothing)",
        &["status", "discover", "check-config"],
    ),
    ("To act", &["clean", "release"]),
];
const OTHERS: &str = "To run";

const USAGE: &str = "\
local-volume-provisioner [FLAGS]          to run as the provisioner of one node
       local-volume-provisioner COMMAND [FLAGS]  see COMMAND --help";

const AFTER: &str = "\
Go's spellings do as well: one dash (-listen-address=:9090), and switches with a value
(--node-isolation=false). The logging flags of klog (--logtostderr, --vmodule and so on) are ignored.

Environment:
  MY_NODE_NAME         the name of this node's Node object; required to run
  MY_NAMESPACE         the pod's namespace [default: default]
  JOB_CONTAINER_IMAGE  the image of cleaning Jobs (JOB_IMAGE_PULL_SECRETS: the Secrets to pull it)
  POD_NAME, POD_UID    our own pod, for events on it, and to know the kubelet's directory by it
  KUBECONFIG           how to reach the API server; not needed in a pod
  NO_COLOR             if set, no colours on a terminal either

Signals:
  SIGTERM, SIGINT      stop; what is being cleaned then, the next process cleans anew

Exit code: 0 success, 1 failure, 2 what only an administrator can mend.";

/// The program's command line.
#[must_use]
pub fn program() -> Command {
    let program = Args::command();
    let commands = commands(&program);
    program
        .version(VERSION.as_str())
        .max_term_width(WIDTH)
        .override_usage(USAGE)
        .after_help(AFTER)
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}{{all-args}}{{after-help}}"
        ))
        .disable_help_subcommand(true)
        .disable_help_flag(true)
        .arg(help_flag(ArgAction::HelpShort))
        .mut_subcommands(|command| {
            // In the list above already.
            command.hide(true).arg(help_flag(ArgAction::Help))
        })
}

fn help_flag(action: ArgAction) -> Arg {
    let flag = Arg::new("help").short('h').long("help");
    flag.action(action).help("Show this")
}

/// The visible commands, each under its purpose.
fn commands(program: &Command) -> String {
    let visible: Vec<_> = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .collect();
    let width = visible.iter().map(|command| command.get_name().len()).max();
    let is_of = |command: &Command, names: &[&str]| names.contains(&command.get_name());
    let has_a_purpose = |command: &Command| PURPOSES.iter().any(|(_, names)| is_of(command, names));
    let mut text = String::new();
    let mut list = |purpose: &str, wanted: &dyn Fn(&Command) -> bool| {
        let listed: Vec<_> = visible.iter().filter(|command| wanted(command)).collect();
        if listed.is_empty() {
            return;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{purpose}:");
        for command in listed {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            let _ = writeln!(
                text,
                "  {:width$}  {}",
                command.get_name(),
                about.split(". ").next().unwrap_or_default(),
                width = width.unwrap_or_default()
            );
        }
        text.push('\n');
    };
    list(OTHERS, &|command| !has_a_purpose(command));
    for (purpose, names) in PURPOSES {
        list(purpose, &|command| is_of(command, names));
    }
    text
}

#[cfg(test)]
mod tests;
