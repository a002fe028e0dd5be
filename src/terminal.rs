//! The terminal that somebody may sit at.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

/// Whether what is written there may have colours: on a terminal that knows them, unless `NO_COLOR`
/// (<https://no-color.org>) is set.
pub fn colours(stream: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// How many characters a line of the standard output has; none where it is no terminal.
#[must_use]
pub fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
