//! Kubernetes quantities ("1.5Gi", "500m", "1e3"): parsed exactly, written canonically.

use std::{fmt, str::FromStr};

/// How a quantity is written; it keeps the family that it was given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    BinarySi,
    DecimalSi,
    DecimalExponent,
}

/// An exact amount in units of 10⁻⁹, the finest that Kubernetes keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct ParseQuantityError;

const NANOS: i128 = 1_000_000_000;
/// The largest amount that Kubernetes keeps: larger ones are cut to it.
const MAX: i128 = (i64::MAX as i128) * NANOS;

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10⁻⁹ in steps of a thousand.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// Whole units (bytes, for storage), rounded up.
    pub fn value(&self) -> i128 {
        self.nanos.div_euclid(NANOS) + i128::from(self.nanos.rem_euclid(NANOS) != 0)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let (sign, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (-1, &text[1..]),
            Some(b'+') => (1, &text[1..]),
            _ => (1, text),
        };
        let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = unsigned.split_at(digits.unwrap_or(unsigned.len()));
        let (scale, format) = scale(suffix).ok_or(ParseQuantityError)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(ParseQuantityError);
        }
        let nanos = scaled(whole, fraction, scale).unwrap_or(MAX).min(MAX);
        Ok(Self { nanos: sign * nanos, format })
    }
}

/// A suffix as numerator and denominator over nano-units.
fn scale(suffix: &str) -> Option<((i128, i128), Format)> {
    if let Some(power) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        return Some(((NANOS << (10 * (power + 1)), 1), Format::BinarySi));
    }
    if let Some(power) = DECIMAL.iter().position(|s| *s == suffix) {
        return Some(((1000_i128.pow(u32::try_from(power).ok()?), 1), Format::DecimalSi));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let nanos = exponent.checked_add(9)?;
    let power = 10_i128.checked_pow(nanos.unsigned_abs());
    let scale = if nanos >= 0 { (power.unwrap_or(MAX), 1) } else { (1, power.unwrap_or(MAX)) };
    Some((scale, Format::DecimalExponent))
}

/// `whole.fraction` times the scale, rounded up; `None` if it is too large to matter.
fn scaled(whole: &str, fraction: &str, (times, over): (i128, i128)) -> Option<i128> {
    let fraction = fraction.trim_end_matches('0');
    let digits: String = [whole, fraction].concat();
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let over = over.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let product = mantissa.checked_mul(times)?;
    Some(product / over + i128::from(product % over != 0))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANOS;
        if self.format == Format::BinarySi && !small && self.nanos % NANOS == 0 {
            let mut mantissa = self.nanos / NANOS;
            let mut power = 0;
            while mantissa % 1024 == 0 && power + 1 < BINARY.len() {
                mantissa /= 1024;
                power += 1;
            }
            return write!(f, "{mantissa}{}", BINARY[power]);
        }
        let mut mantissa = self.nanos;
        let mut power = 0;
        while mantissa % 1000 == 0 && power + 1 < DECIMAL.len() {
            mantissa /= 1000;
            power += 1;
        }
        if self.format == Format::DecimalExponent {
            // `power` is below ten, so this cannot wrap.
            let exponent = i32::try_from(power).unwrap_or_default() * 3 - 9;
            return if exponent == 0 {
                write!(f, "{mantissa}")
            } else {
                write!(f, "{mantissa}e{exponent}")
            };
        }
        write!(f, "{mantissa}{}", DECIMAL[power])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_forms() {
        for (given, canonical) in [
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("10Gi", "10Gi"),
            ("1000", "1k"),
            ("0.5", "500m"),
            ("0.5Gi", "512Mi"),
            ("0.5Ki", "512"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("2000m", "2"),
            ("1e3", "1e3"),
            ("1500e0", "1500"),
            ("12e6", "12e6"),
            ("0Gi", "0"),
            ("+5Ti", "5Ti"),
            ("-1Gi", "-1Gi"),
            ("1073741824", "1073741824"),
            ("100G", "100G"),
            (".5Gi", "512Mi"),
            ("5.", "5"),
            ("0.1n", "1n"),
        ] {
            let quantity: Quantity = given.parse().unwrap();
            assert_eq!(quantity.to_string(), canonical, "{given}");
        }
    }

    #[test]
    fn what_is_no_quantity() {
        for text in ["", "Gi", "1GB", "1 Gi", "1.2.3", "--1", "1ki", "e3", "1e", "0x10", "١"] {
            assert_eq!(text.parse::<Quantity>(), Err(ParseQuantityError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn canonical_form_means_the_same(whole in 0_u32.., fraction in 0_u16..1000, suffix in "(n|u|m||k|M|G|Ki|Mi|Gi|Ti|e[0-9])") {
            let quantity: Quantity = format!("{whole}.{fraction:03}{suffix}").parse().unwrap();
            let again: Quantity = quantity.to_string().parse().unwrap();
            prop_assert_eq!(again.nanos, quantity.nanos);
            prop_assert_eq!(again.to_string(), quantity.to_string());
        }
    }
}
