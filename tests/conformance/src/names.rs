//! The names of a scenario, in the cluster and back.
//!
//! Many scenarios run at a time, so each has a namespace and a prefix of its own. What is recorded
//! must not show them, nor anything else that differs from run to run.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

#[derive(Debug)]
pub struct Names {
    /// Its namespace, and the prefix of all names that are the whole cluster's.
    pub scope: String,
    kept: BTreeMap<String, String>,
    uids: BTreeMap<String, String>,
}

impl Names {
    pub fn new(scope: String) -> Self {
        let (kept, uids) = Default::default();
        Self { scope, kept, uids }
    }

    /// The scope that something of a cluster belongs to, if it belongs to a scenario: the first two
    /// words of its namespace or name.
    pub fn scope_of(name: &str) -> Option<&str> {
        let first = name.find('-')?;
        let second = name[first + 1..].find('-');
        Some(second.map_or(name, |second| &name[..first + 1 + second]))
    }

    /// Remembers a value for `${variable}`.
    pub fn keep(&mut self, variable: String, value: String) {
        self.kept.insert(variable, value);
    }

    /// Records the object of a UID. The second object of a name differs from the first.
    pub fn know(&mut self, uid: &str, whose: &str) {
        if uid.is_empty() || self.uids.contains_key(uid) {
            return;
        }
        let called = format!("uid of {whose}");
        let earlier = self.uids.values().filter(|other| {
            let after = other.strip_prefix(&called);
            after.is_some_and(|after| after.is_empty() || after.starts_with(", "))
        });
        let called = match earlier.count() {
            0 => called,
            earlier => format!("{called}, number {}", earlier + 1),
        };
        self.uids.insert(uid.to_owned(), called);
    }

    /// A template with everything put in.
    pub fn fill(&self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            filled += before;
            let Some((name, after)) = after.split_once('}') else {
                filled += "${";
                rest = after;
                continue;
            };
            match self.kept.get(name) {
                _ if name == "ns" => filled += &self.scope,
                Some(value) => filled += value,
                None => filled.extend([&self.scope, "-", name]),
            }
            rest = after;
        }
        filled + rest
    }

    /// [`Names::fill`] in all keys and strings.
    pub fn fill_all(&self, value: &Value) -> Value {
        map_strings(value, &|text| self.fill(text))
    }

    /// As it is recorded: without anything of this run.
    pub fn strip_all(&self, value: &Value) -> Value {
        map_strings(value, &|text| self.strip(text))
    }

    fn strip(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (uid, whose) in &self.uids {
            text = text.replace(uid, whose);
        }
        for (variable, value) in &self.kept {
            // A short one could be anything.
            if value.len() >= 4 && !self.uids.contains_key(value) {
                text = text.replace(value, &format!("${{{variable}}}"));
            }
        }
        text = text.replace(&format!("{}-", self.scope), "");
        text = text.replace(&self.scope, "NS");
        if is_time(&text) {
            "a time".into()
        } else if is_uid(&text) {
            "a uid".into()
        } else {
            text
        }
    }
}

/// `2026-01-31T10:00:00Z`, with or without fractions.
fn is_time(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() >= 20 && b[4] == b'-' && b[10] == b'T' && b[13] == b':' && text.ends_with('Z')
}

fn is_uid(text: &str) -> bool {
    let hex = |c: char| c.is_ascii_hexdigit() || c == '-';
    text.len() == 36 && text.chars().all(hex) && text.matches('-').count() == 4
}

fn map_strings(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(items) => items.iter().map(|item| map_strings(item, change)).collect(),
        Value::Object(fields) => {
            let mut sorted = BTreeMap::new();
            for (key, value) in fields {
                sorted.insert(change(key), map_strings(value, change));
            }
            Value::Object(sorted.into_iter().collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
