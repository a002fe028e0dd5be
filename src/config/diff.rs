//! The effective values of a configuration, and the changes from one to the next.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::Config;

/// The keys of a [`Config`] without its classes, or of a [`Class`](super::Class), with the effective values as texts;
/// `-` where there is none.
pub fn rows(keys: &impl Serialize) -> BTreeMap<String, String> {
    let text = |value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    match serde_json::to_value(keys) {
        Ok(Value::Object(rows)) => rows.into_iter().map(|(key, it)| (key, text(it))).collect(),
        _ => BTreeMap::new(),
    }
}

/// One text for each change: `class "fast" added`, `pauseCleaning false -> true`. Empty if the two are equal.
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let names: BTreeSet<_> = old.classes.keys().chain(new.classes.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        match (old.classes.get(name), new.classes.get(name)) {
            (None, _) => changes.push(format!("class {name:?} added")),
            (_, None) => changes.push(format!("class {name:?} removed")),
            (Some(old), Some(new)) => {
                let place = format!("class {name:?}: ");
                changes.extend(changed(&place, &**old, &**new));
            }
        }
    }
    changes.extend(changed("", old, new));
    changes
}

/// The keys whose values differ, with both values.
fn changed(place: &str, old: &impl Serialize, new: &impl Serialize) -> Vec<String> {
    let (old, new) = (rows(old), rows(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let values = |key| [&old, &new].map(|rows| rows.get(key).map_or("-", String::as_str));
    keys.into_iter()
        .map(|key| (key, values(key)))
        .filter(|(_, [before, after])| before != after)
        .map(|(key, [before, after])| format!("{place}{key} {before} -> {after}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_files;

    fn config(files: &[(&str, &str)]) -> Config {
        let files = files
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        let loaded = from_files(&files).unwrap();
        assert_eq!(loaded.faults, []);
        loaded.config
    }

    const A: &str = "a: {hostDir: /a, mountDir: /a}\n";
    const B: &str = "b: {hostDir: /b, mountDir: /b}\n";

    #[test]
    fn diff_names_each_change() {
        let class = |more: &str| format!("a: {{hostDir: /a, mountDir: /a, {more}}}\n");
        let map = |text: &str| vec![("storageClassMap", text.to_owned())];
        let key = |key: &'static str, text: &str| vec![(key, text.to_owned())];
        for (old, new, changes) in [
            (map(A), map(A), ""),
            (map(A), map(&format!("# the same\n{A}")), ""),
            (map(A), map(&format!("{A}{B}")), r#"class "b" added"#),
            (map(&format!("{A}{B}")), map(B), r#"class "a" removed"#),
            (map(A), map(B), r#"class "a" removed, class "b" added"#),
            (map(A), vec![], r#"class "a" removed"#),
            (
                map(A),
                map(&class("cleanMethod: zero, fsType: xfs")),
                r#"class "a": blockCleanerCommand ["/scripts/quick_reset.sh"] -> -, class "a": cleanMethod - -> zero, class "a": fsType - -> xfs"#,
            ),
            (
                map(&class("cleanMethod: zero")),
                map(A),
                r#"class "a": blockCleanerCommand - -> ["/scripts/quick_reset.sh"], class "a": cleanMethod zero -> -"#,
            ),
            (
                map(&class("trim: true")),
                map(&class("trim: no, namePattern: x*")),
                r#"class "a": namePattern * -> x*, class "a": trim true -> false"#,
            ),
            (
                vec![],
                key("pauseCleaning", "yes"),
                "pauseCleaning false -> true",
            ),
            (
                key("maxConcurrentCleanups", "2"),
                vec![],
                "maxConcurrentCleanups 2 -> 4",
            ),
            (
                vec![],
                key("labelsForPV", "{tier: fast}"),
                r#"labelsForPV {} -> {"tier":"fast"}"#,
            ),
        ] {
            let [old, new] = [old, new].map(|files| {
                let files: Vec<_> = files
                    .iter()
                    .map(|(key, text)| (*key, text.as_str()))
                    .collect();
                config(&files)
            });
            assert_eq!(diff(&old, &new).join(", "), changes);
        }
    }
}
