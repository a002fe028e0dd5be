//! How tables put things: ages and access modes.

use jiff::Timestamp;
use serde_json::Value;

/// The time since a timestamp, as `kubectl` shows an age.
pub(super) fn age(timestamp: &Value) -> String {
    match timestamp.as_str().and_then(|t| t.parse::<Timestamp>().ok()) {
        Some(then) => duration(Timestamp::now().as_second() - then.as_second()),
        None => "<unknown>".into(),
    }
}

/// Seconds between two timestamps, for people.
pub(super) fn between(from: &Value, to: &Value) -> Option<String> {
    let seconds = |v: &Value| Some(v.as_str()?.parse::<Timestamp>().ok()?.as_second());
    Some(duration(seconds(to)? - seconds(from)?))
}

/// A duration in at most two units, coarser as it grows.
pub(super) fn duration(seconds: i64) -> String {
    let two = |big: i64, b: &str, small: i64, s: &str| {
        if small == 0 {
            format!("{big}{b}")
        } else {
            format!("{big}{b}{small}{s}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        1..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
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
    let has = |long: &str| {
        modes
            .as_array()
            .is_some_and(|m| m.iter().any(|v| v == long))
    };
    let short: Vec<_> = SHORT
        .iter()
        .filter(|(long, _)| has(long))
        .map(|(_, s)| *s)
        .collect();
    short.join(",")
}

#[test]
fn ages() {
    const DAY: i64 = 86400;
    for (seconds, shown) in [
        (0, "0s"),
        (119, "119s"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (2 * DAY + 3600, "2d1h"),
        (9 * DAY + 3600, "9d"),
        (800 * DAY, "2y70d"),
    ] {
        assert_eq!(duration(seconds), shown);
    }
}
