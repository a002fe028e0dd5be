//! Reading a YAML map key by key, collecting everything that is wrong on the way.

use std::num::NonZero;
use std::time::Duration;

use super::fault::{Fault, Problem, Warning};
use super::raw::Node;
use super::{duration, label};

/// Longer values are cut in messages.
const MAX_SHOWN: usize = 80;
/// How alike a misspelt word and the one that was meant are, at least (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.86;

/// All that was found wrong so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Warning>,
}

impl Report {
    /// Notes what is wrong with the value at `place`.
    pub(super) fn fault(&mut self, place: &Place, node: &Node, problem: Problem) {
        let mut value = node.to_string();
        if let Some((end, _)) = value.char_indices().nth(MAX_SHOWN) {
            value.truncate(end);
            value.push('…');
        }
        let Place { class, key } = place.clone();
        let remedy = problem.remedy();
        self.faults.push(Fault {
            class,
            key,
            value,
            problem,
            remedy,
        });
    }

    /// The result, or nothing and a fault.
    pub(super) fn check<T>(
        &mut self,
        place: &Place,
        node: &Node,
        result: Result<T, Problem>,
    ) -> Option<T> {
        result
            .map_err(|problem| self.fault(place, node, problem))
            .ok()
    }
}

/// Where a value stands: the class, if any, and the way from there.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    class: Option<String>,
    key: String,
}

impl Place {
    pub(super) fn class(name: &str) -> Self {
        Self {
            class: Some(name.into()),
            key: String::new(),
        }
    }

    pub(super) fn key(&self, name: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self {
            class: self.class.clone(),
            key: format!("{}{dot}{name}", self.key),
        }
    }

    pub(super) fn item(&self, index: usize) -> Self {
        Self {
            class: self.class.clone(),
            key: format!("{}[{index}]", self.key),
        }
    }

    /// An entry whose name may have dots and slashes itself.
    pub(super) fn entry(&self, name: &str) -> Self {
        Self {
            class: self.class.clone(),
            key: format!("{}[{name:?}]", self.key),
        }
    }
}

/// A map with known keys, matched without regard to case. `null` counts as not given.
pub(super) struct Section<'r> {
    place: Place,
    entries: Vec<(String, Node)>,
    known: Vec<&'static str>,
    pub(super) report: &'r mut Report,
}

impl<'r> Section<'r> {
    /// The map at `place`, or nothing and a fault when it is something else.
    pub(super) fn open(place: &Place, node: Node, report: &'r mut Report) -> Option<Self> {
        match node {
            Node::Map(entries) => Some(Self {
                place: place.clone(),
                entries,
                known: Vec::new(),
                report,
            }),
            other => {
                let problem = Problem::Shape {
                    found: other.shape(),
                    wanted: "a map",
                };
                report.fault(place, &other, problem);
                None
            }
        }
    }

    /// Takes the value of a key out.
    pub(super) fn take(&mut self, key: &'static str) -> Option<(Place, Node)> {
        self.known.push(key);
        let mut found = self
            .entries
            .extract_if(.., |(name, _)| name.eq_ignore_ascii_case(key))
            .fuse();
        let (first_name, node) = found.next()?;
        for (name, node) in found {
            self.report.fault(
                &self.place.key(&name),
                &node,
                Problem::Twice(first_name.clone()),
            );
        }
        (node != Node::Null).then(|| (self.place.key(key), node))
    }

    /// The value of a key, `absent` when it is not given, `faulty` when it cannot be used.
    pub(super) fn value_or<T>(
        &mut self,
        key: &'static str,
        absent: T,
        faulty: T,
        read: impl FnOnce(&Node) -> Result<T, Problem>,
    ) -> T {
        match self.take(key) {
            None => absent,
            Some((place, node)) => self
                .report
                .check(&place, &node, read(&node))
                .unwrap_or(faulty),
        }
    }

