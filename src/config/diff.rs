//! What has changed from one configuration to the next, for the log.

use super::{Class, Config, Row};

/// Longer values are left out: the log is no place to compare lists in.
const MAX_SHOWN: usize = 40;

/// Each change in a few words: `class "fast" added`, `pauseCleaning false -> true`. Nothing when the
/// two come to the same.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let mut changes = classes(old, new);
    changes.extend(
        changed(&old.rows(), &new.rows()).map(|(key, before, after)| {
            match (shown(before), shown(after)) {
                (Some(before), Some(after)) => format!("{key} {before} -> {after}"),
                _ => format!("{key} changed"),
            }
        }),
    );
    changes
}

fn classes(old: &Config, new: &Config) -> Vec<String> {
    let removed = |name: &&String| !new.classes.contains_key(*name);
    let removed = old.classes.keys().filter(removed);
    let mut changes: Vec<String> = removed
        .map(|name| format!("class {name:?} removed"))
        .collect();
    for (name, class) in &new.classes {
        match old.classes.get(name) {
            None => changes.push(format!("class {name:?} added")),
            Some(before) if before == class => {}
            Some(before) => {
                let keys = keys_changed(before, class).join(", ");
                changes.push(format!("class {name:?} changed ({keys})"));
            }
        }
    }
    changes
}

fn keys_changed(old: &Class, new: &Class) -> Vec<String> {
    let (old, new) = (old.rows(), new.rows());
    changed(&old, &new)
        .map(|(key, ..)| key.to_owned())
        .collect()
}

/// The keys whose values differ, with both. A key that only one of them has comes with the other's
/// place: of `cleanMethod` and `blockCleanerCommand` a class has one.
fn changed<'a>(
    old: &'a [Row],
    new: &'a [Row],
) -> impl Iterator<Item = (&'static str, &'a str, &'a str)> {
    old.iter()
        .zip(new)
        .filter(|(old, new)| old != new)
        .map(|((_, before), (key, after))| (*key, before.as_str(), after.as_str()))
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
    fn what_has_changed_is_said_in_a_few_words() {
        let class = |more: &str| format!("a: {{hostDir: /a, mountDir: /a, {more}}}\n");
        let map = |text: &str| vec![("storageClassMap", text.to_owned())];
        let key = |key: &'static str, text: &str| vec![(key, text.to_owned())];
        let long = "{operator: Exists, key: one-key-that-is-long}";
        for (old, new, said) in [
            (map(A), map(A), ""),
            (map(A), map(&format!("# the same\n{A}")), ""),
            (map(A), map(&format!("{A}{B}")), r#"class "b" added"#),
            (map(&format!("{A}{B}")), map(B), r#"class "a" removed"#),
            (map(A), map(B), r#"class "a" removed, class "b" added"#),
            (map(A), vec![], r#"class "a" removed"#),
            (
                map(A),
                map(&class("cleanMethod: zero, fsType: xfs")),
                r#"class "a" changed (cleanMethod, fsType)"#,
            ),
            (
                map(&class("cleanMethod: zero")),
                map(A),
                r#"class "a" changed (blockCleanerCommand)"#,
            ),
            (
                map(&class("trim: true")),
                map(&class("trim: no, namePattern: x*")),
                r#"class "a" changed (trim, namePattern)"#,
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
            assert_eq!(diff(&old, &new).join(", "), said);
        }
    }
}
