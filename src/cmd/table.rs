//! Text tables.

use std::io::{self, Write};

const GAP: &str = "  ";

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// No colour.
    Plain,
    /// A heading.
    Heading,
    /// No problem.
    Good,
    /// In progress.
    Busy,
    /// An operator must act.
    Bad,
}

impl Tint {
    /// Colours a text if `colours` is set.
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

/// Writes rows with aligned columns; the first row is the heading.
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

/// Renders rows with aligned columns; the first row is the heading. The cell in column `tinted` has the colour of its
/// row.
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

/// Escapes control characters, since a file name can contain terminal sequences.
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
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["PV", "WHY"], ["größer", "x"], ["a", ""]].map(|row| row.map(String::from));
        let mut out = Vec::new();
        write(&rows, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "PV      WHY\ngrößer  x\na\n"
        );
    }

    #[test]
    fn one_cell_is_coloured_and_control_characters_are_escaped() {
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
