//! The required node affinity of a PV, evaluated as the scheduler does.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity};

use super::{NodeView, PvSpec};
use crate::names::LABEL_HOSTNAME;

/// An affinity that its hostnames do not describe completely.
#[derive(Clone, Debug, PartialEq)]
pub enum Affinity {
    /// None is required.
    AnyNode,
    /// One of these terms must match.
    Terms(Vec<NodeSelectorTerm>),
}

impl Affinity {
    /// Reads an affinity; `None` if each term only lists hostnames.
    pub fn from_api(affinity: Option<&VolumeNodeAffinity>) -> Option<Self> {
        let Some(required) = affinity.and_then(|it| it.required.as_ref()) else {
            return Some(Self::AnyNode);
        };
        let is_plain = |term: &NodeSelectorTerm| {
            term.match_fields.iter().flatten().next().is_none()
                && matches!(term.match_expressions.as_deref(), Some([only]) if is_hosts(only))
        };
        let terms = &required.node_selector_terms;
        (!terms.iter().all(is_plain)).then(|| Self::Terms(terms.clone()))
    }

    /// Whether it allows the Node.
    pub fn allows(&self, node: &NodeView) -> bool {
        match self {
            Self::AnyNode => true,
            Self::Terms(terms) => terms.iter().any(|term| matches(term, node)),
        }
    }
}

impl PvSpec {
    /// The values of a Node label that the affinity allows; none if a term has none. Any node may match such a term, even
    /// one that joins later.
    pub fn nodes_of_terms(&self, label: &str) -> BTreeSet<String> {
        let terms: Vec<_> = self.values_of_terms(label).collect();
        if terms.iter().any(Vec::is_empty) {
            return BTreeSet::new();
        }
        terms.into_iter().flatten().collect()
    }

    /// The values of a Node label that each term of the required affinity allows by `In`. Terms are OR-ed. The other
    /// expressions of a term can only exclude some of its nodes.
    pub(super) fn values_of_terms(&self, label: &str) -> impl Iterator<Item = Vec<String>> {
        let required = self.node_affinity.iter().flat_map(|it| &it.required);
        let terms = required.flat_map(|it| &it.node_selector_terms);
        terms.map(move |term| {
            let expressions = term.match_expressions.iter().flatten();
            expressions
                .filter(|it| it.key == label && it.operator == "In")
                .flat_map(|it| it.values.clone().unwrap_or_default())
                .collect()
        })
    }
}

/// Whether a requirement lists the allowed hostnames.
fn is_hosts(it: &NodeSelectorRequirement) -> bool {
    it.key == LABEL_HOSTNAME && it.operator == "In"
}

