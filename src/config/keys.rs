//! The known keys. An unknown key gives a warning with the most similar known one.

use serde_json::{Map, Value};

/// The minimum similarity of a misspelt key to a known one (Jaro-Winkler, 0 to 1).
const MIN_SIMILARITY: f64 = 0.86;

/// The keys of a map, and those of the maps in their lists.
pub(super) struct Keys {
    names: &'static [&'static str],
    below: &'static [(&'static str, &'static Keys)],
}

pub(super) const CONFIG: Keys = Keys {
    names: &[
        "storageClassMap",
        "nodeLabelsForPV",
        "labelsForPV",
        "useAlphaAPI",
        "useJobForCleaning",
        "jobTolerations",
        "minResyncPeriod",
        "useNodeNameOnly",
        "setPVOwnerRef",
        "removeNodeNotReadyTaint",
        "provisionerNotReadyNodeTaintKey",
        "pauseCleaning",
        "protectReleasedData",
        "maxConcurrentCleanups",
        "logLevel",
    ],
    below: &[("jobTolerations", &TOLERATION)],
};

pub(super) const CLASS: Keys = Keys {
    names: &[
        "hostDir",
        "mountDir",
        "cleanMethod",
        "blockCleanerCommand",
        "cleanupTimeout",
        "trim",
        "volumeMode",
        "accessMode",
        "fsType",
        "namePattern",
        "selector",
        "weakIdentity",
        "discoveryPolicy",
        "missingVolumePolicy",
    ],
    below: &[("selector", &TERM)],
};

const TERM: Keys = Keys {
    names: &["matchExpressions", "matchFields"],
    below: &[
        ("matchExpressions", &REQUIREMENT),
        ("matchFields", &REQUIREMENT),
    ],
};

const REQUIREMENT: Keys = Keys {
    names: &["key", "operator", "values"],
    below: &[],
};

const TOLERATION: Keys = Keys {
    names: &["key", "operator", "value", "effect", "tolerationSeconds"],
    below: &[],
};

impl Keys {
    /// The canonical spelling of a key; case is not significant.
    pub(super) fn find(&self, name: &str) -> Option<&'static str> {
        let mut names = self.names.iter().copied();
        names.find(|known| known.eq_ignore_ascii_case(name))
    }

    /// A warning about a key that is not known.
    pub(super) fn unknown(&self, place: &str, name: &str) -> String {
        let lower_case = name.to_ascii_lowercase();
        let similarity =
            |known: &&str| strsim::jaro_winkler(&lower_case, &known.to_ascii_lowercase());
        let known = self.names.iter().copied();
        let nearest = known.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
        let meant = nearest
            .filter(|known| similarity(known) >= MIN_SIMILARITY)
            .map(|known| format!("; the nearest known key is {known}"))
            .unwrap_or_default();
        format!("{place}key {name:?} is unknown and ignored{meant}")
    }

    /// The value with only known keys, in their canonical spelling. An empty value counts as absent, as in the Go
    /// provisioner.
    pub(super) fn canonical(&self, value: Value, place: &str, warnings: &mut Vec<String>) -> Value {
        match value {
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.canonical(item, place, warnings))
                .collect(),
            Value::Object(entries) => self.canonical_map(entries, place, warnings).into(),
            other => other,
        }
    }

    /// [`Self::canonical`] for a map.
    pub(super) fn canonical_map(
        &self,
        entries: Map<String, Value>,
        place: &str,
        warnings: &mut Vec<String>,
    ) -> Map<String, Value> {
        let mut known = Map::new();
        for (name, value) in entries {
            let Some(key) = self.find(&name) else {
                warnings.push(self.unknown(place, &name));
                continue;
            };
            if known.contains_key(key) {
                warnings.push(format!(
                    "{place}key {name:?} is ignored, since {key} is given in another spelling; keep one of them"
                ));
            } else if !value.is_null() && value != "" {
                let below = self.below.iter().find(|(list, _)| *list == key);
                let value = match below {
                    Some((_, keys)) => keys.canonical(value, &format!("{place}{key}: "), warnings),
                    None => value,
                };
                known.insert(key.to_owned(), value);
            }
        }
        known
    }
}
