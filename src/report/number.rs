//! Numbers as people read them.

/// `value` with six significant digits and no trailing zeros, as C++ streams, and so Caffe, print by default.
///
/// ```
/// use microbatch::report::six_digits;
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

/// How many times faster, as in `2.07x`.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// A factor that may be missing.
pub(crate) fn times_or_dash(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), times)
}

/// Milliseconds in a table.
pub(crate) fn ms(value: f64) -> String {
    format!("{value:.3}")
}

/// The deviation of `value` from `reference`, as in `+3.1 %`.
pub(crate) fn deviation(value: f64, reference: f64) -> String {
    if reference > 0.0 { format!("{:+.1} %", (value / reference - 1.0) * 100.0) } else { "-".to_owned() }
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
}
