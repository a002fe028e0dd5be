//! PromQL, as far as it takes to see which series an expression speaks of. Whether it is well-formed
//! is for promtool to say.

use std::collections::{BTreeMap, BTreeSet};

use local_volume_provisioner::metrics::Metrics;
use local_volume_provisioner::node_cleanup::metrics::families::FAMILIES as OF_NODE_CLEANUP;

/// The labels that a series has from where it is scraped.
pub const OF_THE_TARGET: [&str; 4] = ["instance", "job", "node", "pod"];

/// What an expression speaks of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mentioned {
    /// Each metric with the labels that are asked of it.
    pub selectors: Vec<(String, BTreeMap<String, String>)>,
    /// The labels in `by (...)` and the like.
    pub grouped: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Sign(char),
}

fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_:.$".contains(c);
        let length = if first == '"' {
            let end = rest[1..].find('"').unwrap();
            found.push(Token::Text(&rest[1..=end]));
            end + 2
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            found.push(Token::Word(&rest[..end]));
            end
        } else {
            found.push(Token::Sign(first));
            first.len_utf8()
        };
        rest = rest[length..].trim_start();
    }
    found
}

/// Reads an expression.
pub fn mentioned(expression: &str) -> Mentioned {
    const GROUPING: [&str; 6] = [
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
    ];
    let mut mentioned = Mentioned::default();
    let tokens = tokens(expression);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let Token::Word(word) = token else { continue };
        let until = |end: char| {
            let inner = tokens[at..].iter();
            inner.take_while(move |token| **token != Token::Sign(end))
        };
        let next = tokens.get(at);
        if GROUPING.contains(word) {
            let labels = until(')').filter_map(|token| match token {
                Token::Word(label) => Some((*label).to_owned()),
                _ => None,
            });
            mentioned.grouped.extend(labels);
            at += until(')').count();
        } else if next == Some(&Token::Sign('{')) {
            let inner: Vec<_> = until('}').collect();
            let (mut labels, mut name) = (BTreeMap::new(), "");
            for token in &inner {
                match token {
                    Token::Word(label) => name = label,
                    Token::Text(value) => {
                        labels.insert(name.to_owned(), (*value).to_owned());
                    }
                    Token::Sign(_) => {}
                }
            }
            at += inner.len();
            mentioned.selectors.push(((*word).to_owned(), labels));
        } else if next != Some(&Token::Sign('('))
            && (word.contains('_') || *word == "up")
            && !word.starts_with('$')
        {
            mentioned
                .selectors
                .push(((*word).to_owned(), BTreeMap::new()));
        }
    }
    mentioned
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

    /// Asserts that there is all that an expression speaks of; returns all labels of its series.
    pub fn assert_mentions(&self, expression: &str) -> BTreeSet<&'static str> {
        let mentioned = mentioned(expression);
        assert!(!mentioned.selectors.is_empty(), "nothing in {expression}");
        let mut all = BTreeSet::from(OF_THE_TARGET);
        for (metric, labels) in &mentioned.selectors {
            let known = self.0.get(metric);
            let known = known.unwrap_or_else(|| panic!("no metric {metric}, for {expression}"));
            for label in labels.keys() {
                assert!(
                    known.contains(label.as_str()) || OF_THE_TARGET.contains(&label.as_str()),
                    "{metric} has no label {label}, for {expression}"
                );
            }
            all.extend(known);
        }
        for label in &mentioned.grouped {
            assert!(
                all.contains(label.as_str()),
                "no label {label} in {expression}"
            );
        }
        all
    }
}

#[test]
fn an_expression_is_read() {
    let found = mentioned(
        r#"sum by (le, pv) (rate(a_bucket{x="1, {y}", z=~"$node"}[5m])) > 0 and on (job) up or b_c == 1"#,
    );
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = Mentioned {
        selectors: vec![
            (
                "a_bucket".into(),
                BTreeMap::from([label("x", "1, {y}"), label("z", "$node")]),
            ),
            ("up".into(), BTreeMap::new()),
            ("b_c".into(), BTreeMap::new()),
        ],
        grouped: ["le", "pv", "job"].map(str::to_owned).into(),
    };
    assert_eq!(found, expected);
}

#[test]
#[should_panic(expected = "no metric local_volume_provisioner_redy")]
fn a_metric_that_is_not_there_is_found_out() {
    Known::new().assert_mentions("local_volume_provisioner_redy == 0");
}

#[test]
#[should_panic(expected = "has no label class")]
fn a_label_that_is_not_there_is_found_out() {
    Known::new().assert_mentions("local_volume_provisioner_ready{class=\"a\"} == 0");
}
