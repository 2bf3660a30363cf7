//! Names of locks for a shell's completion, where any text is taken.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use lockwright_locks::catalog::CATALOG;
use std::ffi::OsStr;

/// Takes any text on the command line; the names are for the shell's completion.
#[derive(Clone)]
pub struct Names(pub fn() -> Vec<String>);

/// What `--lock` of the bench understands.
pub(crate) const LOCKS: Names = Names(|| {
    let preloaded = CATALOG.iter().map(|entry| entry.id.to_owned());
    let in_process = CATALOG.iter().map(|entry| format!("in:{}", entry.id));
    let others = ["glibc", "parking_lot", "std", "all"].map(str::to_owned);
    preloaded.chain(in_process).chain(others).collect()
});

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// A time on the command line: `20us`, `1.5ms`, `500ns`, `1s`; 0 is 0. In nanoseconds.
pub(crate) fn duration(text: &str) -> Result<u64, String> {
    let bad = || "a time is a number and its unit, as in 20us".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let value: f64 = digits.parse().map_err(|_| bad())?;
    let unit = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if value == 0.0 => 1.0,
        _ => return Err(bad()),
    };
    let ns = value * unit;
    if (0.0..=1e12).contains(&ns) { Ok(ns.round() as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("20us"), Ok(20_000));
        assert_eq!((duration("1.5ms"), duration("0")), (Ok(1_500_000), Ok(0)));
        for bad in ["20", "us", "-1us", "1h", "", "1e99s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
