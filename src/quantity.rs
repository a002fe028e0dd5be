//! Capacity, from bytes to the text of `spec.capacity.storage`.

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Powers of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Powers of 1000.
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Rounds a size down so that disks of one model get one capacity: to whole GiB from 10 GiB on, to
/// whole MiB from 10 MiB on. The Go provisioner rounds the same way.
pub fn round_down(bytes: u64) -> u64 {
    match bytes {
        _ if bytes >= 10 * GIB => bytes / GIB * GIB,
        _ if bytes >= 10 * MIB => bytes / MIB * MIB,
        _ => bytes,
    }
}

/// The canonical binary quantity of a number of bytes: `11Gi`, `5000Ki`, `777`.
pub fn format(bytes: u64) -> String {
    // Ten bits a unit.
    let unit = match bytes {
        0 => 0,
        _ => bytes.trailing_zeros() / 10,
    };
    format!("{}{}", bytes >> (10 * unit), BINARY[unit as usize])
}

/// What a volume of `bytes` is offered as.
pub fn offered(bytes: u64) -> String {
    format(round_down(bytes))
}

/// Reads a whole number of bytes: what [`format()`] writes, and decimal units and exponents, which the
/// API server keeps as they are.
pub fn parse(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let power = |base: u64, units: [&str; 7]| {
        let exponent = units.into_iter().zip(0..).find(|(it, _)| *it == unit)?.1;
        base.checked_pow(exponent)
    };
    let exponent = || unit.strip_prefix(['e', 'E'])?.parse().ok();
    let factor = power(1024, BINARY)
        .or_else(|| power(1000, DECIMAL))
        .or_else(|| 10_u64.checked_pow(exponent()?))?;
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_offered_as_kubernetes_writes_them() {
        for (bytes, text) in [
            (1, "1"),
            (777, "777"),
            (1024, "1Ki"),
            (5000 << 10, "5000Ki"),
            (10 * MIB - 1, "10485759"),
            (10 * MIB + 5, "10Mi"),
            (10 * GIB - 1, "10239Mi"),
            (11 * GIB + 12345, "11Gi"),
            (1024 * GIB, "1Ti"),
        ] {
            assert_eq!(offered(bytes), text);
        }
    }

    #[test]
    fn other_spellings_of_a_size_are_read() {
        for (text, bytes) in [
            ("5G", Some(5_000_000_000)),
            ("12e6", Some(12_000_000)),
            ("12E6", Some(12_000_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("100k", Some(100_000)),
            ("20E", None),
            ("1e20", None),
            ("1e-1", None),
            ("1500m", None),
            ("1.5Gi", None),
            ("-1", None),
            ("Gi", None),
            ("", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }

    proptest! {
        #[test]
        fn rounding_never_promises_more_than_there_is(bytes in 1_u64..) {
            let rounded = round_down(bytes);
            prop_assert!(rounded > 0 && rounded <= bytes);
            prop_assert_eq!(round_down(rounded), rounded);
            prop_assert_eq!(parse(&format(rounded)), Some(rounded));
        }
    }
}
