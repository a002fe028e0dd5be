//! What differs from run to run is replaced by a word: times, UIDs, versions, addresses, random names.

use std::sync::LazyLock;

use regex::Regex;

/// In this order: what is found first is no number for a later one.
static WORDS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let words = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (
            r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}",
            "TIME",
        ),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"https?://(\d+\.){3}\d+(:\d+)?", "SERVER"),
        (r"\b(\d+\.){3}\d+\b", "ADDRESS"),
        (r"[0-9a-f]{64}", "HASH"),
        // kubectl's own log, of watches that were short.
        (r"(?m)^[IWE]\d{4} \d\d:.*\n", ""),
        (r#"resourceVersion: "\d+""#, r#"resourceVersion: "VERSION""#),
        (
            r#"resourceVersion":\s*"\d+""#,
            r#"resourceVersion":"VERSION""#,
        ),
        // As Kubernetes writes durations; "x2" of an event that came again tells how slow a machine is.
        (
            r"\b(\d+y)?(\d+d)?(\d+h)?(\d+m)?(\d+s)\b|\b(\d+y)?(\d+d)?(\d+h)?\d+m\b",
            "AGE",
        ),
        (r"AGE \(x\d+ over AGE\)", "AGE"),
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-RANDOM"),
        // Columns are as wide as what was there.
        (r"(\S)[ \t]{2,}", "$1  "),
        (r"(?m)[ \t]+$", ""),
    ];
    let compiled = words.map(|(pattern, word)| (Regex::new(pattern).unwrap(), word));
    compiled.into()
});

/// `text` without what differs; `names` are the run's own ones, and what stands for them.
pub fn normal(text: &str, names: [(&str, &str); 2]) -> String {
    let mut text = text.to_owned();
    for (name, word) in names {
        text = text.replace(name, word);
    }
    for (pattern, word) in &*WORDS {
        text = pattern.replace_all(&text, *word).into_owned();
    }
    text
}

#[test]
fn what_differs_from_run_to_run() {
    for (text, expected) in [
        ("pv1   1Gi   3m12s", "pv1  1Gi  AGE"),
        ("at 2026-01-02T03:04:05.678901Z", "at TIME"),
        ("Created: Sat, 21 Nov 2026 15:00:00 +0000", "Created: TIME"),
        (
            "Normal  Bound  3s (x2 over 5s)  who",
            "Normal  Bound  AGE  who",
        ),
        ("pod/j-4xk7w created on n1", "pod/j-RANDOM created on NODE"),
        ("1500m of 1536Mi", "AGE of 1536Mi"),
    ] {
        assert_eq!(normal(text, [("n1", "NODE"), ("/tmp/x", "DIR")]), expected);
    }
}
