//! The spellings of Go's flag package and the flags of klog, as in manifests of the Go provisioner.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Args;

/// The flags of klog, and whether each requires a value. They are accepted and ignored.
const KLOG_FLAGS: [(&str, &str, bool); 14] = [
    ("add_dir_header", "add-dir-header", false),
    ("alsologtostderr", "", false),
    (
        "legacy_stderr_threshold_behavior",
        "legacy-stderr-threshold-behavior",
        false,
    ),
    ("log_backtrace_at", "log-backtrace-at", true),
    ("log_dir", "log-dir", true),
    ("log_file", "log-file", true),
    ("log_file_max_size", "log-file-max-size", true),
    ("log_flush_frequency", "log-flush-frequency", true),
    ("logtostderr", "", false),
    ("one_output", "one-output", false),
    ("skip_headers", "skip-headers", false),
    ("skip_log_headers", "skip-log-headers", false),
    ("stderrthreshold", "", true),
    ("vmodule", "", true),
];

/// The program's command line.
#[must_use]
pub fn program() -> Command {
    Args::command().args(KLOG_FLAGS.map(|(name, hyphenated, requires_value)| {
        let flag = Arg::new(name)
            .long(name)
            .aliases((!hyphenated.is_empty()).then_some(hyphenated));
        let flag = flag.help("Ignored").hide(true).global(true);
        if requires_value {
            flag
        } else {
            // A switch takes its value only after an equals sign.
            flag.num_args(0..=1).require_equals(true)
        }
    }))
}

/// Rewrites a command line for clap: adds the second dash to long flags, and drops the boolean value of
/// switches. Arguments after `--`, `supervise` or `job` belong to another program.
pub(super) fn normalise(
    program: &Command,
    line: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let args = || {
        let of_commands = program.get_subcommands().flat_map(Command::get_arguments);
        program.get_arguments().chain(of_commands)
    };
    let mut longs = BTreeMap::from([("help", false), ("version", false)]);
    longs.extend(args().filter_map(|arg| {
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        Some((arg.get_long()?, is_switch))
    }));
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
        let is_known = longs.contains_key(name);
        let first = name.chars().next().filter(char::is_ascii_alphabetic);
        let is_long = is_known || first.is_some_and(|first| name.len() > 1 && !is_short(first));
        match truth(value).filter(|_| longs.get(name) == Some(&true)) {
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
