//! Which lock, with which options: `NAME[:key=value,...]`. Command, bench, simulator and preloaded library all parse it
//! here, so they all agree on what it means.

use crate::catalog::{find, find_any};
use crate::entry::{Entry, OptionSpec};
use crate::rw::{PREFER, Prefer};
use core::fmt;

/// The name of glibc's own algorithm, which is not in the catalogue and has no options.
pub const GLIBC: &str = "glibc";

/// A lock and its options, checked against the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// As it was written.
    pub text: &'a str,
    /// The lock's name.
    pub name: &'a str,
    /// The lock's entry in the catalogue; `None`: [`GLIBC`].
    pub entry: Option<&'static Entry>,
    /// Everything after the colon.
    options: Option<&'a str>,
}

impl<'a> Spec<'a> {
    /// Parses `NAME[:key=value,...]`, for a lock of mutexes.
    #[unsafe(link_section = ".lockwright.begin")]
    pub fn parse(text: &'a str) -> Result<Self, Bad<'a>> {
        Self::parse_by(text, find)
    }

    /// The same, for any lock of the catalogue.
    pub fn parse_any(text: &'a str) -> Result<Self, Bad<'a>> {
        Self::parse_by(text, find_any)
    }

    /// The same, for locks that `find` knows.
    pub fn parse_by(
        text: &'a str,
        find: impl FnOnce(&str) -> Option<&'static Entry>,
    ) -> Result<Self, Bad<'a>> {
        let (name, options) =
            text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
        let bad = |why| Bad { text, name, why };
        let entry = find(name);
        if entry.is_none() && name != GLIBC {
            return Err(bad(Why::Name));
        }
        if options.is_some_and(str::is_empty) {
            return Err(bad(Why::Nothing));
        }
        let spec = Self { text, name, entry, options };
        spec.pieces().try_for_each(|piece| piece.map(drop)).map_err(bad)?;
        Ok(spec)
    }

    /// The options that it was given, in order; if one is given twice, the later one counts.
    pub fn options(&self) -> impl Iterator<Item = (&'static OptionSpec, u32)> + use<'a> {
        self.pieces().filter_map(Result::ok) // none is bad: `parse` has checked them
    }

    fn pieces(
        &self,
    ) -> impl Iterator<Item = Result<(&'static OptionSpec, u32), Why<'a>>> + use<'a> {
        let known = options_of(self.entry);
        self.options.into_iter().flat_map(|all| all.split(',')).map(|piece| read(piece, known))
    }
}

fn options_of(entry: Option<&'static Entry>) -> &'static [OptionSpec] {
    entry.map_or(&[], |entry| entry.options)
}

fn read<'a>(
    piece: &'a str,
    known: &'static [OptionSpec],
) -> Result<(&'static OptionSpec, u32), Why<'a>> {
    let (key, value) = piece.split_once('=').ok_or(Why::NoPair(piece))?;
    let option = known.iter().find(|option| option.key == key).ok_or(Why::NoOption(key))?;
    if let Some(number) = named(value, option) {
        return Ok((option, number));
    }
    let (digits, unit) = unit(value, option);
    let number = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(number) if (option.min..=option.max).contains(&number) => Ok((option, number)),
        _ if is_number(digits) => Err(Why::OutOfRange { option, value }),
        _ => Err(Why::NoNumber { key, value }),
    }
}

/// The number of a value that has a name.
fn named(value: &str, option: &OptionSpec) -> Option<u32> {
    let names = if option.key == PREFER.key { &Prefer::NAMES[..] } else { &[] };
    (0..).zip(names).find(|(_, name)| **name == value).map(|(number, _)| number)
}

/// Splits off a time's unit, as in `10ms`: returns the digits, and the unit's size in the option's own unit.
fn unit<'a>(value: &'a str, option: &OptionSpec) -> (&'a str, u32) {
    // Unicode has the sign for micro twice.
    const UNITS: [(&str, u32); 6] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ];
    let known = UNITS.iter().filter(|_| option.is_time());
    let mut given = known.filter_map(|(name, ns)| Some((value.strip_suffix(name)?, *ns)));
    given.next().unwrap_or((value, 1))
}

