//! Names of locks: for shell completion (which accepts any text), and for messages about unknown names.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use lockwright_locks::catalog::{CATALOG, all};
use lockwright_locks::spec::{Bad, Why};
use lockwright_numbers::units::word;
use lockwright_text::nearest;
use std::ffi::OsStr;

/// Accepts any text on the command line. The names are for shell completion only.
#[derive(Clone)]
pub struct Names(pub fn() -> Vec<String>);

/// The names that the bench's `--lock` accepts.
pub(crate) const LOCKS: Names = Names(|| {
    let preloaded = CATALOG.iter().map(|entry| entry.id.to_owned());
    let in_process = all().map(|entry| format!("in:{}", entry.id));
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

/// A class of cores in `spec` whose name is nearly a known one, with that known name. A user's own class name must
/// differ more; `mid1` and the like are defined by the topology.
pub fn misspelt_class(spec: &str) -> Option<(&str, &'static str)> {
    const KNOWN: [&str; 3] = ["big", "mid", "little"];
    spec.split(',').find_map(|piece| {
        let name = piece.split_once(':')?.0.trim();
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        if KNOWN.contains(&stem) {
            return None;
        }
        Some((name, nearest(name, KNOWN)?))
    })
}

/// A message about an invalid lock, and a hint. `names` are the valid ones.
pub fn advice<'a>(bad: &Bad<'_>, names: impl IntoIterator<Item = &'a str>) -> (String, String) {
    let (name, known) = (bad.name, bad.known());
    if bad.why == Why::Name {
        // A name that takes no options may have been given some.
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
            let value = match option.is_time() {
                true => word(value.into()),
                false => value.to_string(),
            };
            format!("for example '{name}:{}={value}'; lockwright explain {name}", option.key)
        }
        None => format!("'{name}' has no options: use '{name}'"),
    };
    (format!("{bad}{meant}"), hint)
}

/// Splits at commas and blanks, but not within an item's options: `fifo:spin=1,bypass=2,barging`.
pub fn split(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let separates = |char: char| char == ',' || char.is_whitespace();
    for piece in text.split(separates).filter(|piece| !piece.is_empty()) {
        match items.last_mut() {
            Some(last) if last.contains(':') && piece.contains('=') && !piece.contains(':') => {
                *last = format!("{last},{piece}");
            }
            _ => items.push(piece.to_owned()),
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::{misspelt_class, split};

    #[test]
    fn a_class_may_have_any_name_but_a_mistyped_one() {
        for (spec, name, meant) in [
            ("big:0,litle:1x3.75", "litle", "little"),
            ("bg:0,little:1", "bg", "big"),
            ("Big:0,little:1", "Big", "big"),
            ("big:0, litlte:1", "litlte", "little"),
        ] {
            assert_eq!(misspelt_class(spec), Some((name, meant)));
        }
        for fine in
            ["big:0-3,4,mid:5,little:6x2", "big:0,mid1:1,mid2:2,little:3", "huge:0,tiny:1x2"]
        {
            assert_eq!(misspelt_class(fine), None, "{fine}");
        }
    }

    #[test]
    fn locks_keep_their_options() {
        let locks = ["fifo:spin=1,bypass=2", "barging", "glibc"];
        assert_eq!(split("fifo:spin=1,bypass=2, barging,glibc"), locks);
        assert_eq!(split("fifo:spin=1,bypass=2 barging  glibc"), locks);
        assert_eq!(split("in:mcs,fifo"), ["in:mcs", "fifo"]);
        assert!(split(" ").is_empty());
    }
}
