//! `completion`: the completions of a shell; and the words that kubectl asks of a plugin.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap_complete::{Shell, generate};

use crate::args::program;

/// Tells kubectl to add no file names (`ShellCompDirectiveNoFileComp` of cobra).
const NO_FILES: &str = ":4";

/// Writes the completions of a shell.
pub fn command(shell: Shell, out: &mut dyn Write) -> ExitCode {
    let mut program = program();
    let name = program.get_name().to_owned();
    generate(shell, &mut program, name, out);
    ExitCode::SUCCESS
}

/// Writes the words that may complete the last one of a command line, as kubectl expects them of the executable
/// `kubectl_complete-local_volume`.
///
/// # Errors
/// When the output cannot be written.
pub fn complete(words: &[String], out: &mut dyn Write) -> Result<ExitCode> {
    let (last, before) = words.split_last().map_or(("", words), |(last, it)| (last, it));
    let program = program();
    let found: Vec<(String, String)> = match before.first() {
        None => {
            let commands = program.get_subcommands().filter(|it| !it.is_hide_set());
            let about = |it: &clap::Command| it.get_about().map(ToString::to_string);
            commands.map(|it| (it.get_name().to_owned(), about(it).unwrap_or_default())).collect()
        }
        Some(name) => {
            let command = program.find_subcommand(name).into_iter();
            let options = command.flat_map(clap::Command::get_arguments);
            let options = options.filter(|it| !it.is_hide_set()).filter_map(|it| {
                let help = it.get_help().map(ToString::to_string);
                Some((format!("--{}", it.get_long()?), help.unwrap_or_default()))
            });
            options.collect()
        }
    };
    for (word, help) in found.iter().filter(|(word, _)| word.starts_with(last)) {
        writeln!(out, "{word}\t{help}")?;
    }
    writeln!(out, "{NO_FILES}")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(|it| (*it).to_owned()).collect();
        let mut out = Vec::new();
        complete(&words, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn kubectl_gets_commands_and_options() {
        let commands = completed(&[""]);
        assert!(commands.contains("explain\tExplains"), "{commands}");
        assert!(!commands.contains("supervise"), "{commands}");
        assert_eq!(completed(&["expla"]).lines().count(), 2);
        let options = completed(&["consent", "--w"]);
        assert!(options.starts_with("--wipe\t"), "{options}");
        assert!(options.ends_with("\n:4\n"), "{options}");
        assert_eq!(completed(&["explain", "local-pv"]), ":4\n");
        assert_eq!(completed(&["nonsense", "--"]), ":4\n");
    }

    #[test]
    fn completions_of_each_shell_name_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut out = Vec::new();
            command(shell, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("explain") && text.contains("dry-run"), "{shell}");
        }
    }
}
