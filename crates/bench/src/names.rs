//! Names of locks: for a shell's completion (which accepts any text), and for messages about a wrong one.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::spec::{Bad, Why};
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

/// The candidate that a mistyped `word` most probably meant; differences in case don't count.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate)
        })
        .min_by_key(|(distance, _)| *distance)
        // Further away it is another word, not a typing error.
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 3).max(1))
        .map(|(_, candidate)| candidate)
}

/// What to say of a bad lock, and a hint; `names`: those that it may have.
pub fn advice<'a>(bad: &Bad<'_>, names: impl IntoIterator<Item = &'a str>) -> (String, String) {
    let (name, known) = (bad.name, bad.known());
    if bad.why == Why::Name {
        // A name that takes no options may be here, with some.
        let close = nearest(name, names).filter(|close| *close != name);
        let hint = close.map_or("lockwright list".to_owned(), |close| {
            format!("did you mean '{close}'? `lockwright list` shows all")
        });
        return (bad.to_string(), hint);
    }
    let close = nearest(bad.key(), known.iter().map(|option| option.key));
    let meant = match (bad.why, close) {
        (Why::NoOption(_), Some(close)) => format!(", did you mean '{close}'?"),
        _ => String::new(),
    };
    let example = known.iter().find(|option| Some(option.key) == close).or(known.first());
    let hint = match example {
        Some(option) => {
            let value = option.default.unwrap_or(option.max.min(option.min.max(1000)));
            format!("for example '{name}:{}={value}'; lockwright explain {name}", option.key)
        }
        None => format!("'{name}' has no options: use '{name}'"),
    };
    (format!("{bad}{meant}"), hint)
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
    use super::{duration, nearest};

    #[test]
    fn times_have_units() {
        assert_eq!(duration("20us"), Ok(20_000));
        assert_eq!((duration("1.5ms"), duration("0")), (Ok(1_500_000), Ok(0)));
        for bad in ["20", "us", "-1us", "1h", "", "1e99s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nearest_is_a_typing_error_away_or_nothing() {
        let names = ["barging", "fifo", "mcs", "mcs-stp"];
        assert_eq!(nearest("bargin", names), Some("barging"));
        assert_eq!(nearest("ffio", names), Some("fifo"));
        assert_eq!(nearest("mcsstp", names), Some("mcs-stp"));
        assert_eq!(nearest("MCS", names), Some("mcs"));
        assert_eq!(nearest("something", names), None);
    }
}
