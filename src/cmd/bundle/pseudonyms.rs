//! Pseudonyms of tenants' names: the same in each file of a bundle. A name is replaced wherever it is a whole word, also
//! as part of a path, since a name that stays by mistake cannot be taken back. Names of their files are left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::cluster::PodView;
use crate::cmd::status::show::text;
use crate::escape::{each_text, without_tenants};

/// The namespaces of Kubernetes itself.
const WELL_KNOWN: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The length of the longest name.
const MAX_NAME: usize = 253;

/// The names so far.
pub(super) struct Pseudonyms {
    of: HashMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
    /// The names that stay: those of the provisioner.
    kept: HashSet<String>,
}

impl Pseudonyms {
    /// Replaces no name but those that are added, and none of those to keep.
    pub fn new<'a>(keep: impl Iterator<Item = &'a str>) -> Self {
        Self {
            of: HashMap::new(),
            counts: BTreeMap::new(),
            kept: keep.chain(WELL_KNOWN).map(str::to_owned).collect(),
        }
    }

    /// Adds the names of the pods of tenants, and of their claims.
    pub fn add_pods(&mut self, pods: &[PodView]) {
        for pod in pods {
            if pod.is_provisioner || pod.job_pv_uid.is_some() {
                continue;
            }
            let (namespace, name) = pod.name.split_once('/').unwrap_or_default();
            self.add("namespace", namespace);
            self.add("pod", name);
            for claim in &pod.claims {
                self.add("claim", claim);
            }
        }
    }

    /// Adds the names of tenants that PVs and events have.
    pub fn add_objects(&mut self, pvs: &[Value], events: &[Value]) {
        let claims = pvs.iter().map(|pv| ("claim", &pv["spec"]["claimRef"]));
        let objects = events.iter().map(|event| &event["involvedObject"]);
        let objects = objects.filter_map(|it| match text(it, "kind") {
            "Pod" => Some(("pod", it)),
            "PersistentVolumeClaim" => Some(("claim", it)),
            _ => None,
        });
        for (kind, object) in claims.chain(objects) {
            self.add("namespace", text(object, "namespace"));
            self.add(kind, text(object, "name"));
        }
        for event in events {
            self.learn(text(event, "message"));
        }
    }

    /// Adds a name. The kind is `namespace`, `claim` or `pod`.
    pub fn add(&mut self, kind: &'static str, name: &str) {
        if name.is_empty() || self.kept.contains(name) || self.of.contains_key(name) {
            return;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        self.of.insert(name.to_owned(), format!("{kind}-{count}"));
    }

    /// Adds the names of claims and pods that a text has: of objects that were deleted, only texts are left.
    pub fn learn(&mut self, text: &str) {
        let lower = text.to_ascii_lowercase();
        for kind in ["claim", "pod", "namespace"] {
            for (at, _) in lower.match_indices(kind) {
                let rest = &text[at + kind.len()..];
                let rest = rest.strip_prefix('s').unwrap_or(rest);
                let names = rest.trim_start_matches([' ', '"', '\\', ':', '=']);
                let is_quoted = rest[..rest.len() - names.len()].ends_with(['"', '=']);
                for name in names.split(", ") {
                    let end = name.find(|it| !is_part(it) && it != '/');
                    let run = name[..end.unwrap_or(name.len())].trim_end_matches('.');
                    match run.split_once('/') {
                        Some((namespace, name)) if !namespace.is_empty() && !name.contains('/') => {
                            self.add("namespace", namespace);
                            self.add(kind, name);
                        }
                        // A word of the sentence, a number and None are no names.
                        None if is_quoted
                            && run.starts_with(|it: char| it.is_ascii_lowercase()) =>
                        {
                            self.add(kind, run);
                        }
                        _ => break,
                    }
                    if end.is_some() {
                        break;
                    }
                }
            }
        }
    }

    /// The text with pseudonyms.
    pub fn replace(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut is_escape = false;
        // A message that was truncated inside the name of a file ends with its line.
        let lines = text.split('\n').map(without_tenants);
        let text = lines.collect::<Vec<_>>().join("\n");
        for piece in text.split_inclusive(|it| !is_part(it)) {
            let run = piece.trim_end_matches(|it| !is_part(it));
            // The letter of an escape such as \n is no part of a name.
            let is_letter = is_escape && !run.is_empty() && !self.of.contains_key(run);
            let (letter, name) = run.split_at(usize::from(is_letter));
            replaced.push_str(letter);
            self.push_run(name, &mut replaced);
            replaced.push_str(&piece[run.len()..]);
            is_escape = piece.ends_with('\\') && !(is_escape && piece.len() == 1);
        }
        replaced
    }

    /// Appends a run of characters of names. Of the names that end at one of its dots, the longest is replaced.
    fn push_run(&self, mut run: &str, replaced: &mut String) {
        while !run.is_empty() {
            let window = &run[..run.len().min(MAX_NAME)];
            let dots = window.match_indices('.').map(|(at, _)| at);
            let mut ends = dots.chain([window.len()]).rev();
            let found = ends.find_map(|end| Some((end, self.of.get(&window[..end])?)));
            let end = run.find('.').map_or(run.len(), |at| at + 1);
            let (end, text) = found.map_or((end, &run[..end]), |(end, text)| (end, text));
            replaced.push_str(text);
            run = &run[end..];
        }
    }

    /// Replaces the names in the strings of a value. Keys stay: they are those of the API, and `data` may be a claim.
    pub fn replace_in(&self, value: &mut Value) {
        each_text(value, &|text| *text = self.replace(text));
    }
}

/// Whether a name of Kubernetes may have the character.
fn is_part(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-' || character == '.'
}

#[cfg(test)]
mod tests;
