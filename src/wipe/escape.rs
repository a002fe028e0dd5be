//! Escapes the names of a tenant's files for messages: a name may contain line breaks and terminal escape
//! sequences.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

/// The longest path that is shown completely. A path may have megabytes, and an event message is limited to
/// one kilobyte.
const MAX_SHOWN_BYTES: usize = 512;

/// Joins the components of a path below a volume's root, and escapes it.
pub fn shown<'a>(components: impl IntoIterator<Item = &'a CStr>) -> String {
    let mut path = Vec::new();
    for component in components {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component.to_bytes());
    }
    escaped(if path.is_empty() { b"." } else { &path })
}

/// A path for messages: quoted, with escapes for unprintable characters, and without the end of a very long path.
#[expect(
    clippy::unnecessary_debug_formatting,
    reason = "Debug quotes and escapes"
)]
pub fn escaped(path: &[u8]) -> String {
    let (start, rest) = path.split_at(path.len().min(MAX_SHOWN_BYTES));
    let quoted = format!("{:?}", OsStr::from_bytes(start));
    match rest.len() {
        0 => quoted,
        more => format!("{quoted}… ({more} more bytes)"),
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
            assert_eq!(super::shown(components.iter().copied()), shown);
        }
    }

    #[test]
    fn very_long_path_is_truncated() {
        let shown = escaped(&b"a".repeat(2000));
        assert!(shown.starts_with("\"aaa"), "{shown}");
        assert!(shown.ends_with("a\"… (1488 more bytes)"), "{shown}");
        assert!(shown.len() < MAX_SHOWN_BYTES + 50, "{shown}");
    }
}
