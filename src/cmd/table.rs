//! Tables of text.

use std::io::{self, Write};

const GAP: &str = "  ";

/// A colour, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// None.
    Plain,
    /// A heading.
    Heading,
    /// As it should be.
    Good,
    /// In progress.
    Busy,
    /// An operator is needed.
    Bad,
}

impl Tint {
    /// Colours a text, where that is wanted.
    #[must_use]
    pub fn paint(self, text: &str, colours: bool) -> String {
        let code = match self {
            Self::Plain => "",
            Self::Heading => "1",
            Self::Good => "32",
            Self::Busy => "33",
            Self::Bad => "1;31",
        };
        if !colours || code.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Writes rows with their columns aligned; the first row is the heading.
///
/// # Errors
/// When the output cannot be written.
pub fn write<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let rows: Vec<_> = rows.iter().map(|row| (row.clone(), Tint::Plain)).collect();
    out.write_all(render(&rows, 0, false).as_bytes())
}

/// Rows with their columns aligned; the first row is the heading. The cell of one column has the
/// colour of its row.
#[must_use]
pub fn render<const COLUMNS: usize>(
    rows: &[([String; COLUMNS], Tint)],
    tinted: usize,
    colours: bool,
) -> String {
    let printable =
        |(cells, tint): &([String; COLUMNS], _)| (cells.each_ref().map(|it| printable(it)), *tint);
    let rows: Vec<_> = rows.iter().map(printable).collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let width = |(cells, _): &([String; COLUMNS], _)| cells[column].chars().count();
        rows.iter().map(width).max().unwrap_or(0)
    });
    let line = |(cells, tint): &([String; COLUMNS], Tint)| {
        let cells: Vec<_> = (0..COLUMNS)
            .map(|column| {
                let padded = format!("{:1$}", cells[column], widths[column]);
                if column == tinted {
                    tint.paint(&padded, colours)
                } else {
                    padded
                }
            })
            .collect();
        format!("{}\n", cells.join(GAP).trim_end())
    };
    rows.iter().map(line).collect()
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

#[cfg(test)]
mod tests {
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
    fn one_cell_is_coloured_and_no_text_moves_the_cursor() {
        let rows = [
            (["STATE", "WHAT"], Tint::Plain),
            (["Refused", "in use\n"], Tint::Bad),
        ];
        let rows = rows.map(|(cells, tint)| (cells.map(String::from), tint));
        assert_eq!(
            render(&rows, 0, true),
            "STATE    WHAT\n\x1b[1;31mRefused\x1b[0m  in use\\n\n"
        );
    }
}
