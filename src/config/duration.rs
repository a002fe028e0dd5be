//! Durations as Go and Kubernetes write them: `5m0s`, `1h30m`, `1.5h`, `300ms`.

use std::time::Duration;

use jiff::fmt::friendly::{FractionalUnit, Spacing, SpanParser, SpanPrinter};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The maximum of a Go duration: 63 bits of nanoseconds, 292 years.
const MAX_NANOS: u128 = i64::MAX as u128;

/// Parses a duration. Fractions of a nanosecond are truncated.
///
/// # Errors
/// For a number without a unit other than a plain `0`, a unit that is longer than an hour, a negative
/// duration, and one that is longer than a Go duration can be.
pub fn parse(text: &str) -> Result<Duration, String> {
    let with_unit = if text == "0" { "0s" } else { text };
    SpanParser::new()
        .parse_unsigned_duration(with_unit)
        .ok()
        .filter(|duration| duration.as_nanos() <= MAX_NANOS)
        .ok_or_else(|| "not a duration; write positive numbers and units, such as 1h30m".to_owned())
}

/// Writes a duration so that [`parse`] and Go read it: `5m`, `1h30m`, `1.5s`, `0s`.
pub fn format(duration: Duration) -> String {
    SpanPrinter::new()
        .spacing(Spacing::None)
        .fractional(Some(FractionalUnit::Second))
        .unsigned_duration_to_string(&duration)
}

/// [`parse`] without zero, which could mean no limit or no time, and would make a loop busy.
///
/// # Errors
/// Those of [`parse`], and for zero.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it must be more than zero; leave it out for the default".into()),
        duration => Ok(duration),
    }
}

pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
where
    D: Deserializer<'de>,
{
    let duration = parse_positive(String::deserialize(from)?.trim());
    duration.map(Some).map_err(D::Error::custom)
}

#[allow(clippy::ref_option, reason = "the signature that serde requires")]
pub(super) fn serialize<S: Serializer>(limit: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    limit.map(format).serialize(to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("5m0s", 300_000_000_000, "5m"),
            ("1h30m", 5_400_000_000_000, "1h30m"),
            ("1.5h", 5_400_000_000_000, "1h30m"),
            ("90m", 5_400_000_000_000, "1h30m"),
            ("1h0m1s", 3_601_000_000_000, "1h1s"),
            ("300ms", 300_000_000, "0.3s"),
            ("1m0.5s", 60_500_000_000, "1m0.5s"),
            ("1us", 1_000, "0.000001s"),
            ("1\u{b5}s", 1_000, "0.000001s"),
            ("1ns", 1, "0.000000001s"),
            ("2562047h47m16.854775807s", 9_223_372_036_854_775_807, "2562047h47m16.854775807s"),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text:?}");
            assert_eq!(format(Duration::from_nanos(nanos)), printed, "{text:?}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "s",
            "5",
            "1d",
            "-5s",
            "1h-5m",
            "1e3s",
            "five",
            "3000000h",
            "2562047h47m16.854775808s",
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains("such as 1h30m"), "{text:?}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_written_reads_back(
            any in any::<String>(),
            near in r"[-+.0-9hmsµnu]{0,30}",
            nanos in 0..=i64::MAX.unsigned_abs(),
        ) {
            let _ = (parse(&any), parse(&near));
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }
}
