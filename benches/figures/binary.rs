//! How large the program is.

use anyhow::{Context, Result};

use super::Effort;
use super::table::{Figure, Target};

/// The size of the release binary, as `cargo build --release` leaves it: stripped.
#[allow(clippy::cast_precision_loss, reason = "megabytes")]
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    let facts = effort.binary.metadata();
    let facts = facts.with_context(|| format!("looking at {}", effort.binary.display()))?;
    Ok(vec![Figure {
        what: "release binary, stripped",
        measured: vec![facts.len() as f64 / 1e6],
        unit: "MB",
        target: Target::Median(10.0),
    }])
}
