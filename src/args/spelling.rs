//! The spellings of Go's flag package and the flags without effect, as in manifests of the Go programs.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Args;

/// The flags of klog, and those of the Go node cleanup controller for what this program does otherwise; and whether
/// each requires a value. They are accepted and ignored.
const IGNORED_FLAGS: [(&str, bool); 18] = [
    ("add-dir-header", false),
    ("alsologtostderr", false),
    ("legacy-stderr-threshold-behavior", false),
    ("log-backtrace-at", true),
    ("log-dir", true),
    ("log-file", true),
    ("log-file-max-size", true),
    ("log-flush-frequency", true),
    ("logtostderr", false),
    ("one-output", false),
    ("skip-headers", false),
    ("skip-log-headers", false),
    ("stderrthreshold", true),
    ("vmodule", true),
    ("leader-elect", false),
    ("leader-elect-lease-name", true),
    ("leader-elect-lease-namespace", true),
    ("resync", true),
];

/// The program's command line.
#[must_use]
pub fn program() -> Command {
    Args::command().args(IGNORED_FLAGS.map(|(name, requires_value)| {
        let flag = Arg::new(name).long(name);
        let flag = flag.help("Ignored").hide(true).global(true);
        if requires_value {
            flag
        } else {
            // A switch takes its value only after an equals sign.
            flag.num_args(0..=1).require_equals(true)
        }
    }))
}

/// Rewrites a command line for clap: adds the second dash to long flags, writes their names with hyphens, and drops the
/// boolean value of switches. Arguments after `--`, `supervise` or `job` belong to another program.
pub(super) fn normalise(
    program: &Command,
    line: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let args = || {
        let of_commands = program.get_subcommands().flat_map(Command::get_arguments);
        program.get_arguments().chain(of_commands)
    };
    let is_short = |first| "hV".contains(first) || args().any(|arg| arg.get_short() == Some(first));
    let mut line = line.into_iter();
    // The program's name.
    let mut normal: Vec<OsString> = line.by_ref().take(1).collect();
    while let Some(word) = line.next() {
        if word == "--" || word == "supervise" || word == "job" {
            normal.push(word);
            normal.extend(line);
            break;
        }
        let Some(flag) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
            normal.push(word);
            continue;
        };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        // The flags of klog have underscores.
        let flag = flag.replacen(name, &name.replace('_', "-"), 1);
        let name = &flag[..name.len()];
        let known = args().find(|arg| arg.get_long() == Some(name));
        let is_switch = known.is_some_and(|arg| matches!(arg.get_action(), ArgAction::SetTrue));
        let first = name.chars().next().filter(char::is_ascii_alphabetic);
        let is_long = known.is_some()
            || ["help", "version"].contains(&name)
            || first.is_some_and(|first| name.len() > 1 && !is_short(first));
        match truth(value).filter(|_| is_switch) {
            Some(true) => normal.push(format!("--{name}").into()),
            // The last occurrence of a flag counts.
            Some(false) => normal.retain(|earlier| *earlier != *format!("--{name}")),
            None if is_long => normal.push(format!("--{flag}").into()),
            None => normal.push(word),
        }
    }
    normal
}

/// The boolean values of Go.
fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
