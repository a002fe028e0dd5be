//! Escapes the names of a tenant's files for messages: a name may contain line breaks and terminal escape
//! sequences.

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The longest path that is shown completely. A path may have megabytes, and an event message is limited to
/// one kilobyte.
const MAX_SHOWN_BYTES: usize = 512;

/// A path below a volume's root for messages: quoted, with escapes for unprintable characters, and without
/// the middle of a very long path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPath(String);

impl ShownPath {
    /// Joins the components of a path.
    pub fn new<'a>(components: impl IntoIterator<Item = &'a CStr>) -> Self {
        let mut path = Vec::new();
        for component in components {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(component.to_bytes());
        }
        Self::from_bytes(if path.is_empty() { b"." } else { &path })
    }

    /// Escapes a path.
    #[must_use]
    #[expect(
        clippy::unnecessary_debug_formatting,
        reason = "Debug quotes and escapes"
    )]
    pub fn from_bytes(path: &[u8]) -> Self {
        let shown = |bytes| format!("{:?}", OsStr::from_bytes(bytes));
        if path.len() <= MAX_SHOWN_BYTES {
            return Self(shown(path));
        }
        let (start, end) = path.split_at(MAX_SHOWN_BYTES / 2);
        let (left_out, end) = end.split_at(end.len() - MAX_SHOWN_BYTES / 2);
        let left_out = left_out.len();
        Self(format!(
            "{}…({left_out} bytes)…{}",
            shown(start),
            shown(end)
        ))
    }
}

impl fmt::Display for ShownPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped() {
        for (components, shown) in [
            (&[][..], "\".\""),
            (&[c"a", c"b c"], "\"a/b c\""),
            (&[c"Grüße"], "\"Grüße\""),
            (&[c"a\nb"], "\"a\\nb\""),
            (&[c"\x1b[2J"], "\"\\u{1b}[2J\""),
            (&[c"\xff\xfe!"], "\"\\xFF\\xFE!\""),
            (&[c"\""], "\"\\\"\""),
        ] {
            assert_eq!(
                ShownPath::new(components.iter().copied()).to_string(),
                shown
            );
        }
    }

    #[test]
    fn very_long_path_keeps_both_ends() {
        let shown = ShownPath::from_bytes(&[b"a".repeat(2000), b"z".repeat(2000)].concat());
        let shown = shown.to_string();
        assert!(
            shown.starts_with("\"aaa") && shown.ends_with("zzz\""),
            "{shown}"
        );
        assert!(shown.contains("…(3488 bytes)…") && shown.len() < MAX_SHOWN_BYTES + 50);
    }
}
