//! The table that people read.

use std::fmt::{self, Write as _};

use crate::{digits::short, load::Load, work::Figures};

/// One measurement.
#[derive(Debug)]
pub struct Row {
    pub side: &'static str,
    pub load: Load,
    pub count: usize,
    pub figures: Figures,
}

/// All of them, and the targets.
#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

/// Of the embedded control plane, with this many volumes and claims.
const TARGET_COUNT: usize = 10_000;
const TARGET_SECONDS: f64 = 20.0;
const TARGET_MIB: f64 = 200.0;

impl Table {
    pub fn add(&mut self, row: Row) {
        self.0.push(row);
    }
}

impl Row {
    #[allow(clippy::cast_precision_loss, reason = "thousands of claims")]
    fn cells(&self) -> [String; 12] {
        let Self {
            side,
            load,
            count,
            figures,
        } = self;
        let or_none = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        let milliseconds = |seconds: f64| seconds * 1000.0;
        let each = figures.bound.map(|all| milliseconds(all) / *count as f64);
        [
            (*side).to_owned(),
            load.to_string(),
            count.to_string(),
            short(figures.volumes),
            short(figures.created),
            or_none(figures.bound),
            or_none(figures.after_last),
            or_none(each),
            format!("{} + {}", short(figures.cpu), short(figures.client_cpu)),
            short(milliseconds(figures.resync)),
            figures.resync_writes.to_string(),
            short(figures.memory),
        ]
    }

    /// Whether it meets the targets, where there are any.
    fn met(&self) -> Option<bool> {
        if self.side != "embedded" || self.count != TARGET_COUNT {
            return None;
        }
        let soon = self.figures.bound.is_none_or(|all| all <= TARGET_SECONDS);
        Some(soon && self.figures.memory <= TARGET_MIB)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "CONTROL PLANE",
            "VOLUMES AND CLAIMS",
            "OF EACH",
            "AVAILABLE s",
            "CREATED s",
            "BOUND s",
            "AFTER LAST s",
            "MS EACH",
            "CPU s + CLIENT",
            "RESYNC ms",
            "WRITES",
            "MIB",
        ];
        let rows: Vec<_> = std::iter::once(head.map(str::to_owned))
            .chain(self.0.iter().map(Row::cells))
            .collect();
        for row in &rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
                // Writing to a String cannot fail.
                let _ = write!(line, "{cell:width$}  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        let missed = self.0.iter().filter(|row| row.met() == Some(false)).count();
        match (missed, self.0.iter().any(|row| row.met().is_some())) {
            (_, false) => writeln!(f, "\nthe targets are for {TARGET_COUNT} volumes and claims"),
            (0, true) => writeln!(
                f,
                "\nthe targets are met: {TARGET_COUNT} bound in {TARGET_SECONDS} s, {TARGET_MIB} MiB"
            ),
            (missed, true) => writeln!(
                f,
                "\nMISSED on this machine in {missed} row(s): {TARGET_COUNT} bound in {TARGET_SECONDS} s, {TARGET_MIB} MiB"
            ),
        }
    }
}
