//! The effective values of a configuration, and the changes from one to the next.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::Config;

/// The maximum length of a value in the log.
const MAX_SHOWN: usize = 40;

/// Values as text by key; empty where there is none.
pub type Rows = BTreeMap<String, String>;

/// The keys of a [`Config`] without its classes, or of a [`Class`](super::Class), with the effective values.
#[must_use]
pub fn rows(keys: &impl Serialize) -> Rows {
    let Ok(Value::Object(values)) = serde_json::to_value(keys) else {
        return Rows::new();
    };
    values
        .into_iter()
        .map(|(key, value)| (key, text(value)))
        .collect()
}

fn text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Array(items) if items.is_empty() => String::new(),
        Value::Object(labels) => {
            let label = |(name, value)| format!("{name}={}", text(value));
            labels.into_iter().map(label).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// One text for each change: `class "fast" added`, `pauseCleaning false -> true`. Empty if the two are equal.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let names: BTreeSet<_> = old.classes.keys().chain(new.classes.keys()).collect();
    let classes =
        names.into_iter().filter_map(
            |name| match (old.classes.get(name), new.classes.get(name)) {
                (None, _) => Some(format!("class {name:?} added")),
                (_, None) => Some(format!("class {name:?} removed")),
                (Some(before), Some(after)) if before == after => None,
                (Some(before), Some(after)) => {
                    let (before, after) = (rows(&**before), rows(&**after));
                    let keys = changed(&before, &after).into_iter();
                    let keys: Vec<_> = keys.map(|(key, ..)| key).collect();
                    Some(format!("class {name:?} changed ({})", keys.join(", ")))
                }
            },
        );
    let (before, after) = (rows(old), rows(new));
    let keys = changed(&before, &after)
        .into_iter()
        .map(|(key, before, after)| match (shown(before), shown(after)) {
            (Some(before), Some(after)) => format!("{key} {before} -> {after}"),
            _ => format!("{key} changed"),
        });
    classes.chain(keys).collect()
}

/// The keys whose values differ, with both.
fn changed<'a>(old: &'a Rows, new: &'a Rows) -> Vec<(&'a str, &'a str, &'a str)> {
    let value = |rows: &'a Rows, key| rows.get(key).map_or("", String::as_str);
    let keys: BTreeSet<&str> = old.keys().chain(new.keys()).map(String::as_str).collect();
    keys.into_iter()
        .map(|key| (key, value(old, key), value(new, key)))
        .filter(|(_, before, after)| before != after)
        .collect()
}

fn shown(value: &str) -> Option<&str> {
    match value {
        "" => Some("none"),
        value => (value.len() <= MAX_SHOWN).then_some(value),
    }
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
        let long = "{operator: Exists, key: one-key-that-is-long}";
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
                r#"class "a" changed (blockCleanerCommand, cleanMethod, fsType)"#,
            ),
            (
                map(&class("cleanMethod: zero")),
                map(A),
                r#"class "a" changed (blockCleanerCommand, cleanMethod)"#,
            ),
            (
                map(&class("trim: true")),
                map(&class("trim: no, namePattern: x*")),
                r#"class "a" changed (namePattern, trim)"#,
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
                "labelsForPV none -> tier=fast",
            ),
            (
                key("jobTolerations", &format!("[{long}]")),
                vec![],
                "jobTolerations changed",
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
