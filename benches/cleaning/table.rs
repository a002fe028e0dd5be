//! Numbers and columns for people.

use std::fmt::{self, Write};

use super::digits::short;

/// The median of some values, the least and the most.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Half of the values are no more than this.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of no values at all, nothing is a number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            least: at(0),
            most: at(last),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, least, most] = [self.median, self.least, self.most].map(short);
        write!(f, "{median} ({least} to {most})")
    }
}

/// Lines of cells, as wide as they have to be.
pub fn columns(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths);
        let padded: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
    }
    text
}
