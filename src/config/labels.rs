//! The names that the API server accepts for labels and objects.

/// Whether the text is a valid value of a label.
pub(super) fn is_value(text: &str) -> bool {
    text.is_empty() || text.len() <= 63 && is_name(text, "-_.")
}

/// Whether the text is a valid key of a label, or of a taint.
pub(super) fn is_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').unwrap_or(("prefix", text));
    is_subdomain(prefix) && !name.is_empty() && is_value(name)
}

/// Whether the text is a valid name of a StorageClass.
pub(super) fn is_subdomain(text: &str) -> bool {
    let is_lower = |text: &str| !text.contains(|it: char| it.is_ascii_uppercase());
    text.len() <= 253 && is_lower(text) && text.split('.').all(|part| is_name(part, "-"))
}

/// Letters, digits and these characters, of which none is at an end.
fn is_name(text: &str, inner: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || inner.contains(it);
    let is_end = |it: char| !inner.contains(it);
    text.chars().all(is_inner) && text.starts_with(is_end) && text.ends_with(is_end)
}
