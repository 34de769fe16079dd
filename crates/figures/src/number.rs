//! Numbers as people read them.

use planner::Bytes;

/// `value` with six significant digits and no trailing zeros, as C++ streams, and so Caffe, print by default.
///
/// ```
/// use figures::six_digits;
/// assert_eq!(["1.5", "123.457", "1e-06"], [1.5, 123.45678, 1e-6].map(six_digits).each_ref().map(String::as_str));
/// ```
pub fn six_digits(value: f64) -> String {
    // Formatted in scientific notation first, as rounding may raise the exponent.
    let scientific = format!("{value:.5e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent @ -4..=5) => trim(&format!("{value:.*}", (5 - exponent) as usize)).to_owned(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
        }
        Err(_) => scientific,
    }
}

/// Without zeros behind the point that say nothing.
fn trim(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// How many times faster, as in `2.07x`; `-` if that is unknown.
pub fn times(ratio: impl Into<Option<f64>>) -> String {
    or_dash(ratio.into(), |ratio| format!("{ratio:.2}x"))
}

/// Milliseconds in a table; `-` if they are unknown.
pub fn ms(value: impl Into<Option<f64>>) -> String {
    or_dash(value.into(), |value| format!("{value:.3}"))
}

/// A size in a table; `-` if there is none.
pub(crate) fn bytes(value: Bytes) -> String {
    or_dash(Some(value).filter(|&value| value > Bytes::ZERO), |value| value.to_string())
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// So many of them, as in `1 kernel`.
pub fn counted(count: usize, what: &str) -> String {
    let s = if what.ends_with('s') { "es" } else { "s" };
    format!("{count} {what}{}", if count == 1 { "" } else { s })
}

/// A part of a whole, as in `3.1 %`.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// The deviation of `value` from `reference`, as in `+3.1 %`.
pub fn deviation(value: f64, reference: f64) -> String {
    or_dash((reference > 0.0).then(|| (value / reference - 1.0) * 1000.0), |tenths| {
        // What is rounded to 0 is no loss.
        format!("{:+.1} %", tenths.round() / 10.0 + 0.0)
    })
}

/// What more workspace would save, with three digits that count: at most so much, or about, of a total that WD divides,
/// as between two points of its curve there may be faster divisions, and none.
pub fn price(ms_per_mib: f64, of_total: bool) -> String {
    let how = if of_total { "about" } else { "at most" };
    match ms_per_mib {
        price if price <= 0.0 => "more workspace would save nothing".to_owned(),
        price if price < 0.001 => format!("one more MiB would save {how} {price:.1e} ms"),
        price => format!("one more MiB would save {how} {price:.3} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_those_of_a_cpp_stream() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (6.907_755_3, "6.90776"),
            (0.012_345_678, "0.0123457"),
            (0.000_012_345_678, "1.23457e-05"),
            (999_999.4, "999999"),
            (999_999.6, "1e+06"),
            (-1234.5678, "-1234.57"),
            (12_000_000.0, "1.2e+07"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(six_digits(value), expected);
        }
    }

    #[test]
    fn deviations_carry_their_sign() {
        assert_eq!(deviation(103.1, 100.0), "+3.1 %");
        assert_eq!(deviation(50.0, 100.0), "-50.0 %");
        assert_eq!(deviation(1.0, 0.0), "-");
    }

    #[test]
    fn what_is_unknown_is_a_dash() {
        assert_eq!([times(2.066), times(None), ms(0.5), ms(None)], ["2.07x", "-", "0.500", "-"]);
    }
}
