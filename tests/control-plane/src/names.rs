//! Names made from `metadata.generateName`.

use serde_json::Value;

/// Longest prefix that leaves room for the suffix in a DNS label of 63 characters.
const MAX_PREFIX: usize = 58;
/// No vowels and no look-alikes, so that no word comes out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The prefix, if the object wants its name generated.
pub(crate) fn generated_from(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    let named = metadata["name"].as_str().is_some_and(|n| !n.is_empty());
    metadata["generateName"].as_str().filter(|p| !named && !p.is_empty()).map(str::to_owned)
}

/// `prefix` (cut so that the whole has at most 63 characters) and five random characters.
pub(crate) fn generate(prefix: &str) -> String {
    let prefix: String = prefix.chars().take(MAX_PREFIX).collect();
    let random = fastrand::u128(..);
    let suffix =
        (0..5).map(|i| char::from(ALPHABET[(random >> (i * 16)) as usize % ALPHABET.len()]));
    prefix.chars().chain(suffix).collect()
}
