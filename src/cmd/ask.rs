//! The question before what cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, ensure};
use nix::sys::termios::{FlushArg, tcflush};
use tokio::task::spawn_blocking;

/// Fails without a terminal for the question: the operator must see it, and what it is about.
pub(super) fn ensure_terminal() -> Result<()> {
    let is_seen = io::stdout().is_terminal() && io::stderr().is_terminal();
    ensure!(
        is_seen && io::stdin().is_terminal(),
        "there is no terminal for the question; check with --dry-run first, then use --yes"
    );
    Ok(())
}

/// Requires the operator to type a text, which cannot be confirmed by habit.
pub(super) async fn confirm(
    question: String,
    expected: &[u8],
    otherwise: &'static str,
) -> Result<()> {
    let answer = spawn_blocking(move || {
        // Discards input that was typed before the question.
        tcflush(io::stdin(), FlushArg::TCIFLUSH)?;
        io::stderr().write_all(question.as_bytes())?;
        let mut answer = Vec::new();
        io::stdin().lock().read_until(b'\n', &mut answer)?;
        io::Result::Ok(answer)
    });
    let answer = answer.await?.context("the question cannot be asked")?;
    ensure!(answer.trim_ascii() == expected, otherwise);
    Ok(())
}
