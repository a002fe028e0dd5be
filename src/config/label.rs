//! Kubernetes' rules for names of labels, values of labels, and names of objects.

/// A label's or taint's name: an optional DNS prefix with a slash, then at most 63 characters.
pub(super) fn is_label_name(text: &str) -> bool {
    let name = match text.split_once('/') {
        Some((prefix, _)) if !is_dns_subdomain(prefix) => return false,
        Some((_, name)) => name,
        None => text,
    };
    !name.is_empty() && is_label_value(name)
}

/// A label's value: empty, or at most 63 characters with a letter or digit at both ends.
pub(super) fn is_label_value(text: &str) -> bool {
    let inside = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    text.len() <= 63 && text.bytes().all(inside) && has_ends(text, |c| c.is_ascii_alphanumeric())
}

/// The name of most objects: DNS-1123, at most 253 characters.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|c| alphanumeric(c) || c == b'-')
                && has_ends(label, alphanumeric)
        })
}

/// Whether the first and the last byte, if any, satisfy `wanted`.
fn has_ends(text: &str, wanted: impl Fn(u8) -> bool) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.into_iter().flatten().all(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let long = "a".repeat(63);
        let too_long = "a".repeat(64);
        for (text, name, value, subdomain) in [
            ("a", true, true, true),
            ("", false, true, false),
            ("A_b.c-1", true, true, false),
            ("-a", false, false, false),
            ("a-", false, false, false),
            ("a.b", true, true, true),
            ("a..b", true, true, false),
            ("a.-b", true, true, false),
            ("fast disks", false, false, false),
            ("é", false, false, false),
            ("example.com/a", true, false, false),
            ("example.com/", false, false, false),
            ("Example.com/a", false, false, false),
            ("/a", false, false, false),
            ("a/b/c", false, false, false),
            (&long, true, true, true),
            (&too_long, false, false, true),
        ] {
            assert_eq!(is_label_name(text), name, "name {text:?}");
            assert_eq!(is_label_value(text), value, "value {text:?}");
            assert_eq!(is_dns_subdomain(text), subdomain, "subdomain {text:?}");
        }
        assert!(is_dns_subdomain(&"a".repeat(253)));
        assert!(!is_dns_subdomain(&"a".repeat(254)));
    }
}
