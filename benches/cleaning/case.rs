//! Methods that take turns at the same work.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;

use super::cost::Cost;
use super::digits::short;
use super::method::Method;
use super::table::{Spread, columns};

/// What is cleaned: a tree, or a device.
pub trait Subject {
    /// Fills it again; returns the path to clean.
    fn fill(&mut self) -> Result<PathBuf>;

    /// Waits until what a method did is on the disk. It belongs to the method's time.
    fn settle(&self) -> Result<()>;

    /// Looks whether the method did what it promises: else its time means nothing.
    fn check(&self, method: &Method) -> Result<()>;
}

/// What all methods took for the same work.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the work is.
    pub title: String,
    rows: Vec<Row>,
}

/// What a method took, in each round.
#[derive(Clone, Debug)]
struct Row {
    method: &'static str,
    costs: Vec<Cost>,
}

impl Case {
    /// Lets all methods clean `subject`, by turns, and shows what they took. In each round another
    /// one is the first.
    pub fn measure(
        title: String,
        rounds: usize,
        mut subject: impl Subject,
        mut methods: Vec<Method>,
    ) -> Result<Self> {
        eprintln!("measuring {title} ...");
        methods.retain(Method::is_there);
        let row = |method: &Method| Row { method: method.name, costs: Vec::new() };
        let mut rows: Vec<Row> = methods.iter().map(row).collect();
        for round in 0..rounds {
            for turn in 0..methods.len() {
                let index = (round + turn) % methods.len();
                let method = &methods[index];
                let target = subject.fill()?;
                let cost = Cost::of(method, &target, || subject.settle())?;
                if cost.problem.is_none() {
                    subject.check(method)?;
                }
                rows[index].costs.push(cost);
            }
        }
        let case = Self { title, rows };
        print!("{}", case.render());
        Ok(case)
    }

    /// What a method took; nothing if it was left out.
    pub fn costs(&self, method: &str) -> Option<&[Cost]> {
        let row = self.rows.iter().find(|row| row.method == method)?;
        Some(&row.costs)
    }

    /// The most memory that one of our own methods took in any round, in MiB.
    pub fn most_memory(&self) -> Option<f64> {
        let costs = self.rows.iter().flat_map(|row| &row.costs);
        costs.filter_map(|cost| cost.memory).reduce(f64::max)
    }

    /// How many times as long as another a method took, in each round. Nothing if the other one did not finish.
    pub fn times(&self, method: &str, other: &str) -> Option<Vec<f64>> {
        let other = self.costs(other)?;
        if other.iter().any(|cost| cost.problem.is_some()) {
            return None;
        }
        let rounds = self.costs(method)?.iter().zip(other);
        Some(rounds.map(|(one, other)| one.wall / other.wall).collect())
    }

    fn render(&self) -> String {
        // All are compared with the first.
        let Some(base) = self.rows.first().map(|row| row.method) else {
            return String::new();
        };
        let head = ["METHOD", "SECONDS", "TIMES THE FIRST", "CPU", "BUSY", "MIB"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(|row| row.cells(self.times(row.method, base))));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}\n{}", self.title, columns(&lines));
        text
    }
}

impl Row {
    fn cells(&self, times: Option<Vec<f64>>) -> Vec<String> {
        let spread = |value: fn(&Cost) -> f64| Spread::of(self.costs.iter().map(value));
        let problem = self.costs.iter().find_map(|cost| cost.problem.clone());
        let times = times.filter(|_| problem.is_none());
        let means = self.costs.iter().find_map(|cost| cost.means.as_deref());
        let memory: Option<Vec<f64>> = self.costs.iter().map(|cost| cost.memory).collect();
        vec![
            match means {
                Some(means) => format!("{} ({means})", self.method),
                None => self.method.to_owned(),
            },
            problem.unwrap_or_else(|| spread(|cost| cost.wall).to_string()),
            times.map_or_else(String::new, |times| Spread::of(times).to_string()),
            short(spread(|cost| cost.cpu).median),
            short(spread(|cost| cost.busy).median),
            memory.map_or_else(String::new, |memory| short(Spread::of(memory).most)),
        ]
    }
}