    /// The value of a key, its type's default when it is not given or cannot be used.
    pub(super) fn value<T: Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Node) -> Result<T, Problem>,
    ) -> T {
        self.value_or(key, T::default(), T::default(), read)
    }

    /// The value of a key that must be there.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Node) -> Result<T, Problem>,
    ) -> Option<T> {
        if let Some((place, node)) = self.take(key) {
            return self.report.check(&place, &node, read(&node));
        }
        self.report
            .fault(&self.place.key(key), &Node::Null, Problem::Missing);
        None
    }

    /// The items of a list that can be used; none when the key is not given.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&Place, Node, &mut Report) -> Option<T>,
    ) -> Vec<T> {
        match self.take(key) {
            None => Vec::new(),
            Some((place, Node::List(items))) => items
                .into_iter()
                .enumerate()
                .filter_map(|(n, node)| read(&place.item(n), node, self.report))
                .collect(),
            Some((place, node)) => {
                let problem = Problem::Shape {
                    found: node.shape(),
                    wanted: "a list",
                };
                self.report.fault(&place, &node, problem);
                Vec::new()
            }
        }
    }

    /// The entries of a map whose keys are the users' own; without the key there are none. Nothing
    /// when it is no map.
    pub(super) fn map(&mut self, key: &'static str) -> Option<(Place, Vec<(String, Node)>)> {
        let Some((place, node)) = self.take(key) else {
            return Some((self.place.key(key), Vec::new()));
        };
        match node {
            Node::Map(entries) => Some((place, entries)),
            node => {
                let problem = Problem::Shape {
                    found: node.shape(),
                    wanted: "a map",
                };
                self.report.fault(&place, &node, problem);
                None
            }
        }
    }

    /// Warns of every key that nobody took.
    pub(super) fn close(self) {
        for (name, _) in self.entries {
            self.report.warnings.push(Warning::UnknownKey {
                class: self.place.class.clone(),
                key: self.place.key(&name).key,
                meant: nearest(&name, self.known.iter().copied()),
            });
        }
    }
}

/// The word that was probably meant.
fn nearest(word: &str, known: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    known
        .into_iter()
        .map(|known| {
            (
                strsim::jaro_winkler(&word, &known.to_ascii_lowercase()),
                known,
            )
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

/// A single value.
pub(super) fn text(node: &Node) -> Result<&str, Problem> {
    match node {
        Node::Text(text) => Ok(text),
        other => Err(Problem::Shape {
            found: other.shape(),
            wanted: "a single value",
        }),
    }
}

/// A boolean as YAML 1.1 has them, quoted or not, in any case.
pub(super) fn flag(node: &Node) -> Result<bool, Problem> {
    match text(node)?.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" => Ok(false),
        _ => Err(Problem::Boolean),
    }
}

/// A Go duration.
pub(super) fn span(node: &Node) -> Result<Duration, Problem> {
    duration::parse(text(node)?.trim()).map_err(Problem::Duration)
}

/// A number from 1 up.
pub(super) fn count(node: &Node) -> Result<NonZero<u16>, Problem> {
    text(node)?.trim().parse().map_err(|_| Problem::Count)
}

/// One of a few words, spelt exactly so.
pub(super) fn word<T: Copy>(node: &Node, choices: &[(&'static str, T)]) -> Result<T, Problem> {
    let given = text(node)?;
    let chosen = choices
        .iter()
        .find(|(word, _)| *word == given)
        .map(|(_, choice)| *choice);
    chosen.ok_or_else(|| {
        let allowed: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let meant = nearest(given, allowed.iter().copied());
        Problem::Word { allowed, meant }
    })
}

/// The name of a label or taint.
pub(super) fn label_name(node: &Node) -> Result<String, Problem> {
    let text = text(node)?;
    label::is_label_name(text)
        .then(|| text.to_owned())
        .ok_or(Problem::LabelName)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_those_of_yaml_1_1() {
        for (text, expected) in [
            ("true", Ok(true)),
            ("yes", Ok(true)),
            ("on", Ok(true)),
            ("Y", Ok(true)),
            ("TRUE", Ok(true)),
            ("false", Ok(false)),
            ("No", Ok(false)),
            ("off", Ok(false)),
            ("n", Ok(false)),
            ("1", Err(Problem::Boolean)),
            ("", Err(Problem::Boolean)),
            ("tru", Err(Problem::Boolean)),
        ] {
            assert_eq!(flag(&Node::Text(text.into())), expected, "{text:?}");
        }
        assert!(matches!(
            flag(&Node::List(Vec::new())),
            Err(Problem::Shape { .. })
        ));
    }

    #[test]
    fn counts_begin_at_one() {
        for (text, expected) in [("4", Some(4)), ("65535", Some(65535)), ("+1", Some(1))] {
            let read = count(&Node::Text(text.into())).ok().map(NonZero::get);
            assert_eq!(read, expected, "{text:?}");
        }
        for text in ["0", "-1", "65536", "1.5", "four", ""] {
            assert_eq!(
                count(&Node::Text(text.into())),
                Err(Problem::Count),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_misspelt_word_finds_the_one_that_was_meant() {
        const KEYS: [&str; 6] = [
            "hostDir",
            "mountDir",
            "namePattern",
            "volumeMode",
            "blockCleanerCommand",
            "fsType",
        ];
        for (word, meant) in [
            ("hostDri", Some("hostDir")),
            ("hostdirs", Some("hostDir")),
            ("mountDirectory", Some("mountDir")),
            ("namepatern", Some("namePattern")),
            ("blockCleanerComand", Some("blockCleanerCommand")),
            ("blockCleaner", Some("blockCleanerCommand")),
            ("volumeMod", Some("volumeMode")),
            ("fstype2", Some("fsType")),
            ("reclaimPolicy", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, KEYS), meant, "{word:?}");
        }
    }
}
