//! The spellings of Go's flag package and the flags without effect, as in manifests of the Go programs.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use super::Args;

/// The file name by which kubectl finds the program as a plugin.
const PLUGIN: &str = "kubectl-local_volume";

/// The flags of klog, and those of the Go node cleanup controller for what this program does otherwise. They are accepted
/// and ignored. An option requires a value.
const IGNORED_SWITCHES: &str = "add-dir-header alsologtostderr legacy-stderr-threshold-behavior logtostderr one-output skip-headers skip-log-headers leader-elect";
const IGNORED_OPTIONS: &str = "log-backtrace-at log-dir log-file log-file-max-size log-flush-frequency stderrthreshold vmodule leader-elect-lease-name leader-elect-lease-namespace resync worker-threads";

/// The program's command line.
pub fn program() -> Command {
    let switches = IGNORED_SWITCHES.split(' ').map(|name| (name, 0));
    let options = IGNORED_OPTIONS.split(' ').map(|name| (name, 1));
    Args::command().args(switches.chain(options).map(|(name, least)| {
        let flag = Arg::new(name).long(name).global(true).help("Ignored").hide(true);
        // A switch takes its value only after an equals sign.
        flag.num_args(least..=1).require_equals(least == 0)
    }))
}

/// The program's command line under the name that it was called by.
pub(super) fn named(path: Option<&OsString>) -> Command {
    let name = path.and_then(|path| Path::new(path).file_name()?.to_str());
    match name {
        Some(PLUGIN) => program().name(PLUGIN).bin_name("kubectl local-volume"),
        _ => program(),
    }
}

/// Rewrites a command line for clap: adds the command `run` where there is none, adds the second dash to long flags, and
/// writes their names with hyphens. Arguments after `--`, `supervise`, `job` or `__complete` belong to another program.
pub(super) fn normalise(
    line: impl IntoIterator<Item = OsString>,
    is_node: bool,
    program: &Command,
) -> Vec<OsString> {
    let mut is_ours = true;
    let words = line.into_iter().map(|word| {
        is_ours &= word != "--" && word != "supervise" && word != "job" && word != "__complete";
        let long = word.to_str().filter(|_| is_ours).and_then(long_flag);
        long.unwrap_or(word)
    });
    let mut words: Vec<_> = words.collect();
    match words.get(1).map(|word| word.to_string_lossy()) {
        None if !is_node => words.push("--help".into()),
        None => words.push("run".into()),
        Some(first) if first.starts_with('-') && !has_command(&words, program) => {
            words.insert(1, "run".into());
        }
        Some(_) => {}
    }
    words
}

/// Whether a command line names a command, or asks for the help of the program.
fn has_command(words: &[OsString], program: &Command) -> bool {
    let is_command = |word: &OsString| program.get_subcommands().any(|it| word == it.get_name());
    let is_asked =
        |word: &OsString| ["-h", "--help", "-V", "--version", "help"].iter().any(|it| word == it);
    words.iter().skip(1).any(|it| is_command(it) || is_asked(it))
}

/// A long flag with two dashes. Short flags, and their values after an equals sign, stay as they are.
fn long_flag(word: &str) -> Option<OsString> {
    let flag = word.strip_prefix('-')?;
    let flag = flag.strip_prefix('-').unwrap_or(flag);
    let name = flag.split('=').next()?;
    let is_long = name.len() > 1 && name.starts_with(|it: char| it.is_ascii_alphabetic());
    // The flags of klog have underscores.
    is_long.then(|| format!("--{}", flag.replacen(name, &name.replace('_', "-"), 1)).into())
}

#[cfg(test)]
mod tests;
