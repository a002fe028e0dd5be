//! PromQL, as far as it takes to see which series an expression is about. promtool checks the syntax.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

/// All metrics with their types and labels: a unit test compares the page with what is registered.
const PAGE: &str = include_str!("../../docs/metrics.md");
/// The labels that a series has from where it is scraped.
pub const OF_THE_TARGET: [&str; 4] = ["instance", "job", "node", "pod"];
static GROUPING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:by|without|on)\s*\(([^)]*)\)").unwrap());
static LABEL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(\w+)\s*[=!]~?\s*"([^"]*)""#).unwrap());
static ON_PAGE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^(?:\| )?`(\w+)`(?:: | \| )(counter|gauge|histogram)").unwrap()
});
static LABEL_ON_PAGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^- `(\w+)`:").unwrap());
// A function has a parenthesis behind its name, a variable of Grafana a dollar before it.
static METRIC: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\w$])(\w+_\w+|up)\b(\{[^}]*\}|\()?").unwrap());

/// Each metric with the labels and values that are asked of it.
pub fn selectors(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let ungrouped = GROUPING.replace_all(expression, "");
    METRIC
        .captures_iter(&ungrouped)
        .filter(|found| found.get(2).is_none_or(|next| next.as_str() != "("))
        .map(|found| {
            let asked = found.get(2).map_or("", |labels| labels.as_str());
            let asked = LABEL.captures_iter(asked);
            let asked = asked.map(|found| (found[1].to_owned(), found[2].to_owned()));
            (found[1].to_owned(), asked.collect())
        })
        .collect()
}

/// What can be scraped: each series with its labels.
#[derive(Debug)]
pub struct Known(BTreeMap<String, BTreeSet<&'static str>>);

impl Known {
    /// All that the program has, and what Prometheus adds.
    pub fn new() -> Self {
        let mut known = BTreeMap::from([("up".to_owned(), BTreeSet::new())]);
        for section in PAGE.split("\n##") {
            let labels = LABEL_ON_PAGE.captures_iter(section);
            let labels: BTreeSet<_> = labels.map(|it| it.extract::<1>().1[0]).collect();
            for (_, [name, kind]) in ON_PAGE.captures_iter(section).map(|it| it.extract()) {
                if kind == "histogram" {
                    let with_bound = labels.iter().copied().chain(["le"]).collect();
                    known.insert(format!("{name}_bucket"), with_bound);
                    for part in ["sum", "count"] {
                        known.insert(format!("{name}_{part}"), labels.clone());
                    }
                } else {
                    known.insert(name.to_owned(), labels.clone());
                }
            }
        }
        Self(known)
    }

    /// Asserts that the metrics and labels of an expression exist. Returns all labels of its series.
    pub fn assert_mentions(&self, expression: &str) -> BTreeSet<&'static str> {
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "no metric in {expression}");
        let mut all = BTreeSet::from(OF_THE_TARGET);
        for (metric, labels) in &selectors {
            let known = self.0.get(metric);
            let known = known.unwrap_or_else(|| panic!("no metric {metric}, for {expression}"));
            for (label, _) in labels {
                assert!(
                    known.contains(label.as_str()) || OF_THE_TARGET.contains(&label.as_str()),
                    "{metric} has no label {label}, for {expression}"
                );
            }
            all.extend(known);
        }
        for grouping in GROUPING.captures_iter(expression) {
            for label in grouping[1].split(", ") {
                assert!(all.contains(label), "no label {label} in {expression}");
            }
        }
        all
    }
}
