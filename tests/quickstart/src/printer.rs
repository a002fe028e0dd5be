//! Prints the story, for a terminal of 80 columns or a file.

use std::fmt::Display;
use std::io::{self, IsTerminal, Stdout, Write};

use anyhow::Result;

/// How many lines of the provisioner's log a failure shows.
const TAIL: usize = 30;

/// Writes to standard output, in colour only on a terminal.
pub struct Printer {
    out: Stdout,
    colour: bool,
    steps: u32,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "32";

impl Printer {
    /// A printer for standard output.
    pub fn new() -> Self {
        let out = io::stdout();
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { out, colour, steps: 0 }
    }

    /// Begins the next step of the story.
    pub fn step(&mut self, title: &str) -> Result<()> {
        self.steps += 1;
        let title = self.paint(BOLD, &format!("{}. {title}", self.steps));
        self.line(&format!("\n{title}"))
    }

    /// A paragraph; the caller breaks its lines.
    pub fn say(&mut self, text: &str) -> Result<()> {
        text.lines().try_for_each(|line| self.line(&format!("   {line}")))
    }

    /// A pause.
    pub fn blank(&mut self) -> Result<()> {
        self.line("")
    }

    /// An expectation that was met.
    pub fn proven(&mut self, text: &str) -> Result<()> {
        let mark = self.paint(GREEN, "ok");
        self.line(&format!("   {mark} {text}"))
    }

    /// A command as a reader could have typed it, and its output.
    pub fn shell(&mut self, command: &str, output: &str) -> Result<()> {
        let command = self.paint(DIM, &format!("$ {command}"));
        self.line(&format!("   {command}"))?;
        self.say(output)
    }

    /// The last words when something is wrong, on standard error, with the end of the provisioner's
    /// log, if it has one yet, which may show the cause.
    pub fn failure(&mut self, what: &str, log: &str) {
        let mut err = io::stderr();
        let _ = writeln!(err, "{}: {what}", self.paint(RED, "FAILED"));
        let lines: Vec<_> = log.lines().collect();
        if !lines.is_empty() {
            let tail = &lines[lines.len().saturating_sub(TAIL)..];
            let _ = writeln!(err, "\nThe end of the provisioner's log:\n{}", tail.join("\n"));
        }
    }

    fn line(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "{}", text.trim_end())?)
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Rows in columns, as `kubectl` aligns them.
pub fn columns<C: Display>(rows: &[Vec<C>]) -> String {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
    let widest = |column: usize| {
        cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let lines = cells.iter().map(|row| {
        let padded = row.iter().enumerate().map(|(column, cell)| {
            let width = widest(column).unwrap_or(0);
            format!("{cell:width$}")
        });
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}
