//! PromQL, as far as it takes to see which series an expression is about. promtool checks the syntax.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use local_volume_provisioner::metrics::Metrics;
use local_volume_provisioner::node_cleanup::metrics::families::FAMILIES as OF_NODE_CLEANUP;
use regex::Regex;

/// The labels that a series has from where it is scraped.
pub const OF_THE_TARGET: [&str; 4] = ["instance", "job", "node", "pod"];
static GROUPING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:by|without|on)\s*\(([^)]*)\)").unwrap());
static LABEL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(\w+)\s*[=!]~?\s*"([^"]*)""#).unwrap());
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
        let metrics = Metrics::new().unwrap();
        for family in metrics.families().iter().chain(&OF_NODE_CLEANUP) {
            let labels: BTreeSet<_> = family.label_names().into_iter().collect();
            if family.kind.as_str() == "histogram" {
                let mut with_bound = labels.clone();
                with_bound.insert("le");
                known.insert(format!("{}_bucket", family.name), with_bound);
                for part in ["sum", "count"] {
                    known.insert(format!("{}_{part}", family.name), labels.clone());
                }
            } else {
                known.insert(family.name.to_owned(), labels);
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