/// Digits, a sign, a point: enough for a message. Parsing an `f64` would bring its tables into the preloaded
/// library.
fn is_number(value: &str) -> bool {
    value.contains(|letter: char| letter.is_ascii_digit())
        && value.chars().all(|letter| letter.is_ascii_digit() || "+-.".contains(letter))
}

/// A text that names no lock, or options that the lock doesn't have. `Display` gives one line, without a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad<'a> {
    /// The whole text, as it was written.
    pub text: &'a str,
    /// The part before the colon.
    pub name: &'a str,
    /// What is wrong.
    pub why: Why<'a>,
}

/// What is wrong with a [`Bad`] text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why<'a> {
    /// No lock has this name.
    Name,
    /// A colon, and nothing after it.
    Nothing,
    /// This is not `key=value`.
    NoPair(&'a str),
    /// The lock has no option with this key.
    NoOption(&'a str),
    /// The value is not a number.
    NoNumber {
        /// The option's key.
        key: &'a str,
        /// What was given.
        value: &'a str,
    },
    /// The value is too small or too large, or not a whole number.
    OutOfRange {
        /// The option.
        option: &'static OptionSpec,
        /// What was given.
        value: &'a str,
    },
}

impl<'a> Bad<'a> {
    /// The key of the wrong option, as it was written; empty: no option is wrong.
    pub fn key(&self) -> &'a str {
        match self.why {
            Why::Name | Why::Nothing => "",
            Why::NoPair(key) | Why::NoOption(key) | Why::NoNumber { key, .. } => key,
            Why::OutOfRange { option, .. } => option.key,
        }
    }

    /// The options that the lock has.
    pub fn known(&self) -> &'static [OptionSpec] {
        options_of(find_any(self.name))
    }
}

impl fmt::Display for Bad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, name, why } = self;
        let mut option = |why: fmt::Arguments<'_>| write!(f, "lock '{text}': {why}");
        match why {
            Why::Name => write!(f, "unknown lock '{name}'"),
            Why::Nothing => option(format_args!("nothing after the colon")),
            Why::NoPair(piece) => option(format_args!("option '{piece}' is not key=value")),
            Why::NoOption(key) => option(format_args!("no option '{key}'")),
            Why::NoNumber { key, value } => {
                option(format_args!("'{key}': '{value}' is not a number"))
            }
            Why::OutOfRange { option: what @ OptionSpec { key, min, max, .. }, value } => {
                let unit = if what.is_time() { " ns" } else { "" };
                option(format_args!("'{key}={value}' is not within {min} to {max}{unit}"))
            }
        }
    }
}

