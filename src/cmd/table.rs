//! Tables on a terminal.

use std::io::{self, Write};

/// Writes rows with their columns aligned; the first row is the heading.
///
/// # Errors
/// When the output cannot be written.
pub fn write<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let width = |row: &[String; COLUMNS]| row[column].chars().count();
        rows.iter().map(width).max().unwrap_or(0)
    });
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
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
}
