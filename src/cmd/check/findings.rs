//! The results of the checks, in their order.

use std::fmt::Write;

use crate::cluster::ApiError;
use crate::errors::chain;
use crate::log::printable;

/// One result.
enum Finding {
    Good(String),
    /// With what to do.
    Bad(String, String),
    /// A check that the input does not permit.
    NotChecked(String),
}

/// The results so far.
#[derive(Default)]
pub(in crate::cmd) struct Findings(Vec<Finding>);

impl Findings {
    pub fn good(&mut self, text: impl Into<String>) {
        self.0.push(Finding::Good(text.into()));
    }

    pub fn bad(&mut self, text: &str, remedy: &str) {
        self.0.push(Finding::Bad(text.into(), remedy.into()));
    }

    pub fn not_checked(&mut self, text: &str) {
        self.0.push(Finding::NotChecked(text.into()));
    }

    /// The value of a request, or a failed check; if access was denied, with the permission that it requires.
    pub fn require<T>(&mut self, result: Result<T, ApiError>, permission: &str) -> Option<T> {
        let failed = |error| match &error {
            ApiError::Forbidden { .. } => self.bad(&chain(&error), &format!("allow {permission}")),
            _ => self.bad(&chain(&error), "run check again when the API server answers"),
        };
        result.map_err(failed).ok()
    }

    /// The number of checks that fail.
    pub fn failed(&self) -> usize {
        let is_bad = |it: &&Finding| matches!(it, Finding::Bad(..));
        self.0.iter().filter(is_bad).count()
    }

    /// A line for each check, and one for the remedy of each that fails.
    pub fn text(&self, has_colors: bool) -> String {
        let mut text = String::new();
        for finding in &self.0 {
            let (sign, color, what, remedy) = match finding {
                Finding::Good(what) => ("✔", 32, what, None),
                Finding::Bad(what, remedy) => ("✘", 31, what, Some(remedy)),
                Finding::NotChecked(what) => ("-", 33, what, None),
            };
            let colored = has_colors.then(|| format!("\x1b[{color}m{sign}\x1b[0m"));
            let sign = colored.as_deref().unwrap_or(sign);
            let _ = writeln!(text, "{sign} {}", printable(what));
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
