//! Lock specifications, `NAME[:key=value,...]`, checked against the catalogue.

use crate::hints::{Failure, nearest, warn};
use lockwright_bench::Names;
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_locks::entry::{Entry, Kind, OptionSpec};
use lockwright_native::cpus::Usable;
use lockwright_sim::explore::RUNTIME;

/// Everything passes through to the C library.
pub(crate) const GLIBC: &str = "glibc";

/// The entry called `name`, or the nearest one in a hint.
pub(crate) fn entry(name: &str) -> Result<&'static Entry, Failure> {
    find(name).ok_or_else(|| unknown(name))
}

/// What can be asked for.
fn names() -> impl Iterator<Item = &'static str> {
    CATALOG.iter().map(|entry| entry.id).chain([GLIBC])
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::new(format!("unknown lock '{name}'"));
    match nearest(name, names()) {
        Some(close) => failure.hint(format!("did you mean '{close}'? `lockwright list` shows all")),
        None => failure.hint("lockwright list"),
    }
}

/// For the shell's completion.
pub(crate) const SPEC: Names = Names(|| names().map(str::to_owned).collect());

/// Every lock.
pub(crate) const ALL: &str = "all";

/// The same, and what only explorations have.
pub(crate) const SUBJECT: Names =
    Names(|| names().chain([ALL, RUNTIME]).map(str::to_owned).collect());

/// One warning if any of these specifications is of a textbook lock: its slowness looks like a hang.
pub(crate) fn warn_of_textbook<'a>(specs: impl IntoIterator<Item = &'a str>) {
    let textbook = specs
        .into_iter()
        .filter_map(|spec| find(spec.split(':').next().unwrap_or(spec)))
        .find(|entry| entry.kind == Kind::Whole);
    if let Some(entry) = textbook {
        warn(
            format!(
                "'{}' is a textbook lock: with more threads than CPUs ({}) it can be a hundred times slower than auto",
                entry.id,
                Usable::read().cpus()
            ),
            format!("lockwright run --lock auto -- PROGRAM; lockwright explain {}", entry.id),
        );
    }
}

/// At commas, but not at those within an item's options: `fifo:spin=1,bypass=2,barging`.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
        match items.last_mut() {
            Some(last) if last.contains(':') && piece.contains('=') && !piece.contains(':') => {
                *last = format!("{last},{piece}");
            }
            _ => items.push(piece.to_owned()),
        }
    }
    items
}

/// Is this a lock with legal options?
pub(crate) fn check(spec: &str) -> Result<(), Failure> {
    let (name, options) = spec.split_once(':').unwrap_or((spec, ""));
    let known = match find(name) {
        Some(entry) => entry.options,
        None if name == GLIBC => &[],
        None => return Err(unknown(name)),
    };
    if spec.contains(':') && options.is_empty() {
        return Err(Failure::new(format!("lock '{spec}': nothing after the colon"))
            .hint(hint_options(name, known, "")));
    }
    options.split(',').filter(|_| !options.is_empty()).try_for_each(|option| {
        check_option(option, known).map_err(|cause| {
            Failure::new(format!("lock '{spec}': {cause}")).hint(hint_options(name, known, option))
        })
    })
}

fn check_option(option: &str, known: &[OptionSpec]) -> Result<(), String> {
    let (key, value) =
        option.split_once('=').ok_or(format!("option '{option}' is not key=value"))?;
    let spec = known.iter().find(|spec| spec.key == key).ok_or_else(|| {
        match nearest(key, known.iter().map(|spec| spec.key)) {
            Some(close) => format!("no option '{key}', did you mean '{close}'?"),
            None => format!("no option '{key}'"),
        }
    })?;
    match value.parse::<u32>() {
        Ok(number) if (spec.min..=spec.max).contains(&number) => Ok(()),
        _ if value.parse::<f64>().is_err() => Err(format!("'{key}': '{value}' is no number")),
        _ => Err(format!("'{key}={value}' is not within {} to {}", spec.min, spec.max)),
    }
}

/// An example, of the very option that was meant if it is known.
fn hint_options(name: &str, known: &[OptionSpec], option: &str) -> String {
    let key = option.split('=').next().unwrap_or(option);
    let close = nearest(key, known.iter().map(|spec| spec.key));
    match known.iter().find(|spec| Some(spec.key) == close).or(known.first()) {
        Some(spec) => {
            let example = spec.default.unwrap_or(spec.max.min(spec.min.max(1000)));
            format!("for example '{name}:{}={example}'; lockwright explain {name}", spec.key)
        }
        None => format!("'{name}' has no options: use '{name}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_is_accepted_with_each_option_at_its_bounds_and_not_beyond() {
        for entry in CATALOG {
            check(entry.id).unwrap();
            for option in entry.options {
                let spec = |value: u64| format!("{}:{}={value}", entry.id, option.key);
                check(&spec(option.min.into())).unwrap();
                check(&spec(option.max.into())).unwrap();
                check(&spec(u64::from(option.max) + 1)).unwrap_err();
            }
        }
        check(GLIBC).unwrap();
    }

    #[test]
    fn locks_keep_their_options() {
        assert_eq!(
            split("fifo:spin=1,bypass=2, barging,glibc"),
            ["fifo:spin=1,bypass=2", "barging", "glibc"]
        );
        assert!(split("").is_empty());
    }

    #[test]
    fn malformed_specifications_are_refused() {
        for bad in [
            "",
            "nolock",
            "fifo:",
            "fifo:x",
            "fifo:x=1",
            "fifo:spin",
            "fifo:spin=",
            "fifo:spin=-1",
            "tas,fifo",
        ] {
            check(bad).unwrap_err();
        }
    }
}
