//! The names that the API server accepts for labels and objects.

/// Whether these are the key and the value of a label.
pub(super) fn is_label(key: &str, value: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("prefix", key));
    let is_text = |text: &str| text.len() <= 63 && is_name(text, "-_.");
    is_subdomain(prefix) && is_text(name) && (value.is_empty() || is_text(value))
}

/// Whether the text is a valid name of a StorageClass.
pub(super) fn is_subdomain(text: &str) -> bool {
    let is_lower = text == text.to_ascii_lowercase();
    is_lower && text.len() <= 253 && text.split('.').all(|part| is_name(part, "-"))
}

/// Letters, digits and these characters, of which none is at an end.
fn is_name(text: &str, inner: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || inner.contains(it);
    let is_end = |it: char| !inner.contains(it);
    text.chars().all(is_inner) && text.starts_with(is_end) && text.ends_with(is_end)
}
