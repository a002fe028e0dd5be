use std::fmt::Write;
use std::fs;

use clap::{Arg, Command};

use crate::args::program;

const WIDTH: usize = 100;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/command-line.md");

/// The program and its visible commands, with their help texts, as on a line of 100 characters.
fn helps() -> Vec<(Command, String)> {
    let mut program = program().term_width(WIDTH);
    program.build();
    let visible = program.get_subcommands().filter(|it| !it.is_hide_set());
    let of_commands = visible.cloned().map(|mut command| {
        let help = command.render_long_help().to_string();
        (command, help)
    });
    let of_commands: Vec<_> = of_commands.collect();
    let help = program.render_help().to_string();
    [vec![(program, help)], of_commands].concat()
}

#[test]
fn every_flag_has_help_and_every_command_an_example() {
    let helps = helps();
    assert!(helps.len() > 5);
    for (command, help) in &helps {
        let name = command.get_name();
        for line in help.lines() {
            assert!(line.chars().count() <= WIDTH, "{name}: {line:?} is too long");
        }
        let has_help = |arg: &&Arg| arg.get_help().is_some_and(|help| !help.to_string().is_empty());
        for arg in command.get_arguments() {
            assert!(has_help(&arg), "{name}: {} has no help", arg.get_id());
        }
        assert!(command.get_about().is_some(), "{name} has no description");
        let is_top = command.get_subcommands().next().is_some();
        assert!(is_top || help.contains("Example"), "{name} has no example (after_help)");
        assert!(is_top || help.contains("$ "), "{name} has no example (after_help)");
    }
}

#[test]
fn help_names_the_environment_and_the_signals() {
    let helps = helps();
    let help = |name: &str| {
        let found = helps.iter().find(|(command, _)| command.get_name() == name);
        &found.unwrap().1
    };
    for word in ["MY_NODE_NAME", "KUBECONFIG", "SIGTERM", "Exit code"] {
        assert!(help("run").contains(word), "no {word} in {}", help("run"));
    }
    let top = help("local-volume-provisioner");
    assert!(top.contains("Exit code") && top.contains("node-cleanup"), "{top}");
    assert!(!top.contains("supervise"), "{top}");
}

#[test]
fn version_names_the_program_and_the_revision() {
    let version = program().render_version();
    assert!(
        version.starts_with(concat!(
            "local-volume-provisioner ",
            env!("CARGO_PKG_VERSION"),
            " (revision "
        )),
        "{version}"
    );
}

/// Writes the page if the environment has `WRITE=1`.
#[test]
fn the_page_of_the_command_line_has_all_help_texts() {
    let mut page = String::from(
        "# The command line\n\nThe `--help` texts of the program and of each command. To generate this page:\n`WRITE=1 cargo test --lib the_page_of_the_command_line`.\n",
    );
    for (command, help) in helps() {
        let name = command.get_name();
        let lines: Vec<_> = help.lines().map(str::trim_end).collect();
        let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    }
    if std::env::var_os("WRITE").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page,
        "docs/command-line.md differs from --help: WRITE=1 cargo test --lib the_page_of_the_command_line"
    );
}
