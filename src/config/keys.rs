//! The known keys. An unknown key gives a warning with the most similar known one.

use std::mem;

use serde::Serialize;
use serde_json::{Map, Value};

use super::rows;

/// The minimum similarity of a misspelt key to a known one (Jaro-Winkler, 0 to 1).
const MIN_SIMILARITY: f64 = 0.86;

/// The keys of the terms of a selector, and of their requirements.
const SELECTOR: &str = "matchExpressions matchFields key operator values";
const DEVICES: &str =
    "match exclude minSize maxSize rotational model filesystem mountOptions approve";
const TOLERATION: &str = "key operator value effect tolerationSeconds";

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
            "devices" => DEVICES,
            _ => return None,
        };
        Some(Self(keys.split(' ').map(str::to_owned).collect()))
    }

    /// The canonical spelling of a key; case is not significant.
    pub(super) fn find(&self, name: &str) -> Option<&String> {
        self.0.iter().find(|known| known.eq_ignore_ascii_case(name))
    }

    /// Checks that each key has one spelling. Of several, all but one would be ignored.
    pub(super) fn check_spellings(&self, entries: &Map<String, Value>) -> Result<(), String> {
        for key in &self.0 {
            let mut names = entries.keys().filter(|name| key.eq_ignore_ascii_case(name));
            if let (Some(a), Some(b)) = (names.next(), names.next()) {
                return Err(format!("{key} is set as {a} and as {b}; keep one of them"));
            }
        }
        Ok(())
    }

    /// A message about a key that is not known, and what becomes of it.
    pub(super) fn unknown(&self, place: &str, name: &str, and: &str) -> String {
        let similarity = |known: &&String| strsim::jaro_winkler(name, known);
        let similar = self.0.iter().filter(|it| similarity(it) >= MIN_SIMILARITY);
        let nearest = similar.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
        let meant =
            nearest.map(|known| format!("; the nearest known key is {known}")).unwrap_or_default();
        format!("{place}key {name:?} is unknown{and}{meant}")
    }

    /// The known keys, in their canonical spelling. An empty value counts as absent, as in the Go provisioner.
    pub(super) fn canonical(
        &self,
        entries: Map<String, Value>,
        place: &str,
        warnings: &mut Vec<String>,
    ) -> Map<String, Value> {
        let mut known = Map::new();
        for (name, mut value) in entries {
            match self.find(&name) {
                None => warnings.push(self.unknown(place, &name, " and ignored")),
                Some(_) if value.is_null() || value == "" => {}
                Some(key) => {
                    if let Some(keys) =
                        Self::below(key).filter(|_| value.is_array() || key == "devices")
                    {
                        keys.within(&mut value, &format!("{place}{key}: "), warnings);
                    }
                    known.insert(key.clone(), value);
                }
            }
        }
        known
    }

    /// [`Self::canonical`] for each map in a value.
    fn within(&self, value: &mut Value, place: &str, warnings: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|it| self.within(it, place, warnings)),
            Value::Object(entries) => {
                *entries = self.canonical(mem::take(entries), place, warnings);
                entries.values_mut().for_each(|it| self.within(it, place, warnings));
            }
            _ => {}
        }
    }
}
