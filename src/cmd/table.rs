//! Tables on a terminal.

use std::io::{self, Write};

/// The last column is never squeezed below this, however narrow the terminal is.
const NARROWEST: usize = 24;
const GAP: &str = "  ";

/// What the terminal can do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Characters in a line, where that is limited.
    pub width: Option<usize>,
    /// Whether colours may be used.
    pub colours: bool,
}

/// A colour, by what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// None.
    Plain,
    /// A heading.
    Heading,
    /// As it should be.
    Good,
    /// Something goes on.
    Busy,
    /// Somebody is needed.
    Bad,
}

impl Tint {
    /// Colours a text, where that is wanted.
    #[must_use]
    pub fn paint(self, text: &str, look: Look) -> String {
        let code = match self {
            Self::Plain => "",
            Self::Heading => "1",
            Self::Good => "32",
            Self::Busy => "33",
            Self::Bad => "1;31",
        };
        if !look.colours || code.is_empty() || text.trim().is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A row; the colour is that of one of its cells.
#[derive(Clone, Debug)]
pub struct Row<const COLUMNS: usize> {
    /// The texts.
    pub cells: [String; COLUMNS],
    /// Which of them is coloured, and how.
    pub tint: (usize, Tint),
}

/// Writes rows with their columns aligned; the first row is the heading.
///
/// # Errors
/// When the output cannot be written.
pub fn write<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let plain = |cells: &[String; COLUMNS]| Row {
        cells: cells.clone(),
        tint: (0, Tint::Plain),
    };
    let rows: Vec<_> = rows.iter().map(plain).collect();
    out.write_all(render(&rows, Look::default()).as_bytes())
}

/// Rows with their columns aligned; the first row is the heading. Texts of the last column that are
/// too long for the terminal go on in the next line.
#[must_use]
pub fn render<const COLUMNS: usize>(rows: &[Row<COLUMNS>], look: Look) -> String {
    let cells: Vec<_> = rows
        .iter()
        .map(|row| row.cells.each_ref().map(|cell| printable(cell)))
        .collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let width = |row: &[String; COLUMNS]| row[column].chars().count();
        cells.iter().map(width).max().unwrap_or(0)
    });
    let (last, before) = widths.split_last().unwrap_or((&0, &[]));
    let taken: usize = before.iter().map(|width| width + GAP.len()).sum();
    let room = match look.width {
        Some(width) => width.saturating_sub(taken).max(NARROWEST),
        None => *last,
    };
    let mut text = String::new();
    for (row, cells) in rows.iter().zip(&cells) {
        let Some((long, short)) = cells.split_last() else {
            continue;
        };
        let mut lines = wrap(long, room).into_iter();
        let first = lines.next().unwrap_or_default();
        let mut painted = Vec::new();
        let all = short.iter().zip(before).chain([(&first, &0)]);
        for (column, (cell, width)) in all.enumerate() {
            let padded = format!("{cell:width$}");
            painted.push(if row.tint.0 == column {
                row.tint.1.paint(&padded, look)
            } else {
                padded
            });
        }
        text.push_str(painted.join(GAP).trim_end());
        text.push('\n');
        for line in lines {
            text.push_str(&" ".repeat(taken));
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// A text, nothing in which moves the cursor: names of files may hold anything.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            safe.extend(character.escape_debug());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Breaks a text into lines between its words, or within one that is longer than a line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        let gap = usize::from(used > 0);
        if used + gap + length > width && used > 0 {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.len() - 1;
        if used > 0 {
            lines[line].push(' ');
            used += 1;
        }
        for character in word.chars() {
            if used == width.max(1) {
                lines.push(String::new());
                used = 0;
            }
            let line = lines.len() - 1;
            lines[line].push(character);
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_in_characters() {
        let rows = [["PV", "WHY"], ["größer", "x"], ["a", ""]].map(|row| row.map(String::from));
        let mut out = Vec::new();
        write(&rows, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "PV      WHY\ngrößer  x\na\n"
        );
    }

    #[test]
    fn the_last_column_is_wrapped_and_one_cell_is_coloured() {
        let row = |cells: [&str; 2], tint| Row {
            cells: cells.map(String::from),
            tint: (0, tint),
        };
        let rows = [
            row(["STATE", "WHAT"], Tint::Plain),
            row(
                ["Refused", "the disk is in use by a process of the host"],
                Tint::Bad,
            ),
            row(["Bound\n", ""], Tint::Plain),
        ];
        let look = Look {
            width: Some(34),
            colours: true,
        };
        assert_eq!(
            render(&rows, look),
            "STATE    WHAT\n\
             \x1b[1;31mRefused\x1b[0m  the disk is in use by a\n         process of the host\n\
             Bound\\n\n"
        );
    }

    proptest! {
        #[test]
        fn wrapping_loses_nothing_and_keeps_within_the_width(text in "[a-zß ]{0,80}", width in 1_usize..30) {
            let lines = wrap(&text, width);
            for line in &lines {
                prop_assert!(line.chars().count() <= width, "{line:?}");
            }
            let letters = |text: &str| text.replace(' ', "");
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
