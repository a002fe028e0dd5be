//! YAML as a tree of texts. The only file that knows the YAML library.
//!
//! Types are not guessed here, as YAML would (`1.10` is a number, `yes` a boolean, `0x1F` is 31):
//! whoever wants a boolean reads the text as one, and a label keeps the text that was written.
//! Anchors, aliases and merge keys work, since they do in the Go program's YAML; a key that is
//! given twice is an error.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::localizer::Localizer;
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned, UserMessageFormatter};

/// One value of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Nothing, `~` or `null`: the key counts as not given.
    Null,
    /// A scalar, as written but for quotes and escapes.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the file's order.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// What to call it when something else was expected.
    pub(super) fn shape(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// One line, for messages: `[a, {b: c}]`.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::List(items) => {
                f.write_str("[")?;
                for (n, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (n, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// Text that is no YAML, or more YAML than a configuration can be (see the library's budget).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// Line and column, from 1, where they are known.
    pub(super) at: Option<(u64, u64)>,
    /// What is wrong there, without the place.
    pub(super) message: String,
}

/// Reads one YAML document; an empty text is [`Node::Null`].
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        // Only the text counts: a value is not refused because a float cannot hold it.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let tree: Spanned<Shape> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error
                .location()
                .map(|location| (location.line(), location.column()));
            let message = error
                .without_snippet()
                .render_with_formatter(&UserMessageFormatter.with_localizer(&WithoutPlace));
            SyntaxError { at, message }
        })?;
    Ok(resolve(tree, text))
}

/// Keeps the place out of the library's message: [`SyntaxError::at`] has it as numbers.
struct WithoutPlace;

impl Localizer for WithoutPlace {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        message
    }
}

/// A node as the library hands it out: scalars that it took for anything but a string come as their
/// type, and their text has to be looked up at their place in the source.
enum Shape {
    Null,
    Text(String),
    /// The library's reading of a number or boolean, in case the source text cannot be had.
    Typed(String),
    List(Vec<Spanned<Shape>>),
    Map(Vec<(String, Spanned<Shape>)>),
}

fn resolve(node: Spanned<Shape>, source: &str) -> Node {
    let defined = node.defined;
    match node.value {
        Shape::Null => Node::Null,
        Shape::Text(text) => Node::Text(text),
        Shape::Typed(read) => Node::Text(source_text(defined, source).unwrap_or(read)),
        Shape::List(items) => Node::List(
            items
                .into_iter()
                .map(|item| resolve(item, source))
                .collect(),
        ),
        Shape::Map(entries) => Node::Map(
            entries
                .into_iter()
                .map(|(key, value)| (key, resolve(value, source)))
                .collect(),
        ),
    }
}

/// The plain scalar at this place. Explicit tags (`!!int "5"`) are left to the library.
fn source_text(at: Location, source: &str) -> Option<String> {
    let start = usize::try_from(at.span().byte_offset()?).ok()?;
    let length = usize::try_from(at.span().byte_len()?).ok()?;
    let text = source.get(start..start.checked_add(length)?)?.trim();
    (!text.is_empty() && !text.starts_with(['!', '"', '\'', '&'])).then(|| text.to_owned())
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Typed(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Typed(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Typed(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        Ok(Shape::Typed(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Shape, E> {
        Ok(Shape::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Shape::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Shape::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(entries: &[(&str, Node)]) -> Node {
        Node::Map(
            entries
                .iter()
                .map(|(key, node)| ((*key).into(), node.clone()))
                .collect(),
        )
    }

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
            assert_eq!(parse(yaml), Ok(Node::Text(text.into())), "{yaml:?}");
            let nested = yaml
                .trim_start_matches(['\u{feff}', '-', '\n'])
                .trim_end_matches("...\n");
            let list = parse(&format!("é:\r\n  - {nested}"));
            assert_eq!(
                list,
                Ok(map(&[("é", Node::List(vec![Node::Text(text.into())]))])),
                "{nested:?}"
            );
        }
    }

    #[test]
    fn nothing_is_null_however_it_is_written() {
        for yaml in ["", "# only a comment\n", "---\n", "~", "null", "Null"] {
            assert_eq!(parse(yaml), Ok(Node::Null), "{yaml:?}");
        }
    }

    #[test]
    fn aliases_and_merge_keys_bring_the_text_along() {
        let text = |text: &str| Node::Text(text.into());
        assert_eq!(
            parse("a: &x 1.10\nb: *x\n"),
            Ok(map(&[("a", text("1.10")), ("b", text("1.10"))]))
        );
        let merged = parse("base: &base {k: 007, z: 1}\nc:\n  <<: *base\n  z: 0o7\n").unwrap();
        let Node::Map(entries) = merged else {
            panic!("not a map: {merged}")
        };
        assert_eq!(
            entries[1],
            ("c".into(), map(&[("z", text("0o7")), ("k", text("007"))]))
        );
    }

    #[test]
    fn an_error_has_its_place_and_no_word_about_rust() {
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
            assert_eq!(error.at, Some(at), "{yaml:?}: {}", error.message);
            assert!(error.message.contains(word), "{yaml:?}: {}", error.message);
            for foreign in ["Options", "Policy", "from_str", "line "] {
                assert!(
                    !error.message.contains(foreign),
                    "{yaml:?}: {}",
                    error.message
                );
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
