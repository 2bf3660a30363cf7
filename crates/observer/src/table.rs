//! A process's table of locks, as written to its mailbox: `LOCK`, a newline, `TARGET=LOCK;...`.

use crate::targets;
use serde::Serialize;

/// The rules that give a process's mutexes their locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The lock of mutexes that no rule names.
    pub default: String,
    /// The first matching rule decides.
    pub rules: Vec<Rule>,
}

/// A rule: the lock for some mutexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The mutexes: `lib:FILE`, `mutex:FILE+0xLOW-0xHIGH`, `mutex:+0xLOW-0xHIGH`, `call:FILE+0xLOW-0xHIGH`,
    /// `kind:KIND+0xLOW-0xHIGH`.
    pub target: String,
    /// Their lock.
    pub lock: String,
    /// The number that the process stores in mutexes to which this rule applies; `None`: not known.
    #[serde(skip)]
    pub place: Option<u8>,
}

/// The places of mutexes that no rule names, or that were contended before there were rules (see the runtime's
/// `rules.rs`).
const DEFAULT: [u32; 3] = [0, 1, 31];

impl Table {
    /// Parses a table.
    pub fn read(words: &str) -> Self {
        let (default, rules) = words.split_once('\n').unwrap_or((words, ""));
        let rules = rules.split(';').filter(|rule| !rule.is_empty());
        Self {
            default: default.to_owned(),
            rules: rules
                .map(|rule| rule.split_once('=').unwrap_or((rule, "")))
                .map(Rule::new)
                .collect(),
        }
    }

    /// Formats the table as `read` parses it.
    pub fn words(&self) -> String {
        let rules = self.rules.iter().map(|rule| format!("{}={};", rule.target, rule.lock));
        format!("{}\n{}", self.default, rules.collect::<String>())
    }

    /// All its locks.
    pub fn locks(&self) -> impl Iterator<Item = &str> {
        [&self.default]
            .into_iter()
            .chain(self.rules.iter().map(|rule| &rule.lock))
            .map(String::as_str)
    }

    /// The rule for mutexes with this place; `None`: the default applies.
    pub fn rule_at(&self, place: u32) -> Option<&Rule> {
        if DEFAULT.contains(&place) {
            return None;
        }
        self.rules.iter().find(|rule| rule.place.map(u32::from) == Some(place))
    }

    /// The lock for mutexes with this place.
    pub fn lock_at(&self, place: u32) -> &str {
        self.rule_at(place).map_or(&self.default, |rule| &rule.lock)
    }

    /// Gives these targets' mutexes a lock, by rules that come before all others. `None` removes these targets' rules.
    pub fn set(&mut self, targets: &[String], lock: Option<&str>) {
        self.rules.retain(|rule| !targets.contains(&rule.target));
        if let Some(lock) = lock {
            let new = targets.iter().map(|target| Rule::new((target, lock)));
            self.rules.splice(..0, new);
        }
    }

    /// Removes the rules whose locks are `meant`. Returns how many those were.
    pub fn lift(&mut self, meant: impl Fn(&str) -> bool) -> usize {
        let before = self.rules.len();
        self.rules.retain(|rule| !meant(&rule.lock));
        before - self.rules.len()
    }
}

impl Rule {
    fn new((target, lock): (&str, &str)) -> Self {
        Self { target: target.to_owned(), lock: lock.to_owned(), place: None }
    }

    /// A description of the target: `library libfoo.so`.
    pub fn whose(&self) -> String {
        if let Some(whose) = targets::whose(&self.target) {
            return whose;
        }
        let (what, target) = self.target.split_once(':').unwrap_or(("", &self.target));
        match what {
            "lib" => format!("library {target}"),
            "call" => format!("caller {target}"),
            "kind" => match target.split_once('+') {
                Some((kind, _)) => format!("{kind} mutexes"),
                None => format!("kind {target}"),
            },
            what => match target.strip_prefix('+').and_then(|range| range.split_once('-')) {
                Some((address, _)) => format!("{what} {address}"),
                None => format!("{what} {target}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_new_rules_come_first() {
        let words = "auto\nlib:libfoo.so=fifo;mutex:+0x10-0x38=asl:window=5;";
        let mut table = Table::read(words);
        assert_eq!(table.words(), words);
        assert_eq!(table.locks().collect::<Vec<_>>(), ["auto", "fifo", "asl:window=5"]);
        assert_eq!(table.rules[1].whose(), "mutex 0x10");
        let target = ["mutex:+0x10-0x38".to_owned()];
        table.set(&target, Some("mcs"));
        assert_eq!(table.words(), "auto\nmutex:+0x10-0x38=mcs;lib:libfoo.so=fifo;");
        table.set(&target, None);
        assert_eq!(table.words(), "auto\nlib:libfoo.so=fifo;");
        assert_eq!(Table::read("auto").words(), "auto\n");
    }

    #[test]
    fn a_place_leads_to_its_rule() {
        let mut table = Table::read("auto\nlib:a=fifo;lib:b=cal;");
        table.rules[1].place = Some(7);
        assert_eq!(
            [0, 1, 7, 8, 31].map(|place| table.lock_at(place)),
            ["auto", "auto", "cal", "auto", "auto"]
        );
    }
}
