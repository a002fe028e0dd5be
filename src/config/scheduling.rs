//! Validates node selector terms, tolerations and labels. Without this, an error would appear only when the API server
//! refuses each PV of the class.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::label::{is_label_name, is_label_value};

const NAME_REMEDY: &str = "use at most 63 letters, digits, \"-\", \"_\" and \".\", with a letter or \
     digit at both ends; a DNS name and \"/\" may come first";
const VALUE_REMEDY: &str =
    "use at most 63 letters, digits, \"-\", \"_\" and \".\", with a letter or digit at both ends";

fn check_name(name: &str) -> Result<(), String> {
    is_label_name(name)
        .then_some(())
        .ok_or_else(|| format!("{name:?} is not a valid label name; {NAME_REMEDY}"))
}

/// The name of a label or taint.
pub(super) fn label_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    check_name(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Names of labels.
pub(super) fn label_names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let checked = names.iter().try_for_each(|name| check_name(name));
    checked.map(|()| names).map_err(D::Error::custom)
}

/// Labels by name; null is an empty value.
pub(super) fn labels<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let mut labels = BTreeMap::new();
    for (name, value) in BTreeMap::<String, Option<String>>::deserialize(from)? {
        let value = value.unwrap_or_default();
        check_name(&name).map_err(D::Error::custom)?;
        if !is_label_value(&value) {
            return Err(D::Error::custom(format!(
                "{name}: {value:?} is not a valid label value; {VALUE_REMEDY}"
            )));
        }
        labels.insert(name, value);
    }
    Ok(labels)
}

/// The terms of a class's `selector`.
pub(super) fn selector<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<NodeSelectorTerm>, D::Error> {
    let terms = Vec::<NodeSelectorTerm>::deserialize(from)?;
    for term in &terms {
        let lists = [&term.match_expressions, &term.match_fields];
        for requirement in lists.into_iter().flatten().flatten() {
            check_requirement(requirement).map_err(D::Error::custom)?;
        }
    }
    Ok(terms)
}

fn check_requirement(requirement: &NodeSelectorRequirement) -> Result<(), String> {
    check_name(&requirement.key).map_err(|why| format!("key {why}"))?;
    let operator = requirement.operator.as_str();
    let (required, allowed) = match operator {
        "In" | "NotIn" => ("at least one value", 1..=usize::MAX),
        "Exists" | "DoesNotExist" => ("no values", 0..=0),
        "Gt" | "Lt" => ("one value", 1..=1),
        _ => {
            return Err(format!(
                "operator {operator:?} is unknown; write In, NotIn, Exists, DoesNotExist, Gt or Lt"
            ));
        }
    };
    let found = requirement.values.as_ref().map_or(0, Vec::len);
    allowed
        .contains(&found)
        .then_some(())
        .ok_or_else(|| format!("operator {operator} requires {required}, and {found} are given"))
}

/// The keys of one of `jobTolerations`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a map")]
struct TolerationKeys {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
    toleration_seconds: Option<String>,
}

/// `jobTolerations`.
pub(super) fn tolerations<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Toleration>, D::Error> {
    let items = Vec::<TolerationKeys>::deserialize(from)?;
    items
        .into_iter()
        .map(|keys| toleration(keys).map_err(D::Error::custom))
        .collect()
}

fn toleration(keys: TolerationKeys) -> Result<Toleration, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (key, effect) = (given(keys.key), given(keys.effect));
    if let Some(key) = &key {
        check_name(key).map_err(|why| format!("key {why}"))?;
    }
    check_word("operator", keys.operator.as_ref(), &["Exists", "Equal"])?;
    check_word("effect", effect.as_ref(), &EFFECTS)?;
    let seconds = keys.toleration_seconds.map(|text| text.trim().parse());
    let toleration_seconds = seconds.transpose().map_err(
        |_| "tolerationSeconds is not a whole number of seconds; write one, such as 300",
    )?;
    Ok(Toleration {
        key,
        operator: keys.operator,
        value: keys.value,
        effect,
        toleration_seconds,
    })
}

fn check_word(key: &str, word: Option<&String>, known: &[&str]) -> Result<(), String> {
    match word {
        Some(word) if !known.contains(&word.as_str()) => {
            let known = known.join(", ");
            Err(format!("{key} {word:?} is unknown; write one of {known}"))
        }
        _ => Ok(()),
    }
}
