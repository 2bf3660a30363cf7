//! Times with their units: `20us`, `1.5ms`, `300ns`, `2s`.

/// Parses a time with its unit, from 1 ns to an hour, as nanoseconds; or says why it can't.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    const HOUR: f64 = 3600e9;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| "not a number with a unit".to_owned())?;
    let factor = match unit.trim_start() {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" => return Err("no unit: ns, us, ms or s".into()),
        other => return Err(format!("unknown unit '{other}': ns, us, ms or s")),
    };
    let ns = (number * factor).round();
    if (1.0..=HOUR).contains(&ns) { Ok(ns as u64) } else { Err("not within 1ns to 3600s".into()) }
}

/// Parses a time as seconds; a number without a unit means seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) => Ok(seconds),
        Err(_) => nanoseconds(text).map(|ns| ns as f64 / 1e9),
    }
}

/// Parses a time as nanoseconds; 0 needs no unit.
pub fn nanoseconds_or_zero(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { nanoseconds(text) }
}

/// Formats a time in one word that [`nanoseconds`] can read: `20us`, `1.5ms`. The conversion is exact.
pub fn word(ns: u64) -> String {
    for (factor, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if ns >= factor {
            return format!("{}{unit}", ns as f64 / factor as f64);
        }
    }
    format!("{ns}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [
            ("300ns", 300),
            ("20us", 20_000),
            ("20 us", 20_000),
            ("20 µs", 20_000),
            ("20µs", 20_000),
            ("1.5ms", 1_500_000),
            (".5us", 500),
            ("2s", 2_000_000_000),
            ("3600s", 3_600_000_000_000),
        ] {
            assert_eq!(nanoseconds(text), Ok(ns), "{text}");
        }
        for bad in
            ["", "20", "us", "-3us", "1e3us", "0us", "0.4ns", "3601s", "2h", "1..2us", "2usx"]
        {
            nanoseconds(bad).unwrap_err();
        }
    }

    #[test]
    fn seconds_may_lack_their_unit_and_so_may_nothing() {
        assert_eq!((seconds("0.4"), seconds("100ms"), seconds("2s")), (Ok(0.4), Ok(0.1), Ok(2.0)));
        assert!(seconds("x").is_err() && seconds("2h").is_err());
        assert_eq!((nanoseconds_or_zero("0"), nanoseconds_or_zero("20us")), (Ok(0), Ok(20_000)));
        assert!(nanoseconds_or_zero("20").is_err());
    }

    #[test]
    fn words_are_read_back() {
        for ns in [1, 999, 1000, 20_000, 61_234, 1_500_000, 999_999_999, 1_000_000_000] {
            assert_eq!(nanoseconds(&word(ns)), Ok(ns));
        }
        assert_eq!(word(1_500_000), "1.5ms");
    }
}
