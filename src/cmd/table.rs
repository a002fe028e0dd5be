//! The formats of results.

use anyhow::Result;
use serde_json::Value;

use crate::args::OutputFormat;
use crate::log::printable;

/// Renders rows with aligned columns, below their heading.
pub fn render<const COLUMNS: usize>(
    heading: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let rows = rows.into_iter().map(Vec::from);
    table(heading.map(String::from).to_vec(), rows)
}

/// As [`render`], for a number of columns that is known at run time only.
pub fn table(heading: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows = std::iter::once(heading).chain(rows);
    let printable = |row: Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<_>> = rows.map(printable).collect();
    let width = |column: usize| {
        let widths = rows.iter().filter_map(|row| Some(row.get(column)?.chars().count()));
        widths.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  "));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A cell: `-` if there is no value.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// Renders a value as JSON or YAML.
///
/// # Errors
/// When the value cannot be written as YAML.
pub fn structured(format: OutputFormat, value: &Value) -> Result<String> {
    Ok(match format {
        OutputFormat::Yaml => serde_saphyr::to_string(value)?,
        OutputFormat::Json | OutputFormat::Table => format!("{value:#}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["größer", "x"], ["a", ""]].map(|row| row.map(String::from));
        assert_eq!(render(["PV", "WHY"], rows), "PV      WHY\ngrößer  x\na\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        let rows = [["Refused", "in use\n"].map(String::from)];
        assert_eq!(render(["STATE", "WHAT"], rows), "STATE    WHAT\nRefused  in use\\n\n");
    }
}
