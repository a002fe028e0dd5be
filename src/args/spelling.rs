//! Go's spellings of a command line, made into clap's.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

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

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing: it is on where it stands.
    Switch,
    /// True or false; alone it means true.
    Bool,
    /// A value, in the same word or in the next.
    Value,
}

impl Kind {
    fn of(arg: &Arg) -> Self {
        match arg.get_action() {
            ArgAction::Set | ArgAction::Append => {
                if arg.get_value_parser().type_id() == TypeId::of::<bool>() {
                    Self::Bool
                } else {
                    Self::Value
                }
            }
            _ => Self::Switch,
        }
    }
}

/// The flags that a command knows where one stands on the command line.
#[derive(Debug, Default)]
struct Flags {
    long: BTreeMap<String, Kind>,
    short: BTreeMap<char, Kind>,
}

impl Flags {
    fn add(&mut self, command: &Command, wanted: impl Fn(&Arg) -> bool) {
        for arg in command.get_arguments().filter(|arg| wanted(arg)) {
            let kind = Kind::of(arg);
            self.long
                .extend(arg.get_long().map(|name| (name.to_owned(), kind)));
            self.short.extend(arg.get_short().map(|name| (name, kind)));
        }
    }

    /// Those of the whole program.
    fn of(command: &Command) -> Self {
        let mut flags = Self::default();
        flags.add(command, |_| true);
        for name in ["help", "version"] {
            flags.long.insert(name.into(), Kind::Switch);
        }
        flags
            .short
            .extend([('h', Kind::Switch), ('V', Kind::Switch)]);
        flags
    }

    /// Those behind a subcommand: its own, and the global ones.
    fn behind(command: &Command, subcommand: &Command) -> Self {
        let mut flags = Self::default();
        flags.add(command, Arg::is_global_set);
        flags.add(subcommand, |_| true);
        flags.long.insert("help".into(), Kind::Switch);
        flags.short.insert('h', Kind::Switch);
        flags
    }
}

/// Makes of a command line in Go's manner one in clap's: long flags get their second dash, switches
/// lose their value, and klog's flags go. The words behind `--`, `supervise` or `job` belong
/// to somebody else and stay.
pub(super) fn normalise(
    program: &Command,
    line: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let mut flags = Flags::of(program);
    let mut is_behind = false;
    let mut line = line.into_iter().peekable();
    // The program's name.
    let mut normal: Vec<OsString> = line.by_ref().take(1).collect();
    while let Some(word) = line.next() {
        if word == "--" || (!is_behind && (word == "supervise" || word == "job")) {
            normal.push(word);
            normal.extend(line);
            break;
        }
        let Some(Flag {
            name,
            value,
            dashes,
        }) = word.to_str().and_then(Flag::read)
        else {
            let found = word.to_str().and_then(|name| program.find_subcommand(name));
            if let Some(subcommand) = found.filter(|_| !is_behind) {
                flags = Flags::behind(program, subcommand);
                is_behind = true;
            }
            normal.push(word);
            continue;
        };
        let long = format!("--{name}");
        match (flags.long.get(name), value) {
            (None, _) if klog_flag(name).is_some() => {
                if klog_flag(name) == Some(true) && value.is_none() {
                    line.next();
                }
            }
            (Some(Kind::Switch), Some(value)) => match go_bool(value) {
                Some(true) => normal.push(long.into()),
                // The last one counts.
                Some(false) => normal.retain(|earlier| *earlier != *long),
                None => normal.push(format!("{long}={value}").into()),
            },
            (Some(Kind::Bool), Some(value)) => {
                let value = go_bool(value).map_or(value.to_owned(), |value| value.to_string());
                normal.push(format!("{long}={value}").into());
            }
            (Some(Kind::Bool), None) => {
                let next = |word: &OsString| word.to_str().and_then(go_bool);
                let value = match line.peek().and_then(next) {
                    Some(value) => {
                        line.next();
                        value
                    }
                    None => true,
                };
                normal.push(format!("{long}={value}").into());
            }
            (Some(Kind::Switch), None) => normal.push(long.into()),
            (Some(Kind::Value), Some(value)) => normal.push(format!("{long}={value}").into()),
            (Some(Kind::Value), None) => {
                normal.push(long.into());
                // Whatever it looks like.
                normal.extend(line.next());
            }
            (None, _) if dashes == 2 => normal.push(word),
            (None, value) => {
                let short = name.chars().next().and_then(|name| flags.short.get(&name));
                let is_alone = name.chars().count() == 1;
                if short.is_none() && !is_alone {
                    // So that the error names it whole, and the flag that was meant.
                    normal.push(format!("-{}", word.to_string_lossy()).into());
                } else {
                    normal.push(word.clone());
                    if is_alone && value.is_none() && short == Some(&Kind::Value) {
                        normal.extend(line.next());
                    }
                }
            }
        }
    }
    normal
}

/// `-name`, `-name=value`, and the same with two dashes.
struct Flag<'a> {
    name: &'a str,
    value: Option<&'a str>,
    dashes: u8,
}

impl<'a> Flag<'a> {
    fn read(word: &'a str) -> Option<Self> {
        let (flag, dashes) = match word.strip_prefix("--") {
            Some(flag) => (flag, 2),
            None => (word.strip_prefix('-')?, 1),
        };
        // A dash alone is a name for the standard input, and `-5` a number.
        flag.starts_with(|c: char| c.is_alphabetic())
            .then_some(())?;
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        Some(Self {
            name,
            value,
            dashes,
        })
    }
}

fn klog_flag(name: &str) -> Option<bool> {
    let name = name.replace('-', "_");
    KLOG_FLAGS
        .iter()
        .find(|(flag, _)| *flag == name)
        .map(|(_, takes_value)| *takes_value)
}

/// What Go takes for a truth value.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
