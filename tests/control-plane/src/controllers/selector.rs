//! Label selectors of claims, and node selectors of volumes and pods.

use serde_json::Value;

use super::object::{Node, items, text};
use crate::meta;

/// The label that a local volume names its node by.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Whether a `metav1.LabelSelector` matches the labels of an object.
pub(crate) fn selects(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    let mut exactly = selector["matchLabels"].as_object().into_iter().flatten();
    exactly.all(|(key, value)| label(key) == value.as_str())
        && items(&selector["matchExpressions"]).all(|expression| holds(expression, &label))
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
