//! Names of a tenant's files in messages. They are bytes, and nobody who reads a log may be fooled
//! by them: no line breaks, no terminal commands.

use std::ffi::CStr;
use std::fmt::{self, Write};

/// The longest path that a message carries whole. Ten thousand nested directories make a path of
/// megabytes, and an event holds one kilobyte.
const LONGEST: usize = 512;

/// A path below a volume's root, as it is shown to people: quoted, what is not printable escaped,
/// the middle left out when it is very long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPath(String);

impl ShownPath {
    /// Joins components that were read from directories.
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

    /// Takes a path as it is.
    #[must_use]
    pub fn from_bytes(path: &[u8]) -> Self {
        let mut shown = String::from("\"");
        if path.len() <= LONGEST {
            escape(path, &mut shown);
        } else {
            escape(&path[..LONGEST / 2], &mut shown);
            // Writing to a String cannot fail.
            let _ = write!(shown, "…({} bytes)…", path.len() - LONGEST);
            escape(&path[path.len() - LONGEST / 2..], &mut shown);
        }
        shown.push('"');
        Self(shown)
    }
}

impl fmt::Display for ShownPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn escape(bytes: &[u8], shown: &mut String) {
    for chunk in bytes.utf8_chunks() {
        shown.extend(chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_without_harm() {
        for (components, shown) in [
            (&[][..], "\".\""),
            (&[c"a", c"b c"], "\"a/b c\""),
            (&[c"Grüße"], "\"Grüße\""),
            (&[c"a\nb"], "\"a\\nb\""),
            (&[c"\x1b[2J"], "\"\\u{1b}[2J\""),
            (&[c"\xff\xfe!"], "\"\\xff\\xfe!\""),
            (&[c"\""], "\"\\\"\""),
        ] {
            assert_eq!(
                ShownPath::new(components.iter().copied()).to_string(),
                shown
            );
        }
    }

    #[test]
    fn a_very_long_path_keeps_its_ends() {
        let shown = ShownPath::from_bytes(&[b"a".repeat(2000), b"z".repeat(2000)].concat());
        let shown = shown.to_string();
        assert!(
            shown.starts_with("\"aaa") && shown.ends_with("zzz\""),
            "{shown}"
        );
        assert!(shown.contains("…(3488 bytes)…") && shown.len() < LONGEST + 50);
    }
}
