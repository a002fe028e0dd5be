//! Parses YAML into JSON values in which each scalar is its source text.
//!
//! YAML's implicit types are not applied (`1.10` is a number, `yes` a boolean, `0x1F` is 31): [`Config`](super::Config)
//! parses the text, and a label keeps it. Anchors, aliases and merge keys work as in the Go provisioner. A duplicate
//! key is an error.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned, UserMessageFormatter};

/// Reads one YAML document; an empty text is null.
///
/// # Errors
/// The error, with its line and column if they are known, for a text that is not YAML or exceeds the library's budget.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        // Only the text is used, so a number that a float cannot represent is accepted.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options)
        .map(|tree| with_texts(tree, text))
        .map_err(|error| error.render_with_formatter(&UserMessageFormatter))
}

/// A node as the library parses it. The library types numbers and booleans; their text is looked up in the source.
enum Node {
    Null,
    Text(String),
    /// The library's value, used if the source text is not found.
    Typed(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

fn with_texts(node: Spanned<Node>, source: &str) -> Value {
    let defined = node.defined;
    match node.value {
        Node::Null => Value::Null,
        Node::Text(text) => Value::String(text),
        Node::Typed(read) => Value::String(source_text(defined, source).unwrap_or(read)),
        Node::List(items) => items
            .into_iter()
            .map(|item| with_texts(item, source))
            .collect(),
        Node::Map(entries) => entries
            .into_iter()
            .map(|(key, value)| (key, with_texts(value, source)))
            .collect(),
    }
}

/// The plain scalar at this place; `None` for quotes, anchors and explicit tags (`!!int "5"`).
fn source_text(at: Location, source: &str) -> Option<String> {
    let start = usize::try_from(at.span().byte_offset()?).ok()?;
    let length = usize::try_from(at.span().byte_len()?).ok()?;
    let text = source.get(start..start.checked_add(length)?)?.trim();
    (!text.is_empty() && !text.starts_with(['!', '"', '\'', '&'])).then(|| text.to_owned())
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Typed(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_keep_the_text_that_was_written() {
        for (yaml, text) in [
            ("1.10", "1.10"),
            ("'1.10'", "1.10"),
            ("1.50 # half\n", "1.50"),
            ("&anchor 1.0", "1.0"),
            ("\"a\\tb\"", "a\tb"),
            ("yes", "yes"),
            ("Off", "Off"),
            ("0x1F", "0x1F"),
            ("007", "007"),
            ("0o7", "0o7"),
            ("1_000", "1_000"),
            ("1e999", "1e999"),
            (".nan", ".nan"),
            ("99999999999999999999999999", "99999999999999999999999999"),
            ("2026-01-01", "2026-01-01"),
            ("\u{feff}1.10", "1.10"),
            ("---\n1.10\n...\n", "1.10"),
            ("!!str 5", "5"),
            ("!!int \"5\"", "5"),
            ("!ours 1.10", "1.10"),
            ("'null'", "null"),
        ] {
            assert_eq!(parse(yaml), Ok(json!(text)), "{yaml:?}");
            let nested = yaml
                .trim_start_matches(['\u{feff}', '-', '\n'])
                .trim_end_matches("...\n");
            let list = parse(&format!("é:\r\n  - {nested}"));
            assert_eq!(list, Ok(json!({ "é": [text] })), "{nested:?}");
        }
    }

    #[test]
    fn nothing_is_null_however_it_is_written() {
        for yaml in ["", "# only a comment\n", "---\n", "~", "null", "Null"] {
            assert_eq!(parse(yaml), Ok(Value::Null), "{yaml:?}");
        }
    }

    #[test]
    fn aliases_and_merge_keys_bring_the_text_along() {
        let alias = parse("a: &x 1.10\nb: *x\n");
        assert_eq!(alias, Ok(json!({ "a": "1.10", "b": "1.10" })));
        let merged = parse("base: &base {k: 007, z: 1}\nc:\n  <<: *base\n  z: 0o7\n").unwrap();
        assert_eq!(merged["c"], json!({ "z": "0o7", "k": "007" }));
    }

    #[test]
    fn yaml_error_names_line_and_column_only() {
        for (yaml, at, word) in [
            ("a: 1\nb: 2\na: 3\n", (3, 1), "duplicate mapping key `a`"),
            ("a: [1", (1, 4), "unclosed"),
            ("a:\n\tb: 1", (2, 2), "tab"),
            ("a: *no", (1, 4), "unknown"),
            ("a: &a [*a]", (1, 8), "ecursive"),
            ("<<: 5", (1, 5), "merge"),
            ("a: 1\n---\nb: 2\n", (3, 1), "multiple"),
            ("{{ x }}: y", (1, 1), "expected"),
            ("~: a", (1, 1), "null"),
        ] {
            let error = parse(yaml).unwrap_err();
            let (line, column) = at;
            let place = format!(" at line {line}, column {column}");
            let message = error
                .strip_suffix(&place)
                .unwrap_or_else(|| panic!("{error}"));
            assert!(message.contains(word), "{yaml:?}: {message}");
            for foreign in ["Options", "Policy", "from_str", "line "] {
                assert!(!message.contains(foreign), "{yaml:?}: {message}");
            }
        }
    }

    #[test]
    fn deep_nesting_and_alias_bombs_are_errors() {
        assert!(parse(&"[".repeat(100_000)).is_err());
        let bomb = (1..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
            let last = format!("*a{}, ", n - 1).repeat(9);
            format!("{text}a{n}: &a{n} [{last}]\n")
        });
        assert!(parse(&bomb).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), near in "[-a: \\n{}\\[\\],'\"&*!|>#%?~0-9.<]{0,60}") {
            let _ = parse(&text);
            let _ = parse(&near);
        }
    }
}