impl core::error::Error for Bad<'_> {}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::catalog::CATALOG;
    use std::{format, string::ToString, vec::Vec};

    #[test]
    fn every_lock_has_each_option_at_its_bounds_and_not_beyond() {
        for entry in CATALOG {
            let plain = Spec::parse(entry.id).unwrap();
            assert!(
                core::ptr::eq(plain.entry.unwrap(), *entry) && plain.options().next().is_none()
            );
            for option in entry.options {
                for value in [option.min, option.max] {
                    let text = format!("{}:{}={value}", entry.id, option.key);
                    assert!(Spec::parse(&text).unwrap().options().eq([(option, value)]), "{text}");
                }
                let value = format!("{}", u64::from(option.max) + 1);
                let text = format!("{}:{}={value}", entry.id, option.key);
                let why = Why::OutOfRange { option, value: &value };
                assert_eq!(Spec::parse(&text).unwrap_err().why, why, "{text}");
            }
        }
        assert!(Spec::parse(GLIBC).unwrap().entry.is_none());
    }

    #[test]
    fn options_come_in_their_order() {
        let spec = Spec::parse("fifo:bypass=8,spin=0,bypass=9").unwrap();
        let options: Vec<_> = spec.options().map(|(option, value)| (option.key, value)).collect();
        assert_eq!(
            (spec.name, options),
            ("fifo", [("bypass", 8), ("spin", 0), ("bypass", 9)].into())
        );
    }

    #[test]
    fn times_may_have_a_unit() {
        let value = |text| Spec::parse(text).unwrap().options().next().unwrap().1;
        for (text, ns) in [
            ("auto:budget=10ms", 10_000_000),
            ("auto:budget=1s", 1_000_000_000),
            ("fifo:spin=20us", 20_000),
            ("fifo:spin=20µs", 20_000),
            ("fifo:spin=20μs", 20_000),
            ("fifo:spin=300ns", 300),
            ("fifo:spin=300", 300),
        ] {
            assert_eq!(value(text), ns, "{text}");
        }
    }

    #[test]
    fn preferences_have_names() {
        for (name, number) in Prefer::NAMES.into_iter().zip(0..) {
            let value = |text: &str| Spec::parse_any(text).unwrap().options().next().unwrap().1;
            assert_eq!(value(&format!("rwlock:prefer={name}")), number);
            assert_eq!(Prefer::of(number) as u32, number);
        }
        let bad = Spec::parse_any("rwlock:prefer=nobody").unwrap_err();
        assert_eq!(
            bad.to_string(),
            "lock 'rwlock:prefer=nobody': 'prefer': 'nobody' is not a number"
        );
    }

    #[test]
    fn bad_names_are_unknown() {
        for (text, name) in [
            ("", ""),
            ("nolock", "nolock"),
            ("nolock:", "nolock"),
            ("tas,fifo", "tas,fifo"),
            ("FIFO", "FIFO"),
        ] {
            let bad = Spec::parse(text).unwrap_err();
            assert_eq!(bad, Bad { text, name, why: Why::Name });
            assert_eq!((bad.to_string(), bad.key()), (format!("unknown lock '{name}'"), ""));
            assert!(bad.known().is_empty());
        }
    }

    #[test]
    fn bad_options_say_why() {
        for (text, key, why) in [
            ("fifo:", "", "nothing after the colon"),
            ("glibc:", "", "nothing after the colon"),
            ("glibc:spin=1", "spin", "no option 'spin'"),
            ("mcs:spin=1", "spin", "no option 'spin'"),
            ("fifo:spinn=1", "spinn", "no option 'spinn'"),
            ("fifo:spin", "spin", "option 'spin' is not key=value"),
            ("fifo:spin=1,", "", "option '' is not key=value"),
            ("fifo:,spin=1", "", "option '' is not key=value"),
            ("fifo:spin=", "spin", "'spin': '' is not a number"),
            ("fifo:spin=x", "spin", "'spin': 'x' is not a number"),
            ("fifo:spin=1h", "spin", "'spin': '1h' is not a number"),
            ("fifo:spin=us", "spin", "'spin': 'us' is not a number"),
            ("fifo:spin=1s", "spin", "'spin=1s' is not within 0 to 10000000 ns"),
            ("fifo:spin=5s", "spin", "'spin=5s' is not within 0 to 10000000 ns"),
            ("fifo:spin=1.5us", "spin", "'spin=1.5us' is not within 0 to 10000000 ns"),
            ("fifo:bypass=1us", "bypass", "'bypass': '1us' is not a number"),
            ("fifo:spin=-", "spin", "'spin': '-' is not a number"),
            ("fifo:spin=1:2", "spin", "'spin': '1:2' is not a number"),
            ("auto:spin=1,spinners=-1", "spinners", "'spinners=-1' is not within 0 to 7"),
            ("auto:spinners=1.5", "spinners", "'spinners=1.5' is not within 0 to 7"),
            ("auto:spinners=4294967296", "spinners", "'spinners=4294967296' is not within 0 to 7"),
        ] {
            let bad = Spec::parse(text).unwrap_err();
            assert_eq!((bad.to_string(), bad.key()), (format!("lock '{text}': {why}"), key));
            assert_eq!(bad.known().is_empty(), !["fifo", "auto"].contains(&bad.name));
        }
    }
}
