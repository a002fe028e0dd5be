//! Parses YAML into JSON values in which each scalar is a text, which [`Config`](super::Config) parses.
//!
//! Anchors, aliases, merge keys and implicit types (`yes` is `true`, `1.10` is `1.1`) work as in the Go provisioner. A
//! duplicate key is an error.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_saphyr::{Error, NonFiniteFloatPolicy, Options, UserMessageFormatter};

/// Reads one YAML document; an empty text is null. Labels, which are a map of scalars, keep the texts that were written.
///
/// # Errors
/// The error, with its line and column if they are known, for a text that is not YAML or exceeds the library's budget.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    match read::<BTreeMap<String, Option<String>>>(text) {
        Ok(labels) if !labels.is_empty() => Ok(json!(labels)),
        _ => read(text).map(with_texts),
    }
}

/// Reads the documents of manifests, without those that are null. Their scalars keep their types.
///
/// # Errors
/// The error, with its line and column if they are known.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| message(&error))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| message(&error))
}

fn options() -> Options {
    serde_saphyr::options! {
        // A label may look like a number that a float cannot represent.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

fn message(error: &Error) -> String {
    error.render_with_formatter(&UserMessageFormatter)
}

fn with_texts(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_texts).collect(),
        Value::Object(entries) => {
            entries.into_iter().map(|(key, value)| (key, with_texts(value))).collect()
        }
        Value::Null | Value::String(_) => value,
        scalar => scalar.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_keep_the_text_that_was_written() {
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
            ("!!str 5", "5"),
            ("'null'", "null"),
        ] {
            let yaml = format!("é: {yaml}");
            assert_eq!(parse(&yaml), Ok(json!({ "é": text })), "{yaml:?}");
        }
    }

    #[test]
    fn scalars_are_texts_as_in_the_go_program() {
        for (yaml, text) in [
            ("1.10", "1.1"),
            ("'1.10'", "1.10"),
            ("yes", "true"),
            ("Off", "false"),
            ("5", "5"),
            ("nvme*", "nvme*"),
            ("10s", "10s"),
        ] {
            assert_eq!(parse(yaml), Ok(json!(text)), "{yaml:?}");
        }
    }

    #[test]
    fn nothing_is_null_however_it_is_written() {
        for yaml in ["", "# only a comment\n", "---\n", "~", "null", "Null"] {
            assert_eq!(parse(yaml), Ok(Value::Null), "{yaml:?}");
        }
    }

    #[test]
    fn aliases_and_merge_keys_bring_the_value_along() {
        let alias = parse("a: &x 1.5\nb: *x\n");
        assert_eq!(alias, Ok(json!({ "a": "1.5", "b": "1.5" })));
        let merged = parse("base: &base {k: a, z: 1}\nc:\n  <<: *base\n  z: 7\n").unwrap();
        assert_eq!(merged["c"], json!({ "z": "7", "k": "a" }));
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
            let message = error.strip_suffix(&place).unwrap_or_else(|| panic!("{error}"));
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
