//! Numbers and causes for people: three digits, SI prefixes, units of time.

use crate::stats::Spread;

/// Three significant digits and an SI prefix: `1.23 M`.
pub fn si(value: f64) -> String {
    for (limit, factor, prefix) in [(1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e3, 1e3, " k")] {
        // Rounding must not make 1000 of 999.9.
        if value.abs() >= limit * 0.9995 {
            return format!("{}{prefix}", digits(value / factor));
        }
    }
    digits(value)
}

/// A time: `123 ns`, `4.56 us`, `7.89 ms`, `1.23 s`.
pub fn time(ns: f64) -> String {
    for (limit, factor, unit) in [(1e9, 1e9, "s"), (1e6, 1e6, "ms"), (1e3, 1e3, "us")] {
        if ns >= limit * 0.9995 {
            return format!("{} {unit}", digits(ns / factor));
        }
    }
    format!("{} ns", digits(ns))
}

/// An energy: `12.3 nJ`, `4.56 uJ`.
pub(crate) fn joules(value: f64) -> String {
    for (limit, unit) in [(1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")] {
        if value >= limit * 0.9995 {
            return format!("{} {unit}", digits(value / limit));
        }
    }
    format!("{} nJ", digits(value / 1e-9))
}

/// Three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "inf".into(),
        0.0 => "0".into(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `1.23 [1.10 .. 1.31]`.
pub(crate) fn with_range(spread: &Option<Spread>) -> String {
    spread.map_or("-".into(), |s| {
        format!("{} [{} .. {}]", ratio(s.median), ratio(s.min), ratio(s.max))
    })
}

/// A ratio keeps two decimals, and more where they would all be zero.
pub(crate) fn ratio(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.095 { format!("{value:.4}") } else { digits(value) }
}

/// What `text` makes of a value; `-` for none.
pub(crate) fn option<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or("-".into(), text)
}

/// Columns of a terminal.
pub const WIDTH: usize = 80;

/// Text whose lines are broken between words where they would be longer than a terminal's; what follows is indented.
pub fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for (at, line) in text.lines().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let mut width = 0;
        for (at, word) in line.split(' ').enumerate() {
            let length = word.chars().count();
            if at > 0 && width + 1 + length > WIDTH {
                out.push_str("\n  ");
                width = 2;
            } else if at > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += length;
        }
    }
    out
}

/// `1.2 M` + unit reads `1.2 Mop/s`; a number without prefix keeps a space before its unit.
pub(crate) fn spaced(number: String) -> String {
    if number.ends_with(char::is_alphabetic) { number } else { number + " " }
}

/// The cause of an I/O error without Rust's "(os error 2)".
pub(crate) fn plain(cause: &std::io::Error) -> String {
    let text = cause.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("a short line\nand  another"), "a short line\nand  another");
        let (left, right) = ("x".repeat(60), "y".repeat(25));
        assert_eq!(wrapped(&format!("{left} {right} z")), format!("{left}\n  {right} z"));
        assert_eq!(wrapped(&"w".repeat(99)), "w".repeat(99), "a word stays whole");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(si(1234.0), "1.23 k");
        assert_eq!(si(999_900.0), "1.00 M");
        assert_eq!(si(12.34), "12.3");
        assert_eq!(time(123.4), "123 ns");
        assert_eq!(time(14_000.0), "14.0 us");
        assert_eq!(time(0.0), "0 ns");
        assert_eq!(joules(1.234e-7), "123 nJ");
        assert_eq!(joules(0.0456), "45.6 mJ");
        assert_eq!(joules(7.0), "7.00 J");
        assert_eq!(ratio(0.0123), "0.0123");
        assert_eq!(spaced(si(7.0)) + "op/s", "7.00 op/s");
        assert_eq!(spaced(si(7e6)) + "op/s", "7.00 Mop/s");
    }
}
