//! Splits a program's output into lines.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The bytes kept of a line. A program may write without ever ending a line.
const MAX_LINE_BYTES: usize = 1024;
/// The lines kept for the error. An event message is limited to one kilobyte.
const MAX_LAST_LINES: usize = 5;

/// Collects output until a line is complete.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    cut: bool,
    last: VecDeque<String>,
}

impl Lines {
    /// Reads an output until no process has it open, and passes its lines to `on_line`.
    pub async fn read(
        output: Option<impl AsyncRead + Unpin>,
        on_line: &mut impl FnMut(&str),
    ) -> Self {
        let mut lines = Self::default();
        if let Some(mut output) = output {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer).await {
                lines.push(&buffer[..length], on_line);
            }
        }
        lines.finish(on_line);
        lines
    }

    /// Adds output and passes complete lines to `on_line`. A carriage return also ends a line: programs use
    /// it to overwrite their progress on a terminal.
    fn push(&mut self, output: &[u8], on_line: &mut impl FnMut(&str)) {
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
    fn finish(&mut self, on_line: &mut impl FnMut(&str)) {
        let mut line = String::from_utf8_lossy(&self.line).into_owned();
        if std::mem::take(&mut self.cut) {
            line.push('…');
        }
        self.line.clear();
        if line.trim().is_empty() {
            return;
        }
        on_line(&line);
        self.last.push_back(line);
        if self.last.len() > MAX_LAST_LINES {
            self.last.pop_front();
        }
    }

    /// The last lines for an error message.
    pub fn last(&self) -> String {
        let lines: Vec<_> = self.last.iter().map(String::as_str).collect();
        match lines.join(" | ") {
            none if none.is_empty() => none,
            lines => format!("; last output: {lines}"),
        }
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
        (seen, lines.last())
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
