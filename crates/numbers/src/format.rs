//! Numbers for people: three digits, SI prefixes, units of time.

use crate::Spread;

/// Three significant digits and an SI prefix: `1.23 M`.
pub fn si(value: f64) -> String {
    scaled(value, &[(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")])
}

/// How many: `3`, `1.23 M`.
pub fn count(value: u64) -> String {
    if value < 1000 { value.to_string() } else { si(value as f64) }
}

/// A rate: `1.23 M/s`.
pub fn rate(a_second: f64) -> String {
    si(a_second) + "/s"
}

/// A time: `123 ns`, `4.56 µs`, `7.89 ms`, `1.23 s`.
pub fn time(ns: f64) -> String {
    scaled(ns, &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")])
}

/// A time in whole nanoseconds, as [`time`] writes it.
pub fn ns(ns: u64) -> String {
    time(ns as f64)
}

/// A time that somebody chose, without the zeros that say how exactly one was measured: `60 µs`, `1.5 ms`.
pub fn given(ns: u64) -> String {
    let text = time(ns as f64);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// An energy: `12.3 nJ`, `4.56 µJ`.
pub fn joules(value: f64) -> String {
    scaled(value, &[(1.0, " J"), (1e-3, " mJ"), (1e-6, " µJ"), (1e-9, " nJ")])
}

/// In the first of these units, the largest first, of which it is at least one, else in the last. What is infinite or no number
/// has none.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // Rounding must not make 1000 of 999.9.
    let unit = units.iter().find(|(size, _)| value.abs() >= size * 0.9995).or(units.last());
    match unit.filter(|_| value.is_finite()) {
        Some((size, unit)) => format!("{}{unit}", digits(value / size)),
        None => digits(value),
    }
}

/// From this on, a number is shown only as larger: fifteen digits say no more than that.
const HUGE: f64 = 1e15;

/// Three significant digits. No number (as zero by zero) is `-`, as is what is not there.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "-".into(),
        v if v.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.into(),
        0.0 => "0".into(),
        v if v >= 999_500.0 => large(value),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        // Rounded to zero, it has no sign.
        v if v < 0.005 => format!("{v:.2}"),
        _ => format!("{value:.2}"),
    }
}

/// Three digits and zeros: `12,300,000`. Nobody reads exponents.
fn large(value: f64) -> String {
    let (sign, size) = (if value < 0.0 { "-" } else { "" }, value.abs());
    if size >= HUGE {
        return format!("{}10^15", if value < 0.0 { "< -" } else { "> " });
    }
    let unit = 10_f64.powf(size.log10().floor() - 2.0);
    format!("{sign}{}", thousands(((size / unit).round() * unit).round() as u64))
}

/// `1.23 [1.10 .. 1.31]`.
pub fn with_range(spread: &Option<Spread>) -> String {
    spread.map_or("-".into(), |s| {
        format!("{} [{} .. {}]", ratio(s.median), ratio(s.min), ratio(s.max))
    })
}

/// A ratio has two decimals, or more where these would both be zero. Below a ten thousandth it is only said to be smaller.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v.is_nan() || v >= 0.095 => digits(value),
        v if v >= 0.000_05 => format!("{value:.4}"),
        _ if value < 0.0 => "> -0.0001".into(),
        _ => "< 0.0001".into(),
    }
}

/// Three significant digits, of small numbers too: `0.0789`. Below a millionth it is only said to be smaller.
pub fn small(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v.is_nan() || v >= 0.0995 => digits(value),
        v if v >= 1e-6 => {
            let decimals = (2.0 - v.log10().floor()) as usize;
            format!("{value:.decimals$}")
        }
        _ if value < 0.0 => "> -0.000001".into(),
        _ => "< 0.000001".into(),
    }
}

/// A number that is counted, whole: `12,345`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a value with `text`; `-` for none.
pub fn option<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or("-".into(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(si(1234.0), "1.23 k");
        assert_eq!(si(999_900.0), "1.00 M");
        assert_eq!(si(12.34), "12.3");
        assert_eq!([count(3), count(999), count(1234)], ["3", "999", "1.23 k"]);
        assert_eq!(time(123.4), "123 ns");
        assert_eq!(time(14_000.0), "14.0 µs");
        assert_eq!(time(0.0), "0 ns");
        assert_eq!([60_000, 1_500_000, 100, 0].map(given), ["60 µs", "1.5 ms", "100 ns", "0 ns"]);
        assert_eq!([803, 132_095, 164_626_431].map(ns), ["803 ns", "132 µs", "165 ms"]);
        assert_eq!(joules(1.234e-7), "123 nJ");
        assert_eq!(joules(1.234e-5), "12.3 µJ");
        assert_eq!(joules(0.0456), "45.6 mJ");
        assert_eq!(joules(7.0), "7.00 J");
        assert_eq!(rate(1_304_000.0), "1.30 M/s");
        assert_eq!(ratio(0.0123), "0.0123");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn what_is_no_number_or_infinite_has_no_unit() {
        for text in [si, time, joules, digits, ratio] {
            assert_eq!(text(f64::NAN), "-");
            assert_eq!(text(f64::INFINITY), "inf");
            assert_eq!(text(f64::NEG_INFINITY), "-inf");
        }
        assert_eq!(with_range(&Spread::of(&[f64::NAN])), "-");
        assert_eq!(with_range(&Spread::of(&[1.0, f64::INFINITY])), "inf [1.00 .. inf]");
    }

    #[test]
    fn zero_has_no_sign_and_a_difference_has() {
        assert_eq!(
            [si, time, joules, digits, ratio].map(|text| text(-0.0)),
            ["0", "0 ns", "0 nJ", "0", "0"]
        );
        assert_eq!([digits(-0.001), digits(-0.0), digits(-1.234)], ["0.00", "0", "-1.23"]);
        assert_eq!([time(-1500.0), si(-2.5e6), joules(-0.5)], ["-1.50 µs", "-2.50 M", "-500 mJ"]);
    }

    #[test]
    fn the_very_large_and_the_very_small_have_no_exponents() {
        assert_eq!([si(1.5e12), si(1.5e15), si(1.5e18)], ["1.50 T", "1500 T", "1,500,000 T"]);
        assert_eq!([digits(999_499.0), digits(999_500.0)], ["999499", "1,000,000"]);
        assert_eq!([digits(-1_234_567.0), digits(9.99e14)], ["-1,230,000", "999,000,000,000,000"]);
        assert_eq!([digits(1.25e300), digits(-1.25e300)], ["> 10^15", "< -10^15"]);
        assert_eq!([ratio(1e-9), ratio(-1e-9)], ["< 0.0001", "> -0.0001"]);
        assert_eq!([ratio(0.000_05), ratio(0.000_049)], ["0.0001", "< 0.0001"]);
        let small_ones = [0.0789, 0.0042, 4.9e-5, 1e-6, 9e-7, 0.5, 0.0].map(small);
        assert_eq!(
            small_ones,
            ["0.0789", "0.00420", "0.0000490", "0.00000100", "< 0.000001", "0.50", "0"]
        );
    }
}
