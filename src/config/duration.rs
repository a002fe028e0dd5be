//! Durations as Go writes them: `5m0s`, `1h30m`, `1.5h`, `300ms`.

use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// What a Go duration can hold: 63 bits of nanoseconds, 292 years.
const MAX_NANOS: u128 = i64::MAX as u128;

/// Longer units first, so that `ms` is not read as `m`.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),  // micro sign
    ("\u{3bc}s", 1_000), // Greek letter mu
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3600 * NANOS_PER_SECOND),
];

/// Why a text is no usable duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationFault {
    /// No text, or a unit without a number.
    #[error("a number is missing")]
    NoNumber,
    /// A number without a unit; only a plain `0` needs none.
    #[error("a number lacks its unit")]
    NoUnit,
    /// A unit that does not exist, such as `d`.
    #[error("it has an unknown unit")]
    UnknownUnit,
    /// Below zero: Go has such durations, but none of our options can use one.
    #[error("it is negative")]
    Negative,
    /// Longer than 292 years.
    #[error("it is too long")]
    TooLong,
}

/// Reads a duration. Parts of a nanosecond are cut off.
///
/// # Errors
/// [`DurationFault`] for everything that Go's `time.ParseDuration` refuses, and for negative ones.
pub fn parse(text: &str) -> Result<Duration, DurationFault> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if unsigned == "0" {
        0
    } else {
        sum_of_terms(unsigned)?
    };
    if negative && nanos > 0 {
        return Err(DurationFault::Negative);
    }
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| DurationFault::TooLong)
}

fn sum_of_terms(mut text: &str) -> Result<u128, DurationFault> {
    let mut total = 0;
    loop {
        let (whole, rest) = split_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(DurationFault::NoNumber);
        }
        let end = rest
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        if unit.is_empty() {
            return Err(DurationFault::NoUnit);
        }
        let (_, nanos) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or(DurationFault::UnknownUnit)?;
        total += scaled(whole, fraction, nanos).ok_or(DurationFault::TooLong)?;
        if total > MAX_NANOS {
            return Err(DurationFault::TooLong);
        }
        if rest.is_empty() {
            return Ok(total);
        }
        text = rest;
    }
}

/// `whole.fraction` times `unit`, or nothing when it is out of range.
fn scaled(whole: &str, fraction: &str, unit: u128) -> Option<u128> {
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // An hour has 13 digits of nanoseconds: what comes after the 18th digit cannot matter.
    let fraction = &fraction[..fraction.len().min(18)];
    let digits = u32::try_from(fraction.len()).ok()?;
    let numerator: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    whole
        .checked_mul(unit)?
        .checked_add(numerator * unit / 10_u128.pow(digits))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

/// Writes a duration as Go prints it: `5m0s`, `1.5s`, `300ms`, `0s`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos < NANOS_PER_SECOND {
        return match nanos {
            0 => "0s".into(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => decimal(nanos, 1_000, "\u{b5}s"),
            _ => decimal(nanos, 1_000_000, "ms"),
        };
    }
    let minutes = nanos / (60 * NANOS_PER_SECOND);
    let seconds = decimal(nanos % (60 * NANOS_PER_SECOND), NANOS_PER_SECOND, "s");
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

fn decimal(nanos: u128, unit: u128, name: &str) -> String {
    let (whole, fraction) = (nanos / unit, nanos % unit);
    if fraction == 0 {
        return format!("{whole}{name}");
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{fraction:0width$}");
    format!("{whole}.{}{name}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text, nanoseconds and the printed form, all taken from Go 1.26.
    #[test]
    fn reads_and_writes_what_go_does() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("-0", 0, "0s"),
            ("+0", 0, "0s"),
            ("5m0s", 300_000_000_000, "5m0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("300ms", 300_000_000, "300ms"),
            ("1us", 1_000, "1µs"),
            ("1\u{b5}s", 1_000, "1µs"),
            ("1\u{3bc}s", 1_000, "1µs"),
            ("1ns", 1, "1ns"),
            (".5s", 500_000_000, "500ms"),
            ("5.s", 5_000_000_000, "5s"),
            ("1h1h", 7_200_000_000_000, "2h0m0s"),
            ("1s1h", 3_601_000_000_000, "1h0m1s"),
            ("+5s", 5_000_000_000, "5s"),
            ("00005s", 5_000_000_000, "5s"),
            ("0.000000001s", 1, "1ns"),
            ("0.0000000001s", 0, "0s"),
            ("1.0000000019s", 1_000_000_001, "1.000000001s"),
            ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
            ("0.9223372036854775808s", 922_337_203, "922.337203ms"),
            (
                "2562047h47m16.854775807s",
                9_223_372_036_854_775_807,
                "2562047h47m16.854775807s",
            ),
        ] {
            // Go computes fractions in floating point, and so reads a third of an hour up.
            let tolerance = u64::from(text.starts_with("0.3333"));
            let read = parse(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
            let off = Duration::from_nanos(nanos).abs_diff(read);
            assert!(
                off <= Duration::from_nanos(tolerance),
                "{text:?} is off by {off:?}"
            );
            assert_eq!(format(Duration::from_nanos(nanos)), printed, "{text:?}");
        }
    }

    #[test]
    fn refuses_what_go_does_and_negative_ones() {
        use DurationFault::{Negative, NoNumber, NoUnit, TooLong, UnknownUnit};
        for (text, fault) in [
            ("", NoNumber),
            ("+", NoNumber),
            (".", NoNumber),
            ("s", NoNumber),
            (".s", NoNumber),
            ("--5s", NoNumber),
            ("٣s", NoNumber),
            (" 5s", NoNumber),
            ("5", NoUnit),
            ("1.5.5s", NoUnit),
            ("1 s", UnknownUnit),
            ("1S", UnknownUnit),
            ("1d", UnknownUnit),
            ("1h-5m", UnknownUnit),
            ("1e3s", UnknownUnit),
            ("5s ", UnknownUnit),
            ("-5s", Negative),
            ("-0.5ms", Negative),
            ("9223372036854775808ns", TooLong),
            ("2562047h47m16.854775808s", TooLong),
            ("3000000h", TooLong),
            ("99999999999999999999ns", TooLong),
            ("999999999999999999999999999999999999999999s", TooLong),
        ] {
            assert_eq!(parse(text), Err(fault), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in 0..=i64::MAX.unsigned_abs()) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in any::<String>(), near in r"[-+.0-9hmsµnu]{0,30}") {
            for text in [text, near] {
                if let Ok(duration) = parse(&text) {
                    prop_assert_eq!(parse(&format(duration)), Ok(duration));
                }
            }
        }
    }
}
