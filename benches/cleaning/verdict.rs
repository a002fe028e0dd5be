//! Targets, by the numbers that docs/benchmarks.md explains, and whether they are met.

use super::case::Case;
use super::table::{Spread, columns};

/// A target, and what came out.
#[derive(Clone, Debug)]
pub struct Verdict {
    number: u8,
    what: String,
    measured: Spread,
    unit: &'static str,
    /// The median is no more than this.
    limit: f64,
    /// No value is more than this.
    worst: Option<f64>,
}

impl Verdict {
    /// A method is so many times as fast as another, or slow. Nothing if either was left out.
    pub fn times(number: u8, case: &Case, method: &str, other: &str, limit: f64) -> Option<Self> {
        let times = case.times(method, other)?;
        let what = format!("{method} / {other}");
        Some(Self::new(number, case, &what, times, "x", limit))
    }

    /// A method takes no longer.
    pub fn seconds(number: u8, case: &Case, method: &str, limit: f64) -> Option<Self> {
        let walls = case.costs(method)?.iter().map(|cost| cost.wall);
        Some(Self::new(number, case, method, walls, " s", limit))
    }

    /// One of our methods takes no more memory, in MiB beyond that of the idle process.
    pub fn memory(number: u8, case: &Case, method: &str, limit: f64) -> Option<Self> {
        let memory = case.costs(method)?.iter().filter_map(|cost| cost.memory);
        let what = format!("{method}, memory");
        Some(Self::new(number, case, &what, memory, " MiB", limit))
    }

    /// None of our methods ever takes more memory, in MiB beyond that of the idle process.
    pub fn most_memory(number: u8, case: &Case, limit: f64) -> Option<Self> {
        let most = case.most_memory()?;
        Some(Self::new(number, case, "memory", [most], " MiB", limit))
    }

    /// A method keeps CPUs busy for no more seconds for each GiB.
    pub fn busy(number: u8, case: &Case, method: &str, gib: f64, limit: f64) -> Option<Self> {
        let busy = case.costs(method)?.iter().map(|cost| cost.busy / gib);
        let what = format!("{method}, CPU per GiB");
        Some(Self::new(number, case, &what, busy, " s", limit))
    }

    /// Every value has a limit of its own, beside that of the median.
    pub fn and_worst(mut self, limit: f64) -> Self {
        self.worst = Some(limit);
        self
    }

    fn new(
        number: u8,
        case: &Case,
        what: &str,
        values: impl IntoIterator<Item = f64>,
        unit: &'static str,
        limit: f64,
    ) -> Self {
        Self {
            number,
            what: format!("{}: {what}", case.title),
            measured: Spread::of(values),
            unit,
            limit,
            worst: None,
        }
    }

    fn is_met(&self) -> bool {
        let worst = self.worst.is_none_or(|worst| self.measured.most <= worst);
        self.measured.median <= self.limit && worst
    }

    fn cells(&self) -> Vec<String> {
        let unit = self.unit;
        let target = match self.worst {
            Some(worst) => format!("<= {}{unit}, worst <= {worst}{unit}", self.limit),
            None => format!("<= {}{unit}", self.limit),
        };
        vec![
            self.number.to_string(),
            self.what.clone(),
            format!("{}{unit}", self.measured),
            target,
            if self.is_met() { "yes" } else { "MISSED" }.to_owned(),
        ]
    }
}

/// The table, and a last line that says how many targets were missed.
pub fn render(verdicts: &[Verdict]) -> String {
    let head = ["NO", "FIGURE", "MEDIAN (SPREAD)", "TARGET", "MET"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(verdicts.iter().map(Verdict::cells));
    let missed = verdicts.iter().filter(|verdict| !verdict.is_met()).count();
    let sum = match (missed, verdicts.len()) {
        (0, all) => format!("all {all} targets are met"),
        (missed, all) => format!("{missed} of {all} targets are MISSED on this machine"),
    };
    format!("\n{}\n{sum}\n", columns(&lines))
}
