//! Splits a program's output into lines.

use std::collections::VecDeque;
use std::fmt;

/// The bytes kept of a line. A program may write without ever ending a line.
const MAX_LINE_BYTES: usize = 1024;
/// The lines kept for the error. An event message is limited to one kilobyte.
const MAX_LAST_LINES: usize = 5;

/// The last lines of a program's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastLines(VecDeque<String>);

impl fmt::Display for LastLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "; last output: " } else { " | " })?;
            f.write_str(line)?;
        }
        Ok(())
    }
}

/// Collects output until a line is complete.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    cut: bool,
    last: LastLines,
}

impl Lines {
    /// Adds output and passes complete lines to `on_line`. A carriage return also ends a line: programs use
    /// it to overwrite their progress on a terminal.
    pub fn push(&mut self, output: &[u8], on_line: &mut impl FnMut(&str)) {
        for byte in output {
            if matches!(byte, b'\n' | b'\r') {
                self.finish(on_line);
            } else if self.line.len() < MAX_LINE_BYTES {
                self.line.push(*byte);
            } else {
                self.cut = true;
            }
        }
    }

    /// Passes the last, incomplete line to `on_line`. Empty lines are skipped.
    pub fn finish(&mut self, on_line: &mut impl FnMut(&str)) {
        let mut line = String::from_utf8_lossy(&self.line).into_owned();
        if std::mem::take(&mut self.cut) {
            line.push('…');
        }
        self.line.clear();
        if line.trim().is_empty() {
            return;
        }
        on_line(&line);
        if self.last.0.len() == MAX_LAST_LINES {
            self.last.0.pop_front();
        }
        self.last.0.push_back(line);
    }

    /// The last lines.
    pub fn into_last(self) -> LastLines {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> (Vec<String>, String) {
        let mut seen = Vec::new();
        let mut on_line = |line: &str| seen.push(line.to_owned());
        let mut lines = Lines::default();
        for piece in pieces {
            lines.push(piece, &mut on_line);
        }
        lines.finish(&mut on_line);
        (seen, lines.into_last().to_string())
    }

    #[test]
    fn lines_do_not_depend_on_read_boundaries() {
        let (seen, last) = lines(&[b"one\ntw", b"o\r\n", b"\n", b"50%\r99%\r", b"\xffend"]);
        assert_eq!(seen, ["one", "two", "50%", "99%", "\u{fffd}end"]);
        assert_eq!(last, "; last output: one | two | 50% | 99% | \u{fffd}end");
        assert_eq!(lines(&[]), (vec![], String::new()));
    }

    #[test]
    fn long_line_is_truncated_and_only_the_last_lines_are_kept() {
        let (seen, _) = lines(&[&b"x".repeat(5000), b"\nnext"]);
        assert_eq!(seen, ["x".repeat(MAX_LINE_BYTES) + "…", "next".into()]);
        let (_, last) = lines(&[b"1\n2\n3\n4\n5\n6\n7\n"]);
        assert_eq!(last, "; last output: 3 | 4 | 5 | 6 | 7");
    }
}
