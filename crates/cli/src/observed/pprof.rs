//! Writes waits for locks as a contention profile in pprof's format, which `go tool pprof`, Pyroscope and Speedscope
//! read.
//!
//! The messages are those of `profile.proto` (github.com/google/pprof) that we need.

use super::{conditions, finding};
use flate2::Compression;
use flate2::write::GzEncoder;
use lockwright_observer::counts::observation::{Observed, Ranked, Site};
use lockwright_observer::findings::{OwnLock, WaitSite};
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    what: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost function first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    file: i64,
}

/// The types and units of a sample's values. As in Go's profiles, the first two belong to the waiters. The next two
/// belong to those for which others wait. Then waits for condition variables that act as locks, trylocks that fail, and samples
/// of threads that waited for locks that aren't pthread's.
const TYPES: [(&str, &str); 8] = [
    ("contentions", "count"),
    ("delay", "nanoseconds"),
    ("blamed_contentions", "count"),
    ("blamed_delay", "nanoseconds"),
    ("condition_contentions", "count"),
    ("condition_delay", "nanoseconds"),
    ("failed_tries", "count"),
    ("other_lock_samples", "count"),
];
/// The first type of each group.
const WAITS: usize = 0;
const HOLDS: usize = 2;
const CONDITIONS: usize = 4;
const TRIES: usize = 6;
const OTHERS: usize = 7;

/// Writes the profile of all these processes.
pub(crate) fn write(outcomes: &[Observed], to: impl Write) -> io::Result<()> {
    let mut to = GzEncoder::new(to, Compression::default());
    to.write_all(&profile(outcomes).encode_to_vec())?;
    to.finish()?.flush()
}

fn profile(outcomes: &[Observed]) -> Profile {
    let mut tables = Tables::default();
    tables.text(""); // the first must be empty
    let value_type = |tables: &mut Tables, (what, unit)| ValueType {
        what: tables.text(what),
        unit: tables.text(unit),
    };
    let sample_type: Vec<_> = TYPES.map(|kind| value_type(&mut tables, kind)).into();
    let mut sample = Vec::new();
    for outcome in outcomes {
        let pid = outcome.pid.to_string();
        let mut add = |lock: &Ranked, at: usize, sites: &[Site]| {
            sample.extend(sites.iter().map(|site| tables.site(&pid, lock, site, at)));
        };
        for lock in &outcome.locks {
            add(lock, WAITS, &lock.waiters);
            add(lock, HOLDS, &lock.holders);
            add(lock, TRIES, &lock.beyond.triers);
        }
        for condition in conditions::locks(outcome) {
            add(condition, CONDITIONS, &condition.waiters);
        }
        for lock in finding::own_locks(outcome) {
            let sites = lock.waiters.iter();
            sample.extend(sites.map(|site| tables.seen(&pid, lock, site)));
        }
    }
    let longest = outcomes.iter().map(|outcome| outcome.elapsed_ns).max().unwrap_or(0);
    Profile {
        period_type: sample_type.first().copied(),
        default_sample_type: tables.text(TYPES[1].0),
        sample_type,
        sample,
        location: tables.locations,
        function: tables.functions,
        string_table: tables.strings,
        duration_nanos: longest as i64,
        period: 1,
    }
}

/// The objects to which samples refer by number.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    known_strings: BTreeMap<String, i64>,
    functions: Vec<Function>,
    known_functions: BTreeMap<(String, String), u64>,
    locations: Vec<Location>,
    known_locations: BTreeMap<(u64, i64), u64>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.known_strings.get(text) {
            return known;
        }
        let number = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.known_strings.insert(text.to_owned(), number);
        number
    }

    fn site(&mut self, pid: &str, lock: &Ranked, site: &Site, at: usize) -> Sample {
        let mut value = vec![0; TYPES.len()];
        value[at] = site.count as i64;
        if at != TRIES {
            value[at + 1] = site.ns as i64; // a try takes no time
        }
        self.sample((pid, &lock.name), value, &site.stack, parts(&site.function, &site.place))
    }

    fn seen(&mut self, pid: &str, lock: &OwnLock, site: &WaitSite) -> Sample {
        let mut value = vec![0; TYPES.len()];
        value[OTHERS] = site.samples as i64;
        let function = site.function.as_deref().unwrap_or_default();
        self.sample((pid, &lock.name), value, &site.stack, parts(function, ""))
    }

    /// `alone`: the place, if there is no stack.
    fn sample(
        &mut self,
        (pid, lock): (&str, &str),
        value: Vec<i64>,
        stack: &[String],
        alone: (&str, &str, i64),
    ) -> Sample {
        let frames: Vec<(&str, &str, i64)> = match stack.is_empty() {
            true => vec![alone],
            false => stack.iter().map(|frame| frame_parts(frame)).collect(),
        };
        let location_id = frames.into_iter().map(|frame| self.location(frame)).collect();
        let mut label = Vec::new();
        for (key, text) in [("lock", lock), ("pid", pid)] {
            label.push(Label { key: self.text(key), text: self.text(text) });
        }
        Sample { location_id, value, label }
    }

    fn location(&mut self, (name, file, line): (&str, &str, i64)) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        let function = match self.known_functions.get(&key) {
            Some(&known) => known,
            None => {
                let id = self.functions.len() as u64 + 1;
                let (name, file) = (self.text(name), self.text(file));
                self.functions.push(Function { id, name, file });
                self.known_functions.insert(key, id);
                id
            }
        };
        let next = self.locations.len() as u64 + 1;
        let id = *self.known_locations.entry((function, line)).or_insert(next);
        if id == next {
            let line = vec![Line { function_id: function, line }];
            self.locations.push(Location { id, line });
        }
        id
    }
}

