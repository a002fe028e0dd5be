//! Label selectors of claims, and node selectors of volumes and pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::object::{Node, items, text};
use crate::meta;

/// The label that a local volume names its node by.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Whether a `metav1.LabelSelector` matches the labels of an object.
pub(crate) fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selects_labels(selector, &|key| labels[key].as_str())
}

/// Whether a `metav1.LabelSelector` matches labels.
pub(crate) fn selects_labels<'a>(
    selector: &Value,
    lookup: &dyn Fn(&str) -> Option<&'a str>,
) -> bool {
    let exactly = selector["matchLabels"].as_object().into_iter().flatten();
    exactly
        .into_iter()
        .all(|(key, value)| lookup(key) == value.as_str())
        && items(&selector["matchExpressions"]).all(|expression| holds(expression, lookup))
}

/// Labels of which an object must have one, for each requirement of a selector that names some.
pub(crate) fn required_labels(selector: &Value) -> impl Iterator<Item = Vec<(String, String)>> {
    let exactly = selector["matchLabels"].as_object().into_iter().flatten();
    let exactly = exactly.map(|(key, value)| vec![(key.clone(), text(value).to_owned())]);
    let one_of = items(&selector["matchExpressions"]).filter(|it| it["operator"] == "In");
    let one_of = one_of.map(|it| {
        let key = text(&it["key"]);
        let values: BTreeSet<_> = items(&it["values"]).map(text).collect();
        let labels = values
            .into_iter()
            .map(|value| (key.to_owned(), value.to_owned()));
        labels.collect()
    });
    exactly.chain(one_of)
}

/// Whether a `core/v1.NodeSelector` matches a node: any of its terms does. No term matches
/// nothing, and neither does an empty one.
pub(crate) fn selects_node(selector: &Value, node: &Node) -> bool {
    let label = |key: &str| node["metadata"]["labels"][key].as_str();
    let field = |key: &str| (key == "metadata.name").then(|| meta::name(node));
    items(&selector["nodeSelectorTerms"]).any(|term| {
        let (labels, fields) = (&term["matchExpressions"], &term["matchFields"]);
        items(labels).chain(items(fields)).next().is_some()
            && items(labels).all(|expression| holds(expression, &label))
            && items(fields).all(|expression| holds(expression, &field))
    })
}

/// The only hostname that the node selector of a volume can match, if it is of that simple kind.
pub(crate) fn only_hostname(selector: &Value) -> Option<&str> {
    let mut terms = items(&selector["nodeSelectorTerms"]);
    let (term, None) = (terms.next()?, terms.next()) else {
        return None;
    };
    items(&term["matchExpressions"]).find_map(|expression| {
        let mut values = items(&expression["values"]);
        let is_hostname = expression["key"] == HOSTNAME && expression["operator"] == "In";
        match (is_hostname, values.next(), values.next()) {
            (true, Some(value), None) => value.as_str(),
            _ => None,
        }
    })
}

/// One requirement. Only `NotIn` and `DoesNotExist` hold for a label that is not there; an
/// operator that is not known never holds.
fn holds<'a>(expression: &Value, lookup: &dyn Fn(&str) -> Option<&'a str>) -> bool {
    let found = lookup(text(&expression["key"]));
    let mut values = items(&expression["values"]).map(text);
    match text(&expression["operator"]) {
        "In" => found.is_some_and(|found| values.any(|value| value == found)),
        "NotIn" => found.is_none_or(|found| values.all(|value| value != found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare(found, values.next()).is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compare(found, values.next()).is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

fn compare(found: Option<&str>, bound: Option<&str>) -> Option<std::cmp::Ordering> {
    let (found, bound): (i64, i64) = (found?.parse().ok()?, bound?.parse().ok()?);
    Some(found.cmp(&bound))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn requirements() {
        let labels = json!({"metadata": {"labels": {"disk": "ssd", "size": "10"}}});
        for (key, operator, values, expected) in [
            ("disk", "In", json!(["hdd", "ssd"]), true),
            ("disk", "In", json!(["hdd"]), false),
            ("other", "In", json!(["ssd"]), false),
            ("disk", "NotIn", json!(["hdd"]), true),
            ("disk", "NotIn", json!(["ssd"]), false),
            ("other", "NotIn", json!(["ssd"]), true),
            ("disk", "Exists", json!(null), true),
            ("other", "Exists", json!(null), false),
            ("other", "DoesNotExist", json!(null), true),
            ("disk", "DoesNotExist", json!(null), false),
            ("size", "Gt", json!(["9"]), true),
            ("size", "Gt", json!(["10"]), false),
            ("size", "Lt", json!(["11"]), true),
            ("disk", "Lt", json!(["11"]), false),
            ("disk", "Resembles", json!(["ssd"]), false),
        ] {
            let selector =
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            assert_eq!(
                selects(&selector, &labels),
                expected,
                "{key} {operator} {values}"
            );
        }
        assert!(
            selects(&json!({}), &labels),
            "an empty selector selects everything"
        );
        assert!(selects(&json!({"matchLabels": {"disk": "ssd"}}), &labels));
        assert!(!selects(
            &json!({"matchLabels": {"disk": "ssd", "size": "11"}}),
            &labels
        ));
    }

    #[test]
    fn node_selectors() {
        let node = Node(Arc::new(
            json!({"metadata": {"name": "n1", "labels": {HOSTNAME: "h1"}}}),
        ));
        let term = |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
        let h1 = term(HOSTNAME, "h1");
        let h2 = term(HOSTNAME, "h2");
        let by_name =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        for (terms, matches, host) in [
            (json!([h1]), true, Some("h1")),
            (json!([h2]), false, Some("h2")),
            (json!([h2, h1]), true, None),
            (json!([]), false, None),
            (json!([{}]), false, None),
            (json!([by_name]), true, None),
            (json!([term("zone", "z")]), false, None),
        ] {
            let selector = json!({"nodeSelectorTerms": terms});
            assert_eq!(selects_node(&selector, &node), matches, "{terms}");
            assert_eq!(only_hostname(&selector), host, "{terms}");
        }
    }
}
