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
    let rows = std::iter::once(heading.map(String::from)).chain(rows);
    let rows: Vec<_> = rows.map(|row| row.map(|cell| printable(&cell))).collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:width$}  "));
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
        assert_eq!(
            render(["STATE", "WHAT"], rows),
            "STATE    WHAT\nRefused  in use\\n\n"
        );
    }
}
