//! Figures, what they ought to be, and the table that shows both.

use std::fmt::Write;

use super::digits::short;

/// Something measured at least once.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured.
    pub what: &'static str,
    /// What came out, in `unit`, each time.
    pub measured: Vec<f64>,
    /// Of the values and of the target.
    pub unit: &'static str,
    /// What it ought to be.
    pub target: Target,
}

/// What a figure ought to be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The median no more than this.
    Median(f64),
    /// The median no more than the first, and none more than the second.
    MedianAndWorst(f64, f64),
    /// Nothing but background for the others.
    None,
}

impl Figure {
    /// The median, the least and the most.
    fn spread(&self) -> (f64, f64, f64) {
        let mut sorted = self.measured.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        (median, at(0), at(last))
    }

    /// Whether it meets its target, if it has one.
    pub fn met(&self) -> Option<bool> {
        let (median, _, worst) = self.spread();
        match self.target {
            Target::Median(limit) => Some(median <= limit),
            Target::MedianAndWorst(limit, outer) => Some(median <= limit && worst <= outer),
            Target::None => None,
        }
    }

    fn row(&self) -> [String; 4] {
        let (median, least, most) = self.spread();
        let (unit, n) = (self.unit, self.measured.len());
        let target = match self.target {
            Target::Median(limit) => format!("<= {limit} {unit}"),
            Target::MedianAndWorst(limit, outer) => format!("<= {limit} {unit}, worst <= {outer}"),
            Target::None => String::new(),
        };
        let met = match self.met() {
            Some(true) => "yes",
            Some(false) => "MISSED",
            None => "",
        };
        let (median, least, most) = (short(median), short(least), short(most));
        let measured = if n == 1 {
            format!("{median} {unit}")
        } else {
            format!("{median} {unit} ({least} to {most}, n={n})")
        };
        [self.what.to_owned(), measured, target, met.to_owned()]
    }
}

/// The table, and a last line that says how many targets were missed.
pub fn render(figures: &[Figure]) -> String {
    let head = ["FIGURE", "MEDIAN (SPREAD)", "TARGET", "MET"].map(str::to_owned);
    let rows: Vec<[String; 4]> =
        std::iter::once(head).chain(figures.iter().map(Figure::row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (what, measured, target) = (width(0), width(1), width(2));
    let mut text = String::new();
    for [a, b, c, d] in &rows {
        let line = format!("{a:what$}  {b:measured$}  {c:target$}  {d}");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let judged = figures.iter().filter_map(Figure::met);
    let (met, missed): (Vec<bool>, Vec<bool>) = judged.partition(|met| *met);
    let _ = match missed.len() {
        0 => writeln!(text, "\nall {} targets are met", met.len()),
        some => {
            writeln!(text, "\n{some} of {} targets are MISSED on this machine", some + met.len())
        }
    };
    text
}
