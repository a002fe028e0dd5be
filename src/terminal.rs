//! The terminal of an operator.

use std::io::IsTerminal;

/// Whether output to a stream may have colours: on a terminal that knows them, unless `NO_COLOR`
/// (<https://no-color.org>) is set.
pub fn colours(stream: &impl IsTerminal) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}
