//! Figures for people to read.

/// Three digits that count, as many decimals as that takes.
pub fn short(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 | 100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}
