//! The results of the checks, in their order.

use std::fmt::Write;

use crate::log::printable;

/// One result.
struct Finding {
    text: String,
    /// What to do, if the check fails.
    remedy: Option<String>,
}

/// The results so far.
#[derive(Default)]
pub(in crate::cmd) struct Findings(Vec<Finding>);

impl Findings {
    pub fn good(&mut self, text: impl Into<String>) {
        let (text, remedy) = (text.into(), None);
        self.0.push(Finding { text, remedy });
    }

    pub fn bad(&mut self, text: &str, remedy: &str) {
        let (text, remedy) = (text.to_owned(), Some(remedy.to_owned()));
        self.0.push(Finding { text, remedy });
    }

    /// The number of checks that fail.
    pub fn failed(&self) -> usize {
        self.0.iter().filter(|it| it.remedy.is_some()).count()
    }

    /// A line for each check, and one for the remedy of each that fails.
    pub fn text(&self, has_colors: bool) -> String {
        let mut text = String::new();
        for Finding { text: what, remedy } in &self.0 {
            let (sign, color) = match remedy {
                None => ('✔', "\x1b[32m"),
                Some(_) => ('✘', "\x1b[31m"),
            };
            let (color, end) = if has_colors {
                (color, "\x1b[0m")
            } else {
                ("", "")
            };
            let _ = writeln!(text, "{color}{sign}{end} {}", printable(what));
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "    {}", printable(remedy));
            }
        }
        let end = match self.failed() {
            0 => "No problems found.".to_owned(),
            count => format!("{} failed.", counted(count, "check")),
        };
        text + "\n" + &end + "\n"
    }
}

/// A number with its noun, in the singular or with an s.
pub(in crate::cmd) fn counted(count: usize, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}
