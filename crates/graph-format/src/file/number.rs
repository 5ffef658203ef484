//! Numbers as text: decimal integers, and floats rounded as by the standard library.

/// Largest number of decimal digits that always fit into 64 bits.
const MAX_DIGITS: usize = 19;

/// Parses a non-negative decimal integer; `None` for other text, and for more than [`MAX_DIGITS`] digits.
#[inline]
pub(crate) fn integer(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > MAX_DIGITS {
        return None;
    }
    field.iter().try_fold(0u64, |n, &b| {
        let digit = b.wrapping_sub(b'0');
        (digit < 10).then(|| n * 10 + u64::from(digit))
    })
}

/// Parses a non-negative decimal number without an exponent, as its digits and the number of those behind the point: `12.50`
/// is 1250 and 2. `None` for other text, and for more digits than 64 bits with a sign hold.
pub(crate) fn decimal(field: &[u8]) -> Option<(i64, u8)> {
    let at = field.iter().position(|&byte| byte == b'.');
    let (whole, rest) = at.map_or((field, &[][..]), |at| (&field[..at], &field[at + 1..]));
    if whole.is_empty() || (at.is_some() && rest.is_empty()) {
        return None;
    }
    let digits = whole.iter().chain(rest).try_fold(0_i64, |n, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        n.checked_mul(10)?.checked_add(i64::from(digit))
    });
    Some((digits?, u8::try_from(rest.len()).ok()?))
}

/// Parses a decimal number to the nearest `f32`; `None` for other text. `nan` and `inf` are numbers here.
#[inline]
pub(crate) fn float(field: &[u8]) -> Option<f32> {
    short_decimal(field).or_else(|| std::str::from_utf8(field).ok()?.parse().ok())
}

/// Powers of ten that `f64` holds exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// As [`float`], for numbers that one exact operation gives; `None` leaves the number to the general parser.
///
/// Digits below 2⁵³ and a power of ten up to 10²² are exact in `f64`, so their product or quotient is rounded once
/// (Clinger, "How to Read Floating Point Numbers Accurately", 1990). Rounding it again to `f32` can only be wrong if
/// it lies exactly between two `f32`.
#[inline]
fn short_decimal(field: &[u8]) -> Option<f32> {
    const HALFWAY_BITS: u64 = (1 << 29) - 1;
    let (negative, text) = match field {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, field),
    };
    let (digits, exponent) = digits_and_exponent(text)?;
    let power = POWERS_OF_TEN.get(exponent.unsigned_abs() as usize)?;
    if digits > 1 << 53 {
        return None;
    }
    let value = if exponent < 0 { digits as f64 / power } else { digits as f64 * power };
    if value.to_bits() & HALFWAY_BITS == 1 << 28 {
        return None;
    }
    Some(if negative { -value as f32 } else { value as f32 })
}

/// Parses `12.5e3` as 125 and 2; `None` when it is longer than [`MAX_DIGITS`] or not of this form.
#[inline]
fn digits_and_exponent(text: &[u8]) -> Option<(u64, i32)> {
    let (mut digits, mut n_digits, mut point) = (0u64, 0, None);
    for (at, &byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
            n_digits += 1;
        } else if byte == b'.' && point.is_none() {
            point = Some(n_digits);
        } else if matches!(byte, b'e' | b'E') && n_digits > 0 {
            let exponent = small_exponent(&text[at + 1..])?;
            return (n_digits <= MAX_DIGITS).then(|| (digits, exponent - decimals(n_digits, point)));
        } else {
            return None;
        }
    }
    (1..=MAX_DIGITS).contains(&n_digits).then(|| (digits, -decimals(n_digits, point)))
}

fn decimals(n_digits: usize, point: Option<usize>) -> i32 {
    point.map_or(0, |point| n_digits - point) as i32
}

/// Parses an exponent of at most two digits.
fn small_exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.len() > 2 {
        return None;
    }
    Some(sign * integer(digits)? as i32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn floats_are_those_of_the_standard_library(bits in any::<u32>(), digits in 0..20usize) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            for text in [format!("{value}"), format!("{value:e}"), format!("{value:.digits$}"), format!("{:.digits$}", f64::from(value) * 1.000_000_1)] {
                let expected: f32 = text.parse().unwrap();
                prop_assert_eq!(float(text.as_bytes()).map(f32::to_bits), Some(expected.to_bits()), "{}", text);
            }
        }

        #[test]
        fn decimals_near_the_middle_of_two_floats_round_as_the_standard_library_does(digits in 1u64..1 << 55, exponent in -25i32..25) {
            let middle = f64::from(digits as f32) + f64::from(f32::EPSILON) * digits as f64 / 2.0;
            for text in [format!("{digits}e{exponent}"), format!("{middle}")] {
                let expected: f32 = text.parse().unwrap();
                prop_assert_eq!(float(text.as_bytes()).map(f32::to_bits), Some(expected.to_bits()), "{}", text);
            }
        }

        #[test]
        fn text_is_a_number_where_the_standard_library_says_so(text in "[-+0-9.eEx ]{0,12}") {
            prop_assert_eq!(float(text.as_bytes()), text.parse().ok());
            let is_integer = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            prop_assert_eq!(integer(text.as_bytes()).is_some(), is_integer);
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_none() {
        assert_eq!(integer(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(integer(b"10000000000000000000"), None);
        assert_eq!(integer(b"0x10"), None);
    }
}