/// Splits `function (file.c:12)` into function, file and line.
fn frame_parts(frame: &str) -> (&str, &str, i64) {
    match frame.strip_suffix(')').and_then(|frame| frame.rsplit_once(" (")) {
        Some((function, place)) => parts(function, place),
        None => parts(frame, ""),
    }
}

fn parts<'a>(function: &'a str, place: &'a str) -> (&'a str, &'a str, i64) {
    match place.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => (function, file, line),
        _ => (function, place, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::advice::tests::lock;
    use flate2::read::GzDecoder;
    use lockwright_observer::counts::beyond::Wakes;
    use lockwright_observer::origin::Origin;
    use std::io::Read;

    /// A queue's condition variable is no lock, so its waits are not in a profile of locks.
    #[test]
    fn what_is_no_wait_for_a_mutex_has_types_of_its_own() {
        let wakes = |by_waiters| Some(Wakes { broadcasts: 100, by_waiters, ..Wakes::default() });
        let condition = |name: &str, by_waiters| {
            let mut one = Ranked { name: name.into(), ..lock(5_000_000, (0, 0, 0)) };
            one.waiters = vec![Site { count: 3, ns: 5_000_000, ..Site::default() }];
            one.beyond.wakes = wakes(by_waiters);
            one
        };
        let mut tried = Ranked { name: "tried".into(), holders: Vec::new(), ..lock(0, (0, 0, 0)) };
        tried.beyond.triers = vec![Site { count: 7, ..Site::default() }];
        let site = WaitSite {
            share: 1.0,
            samples: 9,
            state: None,
            function: Some("logs".into()),
            file: None,
            line: None,
            stack: Vec::new(),
            callers: Vec::new(),
        };
        let stdio = OwnLock {
            address: 0,
            origin: Origin::Stdio,
            name: "stdio".into(),
            waiting: 1.0,
            waits: 9,
            waiters: vec![site],
            advice: String::new(),
        };
        let made = profile(&[Observed {
            locks: vec![tried],
            conditions: vec![condition("turn", 100), condition("queue", 0)],
            own_locks: vec![stdio],
            ..Observed::default()
        }]);
        let name = |sample: &Sample| made.string_table[sample.label[0].text as usize].as_str();
        let all: Vec<_> = made.sample.iter().map(|one| (name(one), &one.value[4..])).collect();
        let expected: [(&str, &[i64]); 3] =
            [("tried", &[0, 0, 7, 0]), ("turn", &[3, 5_000_000, 0, 0]), ("stdio", &[0, 0, 0, 9])];
        assert_eq!(all, expected);
        assert!(made.sample.iter().all(|one| one.value[..4] == [0; 4]));
    }

    #[test]
    fn what_is_written_can_be_read_back() {
        let mut one = lock(5_000_000, (10, 3_000_000, 1_000_000));
        one.holders[0].stack = vec!["update (a.c:7)".into(), "main (b.c:9)".into()];
        let mut waiter = one.holders[0].clone();
        (waiter.stack, waiter.function, waiter.place) =
            (Vec::new(), "f(int (*)())".into(), "x".into());
        (waiter.count, waiter.ns) = (4, 5_000_000);
        one.waiters.push(waiter);
        let outcome = Observed { pid: 7, locks: vec![one], elapsed_ns: 9, ..Observed::default() };
        let mut file = Vec::new();
        write(&[outcome], &mut file).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(&file[..]).read_to_end(&mut bytes).unwrap();
        let read = Profile::decode(&bytes[..]).unwrap();
        let text = |at: i64| read.string_table[at as usize].as_str();
        assert_eq!(text(0), "");
        let types: Vec<_> = read.sample_type.iter().map(|t| (text(t.what), text(t.unit))).collect();
        assert_eq!(types, TYPES);
        assert_eq!((text(read.default_sample_type), read.duration_nanos), ("delay", 9));
        let stack = |sample: &Sample| -> Vec<_> {
            let place = |&id: &u64| {
                let location = read.location.iter().find(|l| l.id == id).unwrap();
                let line = location.line[0];
                let function = read.function.iter().find(|f| f.id == line.function_id).unwrap();
                (text(function.name), text(function.file), line.line)
            };
            sample.location_id.iter().map(place).collect()
        };
        let [waits, holds] = &read.sample[..] else { panic!("{read:?}") };
        assert_eq!(
            (&waits.value[..], stack(waits)),
            (&[4, 5_000_000, 0, 0, 0, 0, 0, 0][..], vec![("f(int (*)())", "x", 0)])
        );
        assert_eq!(holds.value, [0, 0, 10, 3_000_000, 0, 0, 0, 0]);
        assert_eq!(stack(holds), [("update", "a.c", 7), ("main", "b.c", 9)]);
        let labels: Vec<_> = holds.label.iter().map(|l| (text(l.key), text(l.text))).collect();
        assert_eq!(labels, [("lock", "lock"), ("pid", "7")]);
    }
}