/// Whether all requirements of a term hold. A term without any matches no node.
fn matches(term: &NodeSelectorTerm, node: &NodeView) -> bool {
    let labels = term.match_expressions.iter().flatten().map(|it| (it, node.labels.get(&it.key)));
    let fields = term.match_fields.iter().flatten();
    let fields = fields.map(|it| (it, Some(&node.name).filter(|_| it.key == "metadata.name")));
    let mut requirements = labels.chain(fields).peekable();
    requirements.peek().is_some() && requirements.all(|(it, value)| holds(it, value))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let listed = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|it| listed.contains(it));
    let number = |text: &String| text.parse::<i64>().ok();
    let numbers = value.and_then(number).zip(listed.first().and_then(number));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers.is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers.is_some_and(|(value, limit)| value < limit),
        // An operator of a later Kubernetes: the PV may be on any node.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    fn node() -> NodeView {
        let metadata = json!({ "name": "node-1", "uid": "u", "labels": {
            LABEL_HOSTNAME: "host-1", "zone": "a", "disks": "4", "empty": "",
        } });
        NodeView::from_metadata(&serde_json::from_value(metadata).unwrap()).unwrap()
    }

    /// Whether an affinity allows the node; `None` if it only lists hostnames.
    fn allows(affinity: &Value) -> Option<bool> {
        let affinity: Option<VolumeNodeAffinity> = Option::deserialize(affinity).unwrap();
        Affinity::from_api(affinity.as_ref()).map(|it| it.allows(&node()))
    }

    fn terms(terms: &Value) -> Value {
        json!({ "required": { "nodeSelectorTerms": terms } })
    }

    fn is(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "key": key, "operator": operator, "values": values })
    }

    #[test]
    fn each_operator_is_evaluated_on_the_labels() {
        for (key, operator, values, expected) in [
            ("zone", "In", &["b", "a"][..], true),
            ("zone", "In", &["b"], false),
            ("zone", "In", &[], false),
            ("none", "In", &["a"], false),
            ("empty", "In", &[""], true),
            ("zone", "NotIn", &["a"], false),
            ("zone", "NotIn", &["b"], true),
            ("none", "NotIn", &["a"], true),
            ("zone", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("zone", "DoesNotExist", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("disks", "Gt", &["3"], true),
            ("disks", "Gt", &["4"], false),
            ("disks", "Lt", &["5"], true),
            ("disks", "Lt", &["4"], false),
            ("zone", "Gt", &["0"], false),
            ("none", "Lt", &["9"], false),
            ("disks", "Lt", &["many"], false),
            (LABEL_HOSTNAME, "NotIn", &["host-1"], false),
            (LABEL_HOSTNAME, "Exists", &[], true),
            ("zone", "Newer", &["b"], true),
        ] {
            let term = json!([{ "matchExpressions": [is(key, operator, values)] }]);
            let situation = format!("{key} {operator} {values:?}");
            assert_eq!(allows(&terms(&term)), Some(expected), "{situation}");
        }
    }

    #[test]
    fn terms_are_alternatives_of_requirements_that_must_all_hold() {
        let (zone, other) = (is("zone", "In", &["a"]), is("zone", "In", &["b"]));
        let here = is(LABEL_HOSTNAME, "In", &["host-1"]);
        let named = |name| is("metadata.name", "In", &[name]);
        let excluded = is("metadata.name", "NotIn", &["node-1"]);
        for (affinity, expected) in [
            (Value::Null, Some(true)),
            (json!({}), Some(true)),
            (terms(&json!([])), None),
            (terms(&json!([{}])), Some(false)),
            (terms(&json!([{ "matchExpressions": [], "matchFields": [] }])), Some(false)),
            (terms(&json!([{}, { "matchExpressions": [&zone] }])), Some(true)),
            (
                terms(&json!([{ "matchExpressions": [&other] }, { "matchExpressions": [&zone] }])),
                Some(true),
            ),
            (terms(&json!([{ "matchExpressions": [&other, &zone] }])), Some(false)),
            (terms(&json!([{ "matchExpressions": [&here, &zone] }])), Some(true)),
            (terms(&json!([{ "matchExpressions": [&here, &other] }])), Some(false)),
            (terms(&json!([{ "matchFields": [named("node-1")] }])), Some(true)),
            (terms(&json!([{ "matchFields": [named("node-2")] }])), Some(false)),
            (terms(&json!([{ "matchFields": [excluded] }])), Some(false)),
            (terms(&json!([{ "matchFields": [named("host-1")] }])), Some(false)),
            (
                terms(&json!([{ "matchFields": [named("node-1")], "matchExpressions": [&other] }])),
                Some(false),
            ),
            (
                terms(&json!([{ "matchFields": [named("node-1")], "matchExpressions": [&here] }])),
                Some(true),
            ),
            // The hostnames say it all.
            (terms(&json!([{ "matchExpressions": [&here] }])), None),
            (
                terms(&json!([{ "matchExpressions": [&here] }, { "matchExpressions": [&other] }])),
                Some(true),
            ),
        ] {
            assert_eq!(allows(&affinity), expected, "{affinity}");
        }
    }
}
