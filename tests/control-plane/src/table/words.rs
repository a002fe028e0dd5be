//! How tables put things: ages and access modes.

use jiff::Timestamp;
use serde_json::Value;

/// The time since a timestamp, as `kubectl` shows an age.
pub(super) fn age(timestamp: &Value) -> String {
    match timestamp.as_str().and_then(|t| t.parse::<Timestamp>().ok()) {
        Some(then) => duration(crate::clock::now().as_second() - then.as_second()),
        None => "<unknown>".into(),
    }
}

/// The time between two timestamps, as kubectl prints it.
pub(super) fn between(from: &Value, to: &Value) -> Option<String> {
    let seconds = |v: &Value| Some(v.as_str()?.parse::<Timestamp>().ok()?.as_second());
    Some(duration(seconds(to)? - seconds(from)?))
}

/// A duration in one unit, coarser as it grows.
fn duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        120..10_800 => format!("{minutes}m"),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{}d", hours / 24),
    }
}

/// Access modes by their abbreviations, each once, in Kubernetes' order.
pub(super) fn access_modes(modes: &Value) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |long: &str| modes.as_array().is_some_and(|m| m.iter().any(|v| v == long));
    let short: Vec<_> = SHORT.iter().filter(|(long, _)| has(long)).map(|(_, s)| *s).collect();
    short.join(",")
}
