//! The question before what cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, ensure};
use nix::sys::termios::{FlushArg, tcflush};
use tokio::task::spawn_blocking;

use super::run::UsageError;

/// The error for another answer.
pub(super) const OTHER_ANSWER: &str = "that is another answer; nothing was changed";

/// Requires a terminal for the question: the operator must see it, and what it is about.
///
/// # Errors
/// [`UsageError`] if there is none.
pub(super) fn ensure_terminal() -> Result<()> {
    let is_seen = io::stdout().is_terminal() && io::stderr().is_terminal();
    let text = "there is no terminal for the question; check with --dry-run first, then use --yes";
    ensure!(is_seen && io::stdin().is_terminal(), UsageError(text.into()));
    Ok(())
}

/// Requires the operator to type a text, which cannot be confirmed by habit.
///
/// # Errors
/// [`UsageError`] for another answer, or without a terminal.
pub(super) async fn confirm(
    out: &mut (dyn Write + Send),
    question: String,
    expected: &str,
    otherwise: &'static str,
) -> Result<()> {
    out.flush()?;
    ensure_terminal()?;
    let answer = spawn_blocking(move || {
        // Discards input that was typed before the question.
        tcflush(io::stdin(), FlushArg::TCIFLUSH)?;
        io::stderr().write_all(question.as_bytes())?;
        let mut answer = Vec::new();
        io::stdin().lock().read_until(b'\n', &mut answer)?;
        io::Result::Ok(answer)
    });
    let answer = answer.await?.context("the question cannot be asked")?;
    let is_expected = answer.trim_ascii() == expected.as_bytes();
    ensure!(is_expected, UsageError(otherwise.into()));
    Ok(())
}
