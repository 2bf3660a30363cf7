//! Numbers for people: three digits, SI prefixes, units of time.

use crate::Spread;

/// Three significant digits and an SI prefix: `1.23 M`.
pub fn si(value: f64) -> String {
    for (limit, factor, prefix) in [(1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e3, 1e3, " k")] {
        // Otherwise 999.9 would be rounded to 1000.
        if value.abs() >= limit * 0.9995 {
            return format!("{}{prefix}", digits(value / factor));
        }
    }
    digits(value)
}

/// So many a second: `1.23 M/s`.
pub fn rate(a_second: f64) -> String {
    si(a_second) + "/s"
}

/// A time: `123 ns`, `4.56 µs`, `7.89 ms`, `1.23 s`.
pub fn time(ns: f64) -> String {
    for (limit, factor, unit) in [(1e9, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "µs")] {
        if ns >= limit * 0.9995 {
            return format!("{} {unit}", digits(ns / factor));
        }
    }
    format!("{} ns", digits(ns))
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
    for (limit, unit) in [(1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ")] {
        if value >= limit * 0.9995 {
            return format!("{} {unit}", digits(value / limit));
        }
    }
    format!("{} nJ", digits(value / 1e-9))
}

/// Three significant digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "inf".into(),
        0.0 => "0".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `1.23 [1.10 .. 1.31]`.
pub fn with_range(spread: &Option<Spread>) -> String {
    spread.map_or("-".into(), |s| {
        format!("{} [{} .. {}]", ratio(s.median), ratio(s.min), ratio(s.max))
    })
}

/// A ratio has two decimals, or more where these would both be zero.
pub fn ratio(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.095 { format!("{value:.4}") } else { digits(value) }
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
}
