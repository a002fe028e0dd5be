//! The known keys. An unknown key gives a warning with the most similar known one.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::rows;

/// The minimum similarity of a misspelt key to a known one (Jaro-Winkler, 0 to 1).
const MIN_SIMILARITY: f64 = 0.86;

/// The keys of the terms of a selector, and of their requirements.
const SELECTOR: [&str; 5] = [
    "matchExpressions",
    "matchFields",
    "key",
    "operator",
    "values",
];
const TOLERATION: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];

/// The known keys of a map.
pub(super) struct Keys(Vec<String>);

impl Keys {
    /// The keys of these effective values, and others.
    pub(super) fn of(values: &impl Serialize, others: &[&str]) -> Self {
        let others = others.iter().copied().map(str::to_owned);
        Self(rows(values).into_keys().chain(others).collect())
    }

    /// The keys below this key.
    pub(super) fn below(key: &str) -> Option<Self> {
        let keys = match key {
            "selector" => SELECTOR,
            "jobTolerations" => TOLERATION,
            _ => return None,
        };
        Some(Self(keys.map(str::to_owned).to_vec()))
    }

    /// The canonical spelling of a key; case is not significant.
    pub(super) fn find(&self, name: &str) -> Option<&String> {
        self.0.iter().find(|known| known.eq_ignore_ascii_case(name))
    }

    /// A warning about a key that is not known.
    pub(super) fn unknown(&self, place: &str, name: &str) -> String {
        let known = self
            .0
            .iter()
            .map(|known| (strsim::jaro_winkler(name, known), known));
        let nearest = known.max_by(|(a, _), (b, _)| a.total_cmp(b));
        let meant = nearest
            .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
            .map(|(_, known)| format!("; the nearest known key is {known}"))
            .unwrap_or_default();
        format!("{place}key {name:?} is unknown and ignored{meant}")
    }

    /// The known keys, in their canonical spelling. An empty value counts as absent, as in the Go provisioner.
    ///
    /// # Errors
    /// For a key in two spellings.
    pub(super) fn canonical(
        &self,
        entries: Map<String, Value>,
        place: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Map<String, Value>, String> {
        let (mut known, mut spellings) = (Map::new(), BTreeMap::new());
        for (name, value) in entries {
            let key = self.find(&name);
            if let Some(key) = key
                && let Some(other) = spellings.insert(key, name.clone())
            {
                return Err(format!(
                    "{key} is set twice, as {other} and as {name}; keep one of them"
                ));
            }
            match key {
                None => warnings.push(self.unknown(place, &name)),
                Some(_) if value.is_null() || value == "" => {}
                Some(key) => {
                    let value = match Self::below(key) {
                        Some(keys) if value.is_array() => {
                            keys.within(value, &format!("{place}{key}: "), warnings)?
                        }
                        _ => value,
                    };
                    known.insert(key.clone(), value);
                }
            }
        }
        Ok(known)
    }

    /// [`Self::canonical`] for each map in a value.
    fn within(
        &self,
        value: Value,
        place: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Value, String> {
        Ok(match value {
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.within(item, place, warnings))
                .collect::<Result<_, _>>()?,
            Value::Object(entries) => self
                .canonical(entries, place, warnings)?
                .into_iter()
                .map(|(key, value)| Ok((key, self.within(value, place, warnings)?)))
                .collect::<Result<_, String>>()?,
            other => other,
        })
    }
}
