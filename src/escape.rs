//! Escapes what tenants choose, such as the names of their files, for messages.
//!
//! A name may contain line breaks and terminal escape sequences. [`tenants`] also encloses it in quotation marks that no
//! other text has: logs, events and terminals show it, and [`without_tenants`] removes it from answers that require no
//! authentication.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

/// The longest path that is shown completely. A path may have megabytes, and an event message is limited to
/// one kilobyte.
const MAX_SHOWN_BYTES: usize = 512;

const OPEN: &str = "“";
const CLOSE: &str = "”";

/// Joins the components of a path below a volume's root, and encloses it.
pub fn shown<'a>(components: impl IntoIterator<Item = &'a CStr>) -> String {
    let mut path = Vec::new();
    for component in components {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component.to_bytes());
        if path.len() > MAX_SHOWN_BYTES {
            break;
        }
    }
    match &path[..] {
        [] => tenants(b"."),
        path => tenants_path(path),
    }
}

/// A tenant's path, without the end of a very long one.
pub fn tenants_path(path: &[u8]) -> String {
    match path.split_at_checked(MAX_SHOWN_BYTES) {
        Some((start, [_, ..])) => tenants(start) + "…",
        _ => tenants(path),
    }
}

/// A tenant's text: enclosed, with escapes for unprintable characters.
pub fn tenants(text: &[u8]) -> String {
    let quoted = quoted(text);
    let inner = quoted[1..quoted.len() - 1].replace(OPEN, "\\u{201c}").replace(CLOSE, "\\u{201d}");
    format!("{OPEN}{inner}{CLOSE}")
}

/// A path that no tenant has chosen: quoted, with escapes for unprintable characters.
#[expect(clippy::unnecessary_debug_formatting, reason = "Debug quotes and escapes")]
pub fn quoted(path: &[u8]) -> String {
    format!("{:?}", OsStr::from_bytes(path))
}

/// The message without what [`tenants`] has enclosed.
pub fn without_tenants(message: &str) -> String {
    // Without its end, the message was truncated inside the enclosed text.
    shortened(message, OPEN, |part| part.find(CLOSE).map_or(CLOSE, |end| &part[end..]))
}

/// The text with an ellipsis after each of these starts, and the rest of what follows it.
fn shortened(text: &str, start: &str, rest: impl Fn(&str) -> &str) -> String {
    let mut parts = text.split(start);
    let public = parts.next().unwrap_or_default().to_owned();
    parts.fold(public, |public, part| public + start + "…" + rest(part))
}

/// The text without the UUIDs of filesystems, partitions, RAIDs and mapped devices in identities.
pub fn without_uuids(text: &str) -> String {
    let is_value = |it: char| it.is_ascii_alphanumeric() || "-:_.".contains(it);
    // In the identity of what lies on a device, that of the device is escaped.
    let keys =
        ["uuid", "dm", "md"].map(|key| ["=", "%3D", "%253D"].map(|sign| format!("{key}{sign}")));
    keys.as_flattened().iter().fold(text.to_owned(), |text, key| {
        shortened(&text, key, |part| part.trim_start_matches(is_value))
    })
}

/// Changes all texts of a value but its keys.
pub fn each_text(value: &mut Value, change: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|it| each_text(it, change)),
        Value::Object(fields) => fields.values_mut().for_each(|it| each_text(it, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::iter;

    use super::*;

    #[test]
    fn uuids_are_left_out() {
        let found =
            "v1:fs=ext4,root=/,uuid=0a1b-2c; v1:on=dm%3DLVM-a%2C,partuuid=9f,start=7 v1:md=a:b:c";
        let public = "v1:fs=ext4,root=/,uuid=…; v1:on=dm%3D…%2C,partuuid=…,start=7 v1:md=…";
        assert_eq!(without_uuids(found), public);
        assert_eq!(without_uuids("none"), "none");
    }

    #[test]
    fn unprintable_characters_are_escaped() {
        for (components, shown) in [
            (&[][..], "“.”"),
            (&[c"a", c"b c"], "“a/b c”"),
            (&[c"Grüße"], "“Grüße”"),
            (&[c"a\nb"], "“a\\nb”"),
            (&[c"\x1b[2J"], "“\\u{1b}[2J”"),
            (&[c"\xff\xfe!"], "“\\xFF\\xFE!”"),
            (&[c"\""], "“\\\"”"),
            (&[c"”“"], "“\\u{201d}\\u{201c}”"),
        ] {
            assert_eq!(super::shown(components.iter().copied()), shown);
        }
    }

    #[test]
    fn very_long_path_is_truncated() {
        let name = CString::new("a".repeat(250)).unwrap();
        let deep = shown(iter::repeat_n(name.as_c_str(), 1000));
        for shown in [tenants_path(&b"a".repeat(2000)), deep] {
            assert!(shown.starts_with("“aaa") && shown.ends_with("a”…"), "{shown}");
            assert!(shown.len() < MAX_SHOWN_BYTES + 50, "{shown}");
        }
    }

    #[test]
    fn answers_without_authentication_have_no_text_of_tenants() {
        let [secret, forged] = [&b"secret"[..], "a” secret “b".as_bytes()].map(tenants);
        for (message, public) in [
            ("class \"fast\": no disk".to_owned(), "class \"fast\": no disk"),
            (format!("cannot remove {secret}: no"), "cannot remove “…”: no"),
            (format!("{forged} and {secret}"), "“…” and “…”"),
            (forged[..forged.len() - 5].to_owned(), "“…”"),
        ] {
            assert_eq!(without_tenants(&message), public);
        }
    }
}
