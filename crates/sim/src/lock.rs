//! Locks of the catalogue by name, with their options.

use crate::policies::{Policies, SLOTS, SlotPolicy};
use crate::published;
use lockwright_locks::amp::feedback::WINDOW_MAX_NS;
use lockwright_locks::catalog::{FrontVisitor, find_any, visit_front};
use lockwright_locks::entry::{Entry, Kind, OptionSpec};
use lockwright_locks::front::tuning::{MOST_COUNTED, SLOT};
use lockwright_locks::front::{Rule, Tuning};
use lockwright_locks::rw;
use lockwright_locks::spec::Spec;
use lockwright_platform::Machine;
use std::collections::BTreeMap;
use thiserror::Error;

/// Which lock, with which options: `NAME[:key=value,...]`.
#[derive(Clone, Debug)]
pub struct LockSpec {
    text: String,
    entry: Option<&'static Entry>,
    options: Vec<(&'static OptionSpec, u32)>,
    programs: BTreeMap<u32, SlotPolicy>,
    /// How many waiters a front lock's line counts.
    most_counted: u32,
    /// How much longer each section takes than the lock makes it, ns on the fastest class: a planted fault.
    slower_ns: f64,
}

/// Why a text names no lock.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct LockError(String);

impl From<Spec<'_>> for LockSpec {
    fn from(spec: Spec<'_>) -> Self {
        Self {
            text: spec.text.to_owned(),
            entry: spec.entry,
            options: spec.options().collect(),
            programs: BTreeMap::new(),
            most_counted: MOST_COUNTED,
            slower_ns: 0.0,
        }
    }
}

impl LockSpec {
    /// Reads `NAME[:key=value,...]`: a mutex's lock, a readers-writer lock, or one that only simulated machines have.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let find = |id: &str| published::find(id).or_else(|| find_any(id));
        Spec::parse_by(text, find).map(Self::from).map_err(|bad| LockError(bad.to_string()))
    }

    /// Those that only simulated machines have.
    pub fn published() -> impl Iterator<Item = &'static Entry> {
        published::ENTRIES.into_iter()
    }

    /// Reads one of [`published`](Self::published); `None`: the text names none.
    pub fn parse_published(text: &str) -> Option<Result<Self, LockError>> {
        let name = text.split(':').next().unwrap_or(text);
        published::find(name).map(|_| Self::parse(text))
    }

    /// A lock from outside the catalogue, with its options' defaults.
    #[cfg(test)]
    pub(crate) fn of(entry: &'static Entry) -> Self {
        let text = entry.id.to_owned();
        Self {
            text,
            entry: Some(entry),
            options: Vec::new(),
            programs: BTreeMap::new(),
            most_counted: MOST_COUNTED,
            slower_ns: 0.0,
        }
    }

    /// The same lock on a machine that has this policy in the slot. The lock asks it if it is `programmed:slot=SLOT`.
    ///
    /// # Panics
    /// The slot is not one of 1 to 15.
    #[must_use]
    pub fn programmed(mut self, slot: u32, program: SlotPolicy) -> Self {
        assert!((1..SLOTS as u32).contains(&slot), "no slot {slot}, only 1 to {}", SLOTS - 1);
        self.programs.insert(slot, program);
        self
    }

    /// Does a front lock's line count this many waiters?
    pub(crate) fn counts(&self, threads: usize) -> bool {
        threads <= self.most_counted as usize
    }

    /// The same lock with a planted fault: each section takes `ns` longer on the fastest class of cores.
    #[must_use]
    pub fn slower(mut self, ns: f64) -> Self {
        self.slower_ns = ns;
        self
    }

    /// See [`slower`](Self::slower).
    pub(crate) fn slower_ns(&self) -> f64 {
        self.slower_ns
    }

    /// The policies of its machine, by slot.
    pub fn programs(&self) -> impl Iterator<Item = (u32, &SlotPolicy)> {
        self.programs.iter().map(|(slot, program)| (*slot, program))
    }

    /// New instances of them.
    pub(crate) fn policies(&self) -> Policies {
        Policies::of(self.programs())
    }

    /// As it was written.
    pub fn name(&self) -> &str {
        &self.text
    }

    /// Its entry in the catalogue; `None` for glibc's algorithm.
    pub fn entry(&self) -> Option<&'static Entry> {
        self.entry
    }

    /// Does it only run sections that are handed to it?
    pub fn is_delegated(&self) -> bool {
        self.entry.is_some_and(|entry| entry.kind == Kind::Delegated)
    }

    /// Is it a readers-writer lock?
    pub fn is_read_write(&self) -> bool {
        self.entry.is_some_and(|entry| entry.kind == Kind::ReadWrite)
    }

    /// The tuning of a readers-writer lock.
    pub(crate) fn read_write_tuning(&self) -> rw::Tuning {
        let mut tuning = rw::Tuning::default();
        for (option, value) in &self.options {
            tuning.set(option.key, *value);
        }
        tuning
    }

    /// The catalogue's description of the lock's option `key`, if it has it.
    pub fn option(&self, key: &str) -> Option<&'static OptionSpec> {
        self.entry?.options.iter().find(|spec| spec.key == key)
    }

    /// The same lock, with this option.
    pub fn with(&self, key: &str, value: u32) -> Result<Self, LockError> {
        let name = self.entry.map_or(self.text.as_str(), |entry| entry.id);
        let others = self.options.iter().filter(|(known, _)| known.key != key);
        let mut options: Vec<_> = others.map(|(known, v)| format!("{}={v}", known.key)).collect();
        options.push(format!("{key}={value}"));
        let with = Self::parse(&format!("{name}:{}", options.join(",")))?;
        // A policy's name stays.
        let text = if self.programs.is_empty() { with.text } else { self.text.clone() };
        Ok(Self { text, programs: self.programs.clone(), ..with })
    }

    /// The same lock under this name: for a policy, whose name says more than `programmed:slot=1`.
    #[must_use]
    pub fn called(mut self, name: &str) -> Self {
        name.clone_into(&mut self.text);
        self
    }

    /// The longest time, ns, for which a thread on a slower core lets others go first outside epochs; `None`: it
    /// doesn't.
    pub fn window_ns(&self) -> Option<u32> {
        self.entry?.stands_by.then(|| self.value("window").unwrap_or(WINDOW_MAX_NS))
    }

    /// The value of an option; `None`: the machine decides.
    pub fn value(&self, key: &str) -> Option<u32> {
        // If it is given twice, the later one counts, as in the lock's tuning.
        let given = self.options.iter().rev().find(|(known, _)| known.key == key);
        given.map(|(_, value)| *value).or_else(|| self.option(key)?.default)
    }

    /// The same lock. Options that were not given are drawn: often their defaults, or else small values.
    pub(crate) fn varied(&self, rng: &mut fastrand::Rng) -> Self {
        let mut varied = self.clone();
        for option in self.entry.map_or(&[][..], |entry| entry.options) {
            // A lock that policies program has one most of the time.
            let often = if option.key == SLOT.key { 4 } else { 0 };
            let draw = rng.u32(0..8) + often;
            if draw < 5 && often > 0
                || draw < 4
                || self.options.iter().any(|(given, _)| given.key == option.key)
            {
                continue;
            }
            // All preferences.
            let draw = if option.key == rw::PREFER.key && draw == 4 { 8 } else { draw };
            let value = (option.min + draw.saturating_sub(5)).min(option.max);
            let sign = if varied.options.is_empty() { ':' } else { ',' };
            varied.text.push_str(&format!("{sign}{}={value}", option.key));
            varied.options.push((option, value));
        }
        // Few threads reach the edge of a field of two bits.
        if self.entry.is_some_and(|entry| entry.kind == Kind::Front) {
            varied.most_counted = [MOST_COUNTED, 3, 1][rng.usize(0..3)];
        }
        varied
    }

    /// The tuning of a front lock with these defaults, on the current machine.
    pub(crate) fn tuned_for<P: Machine>(&self, defaults: fn(Tuning) -> Tuning) -> Tuning {
        let mut tuning = defaults(Tuning::for_cpus(P::cpus()));
        for (option, value) in &self.options {
            tuning.set(option.key, *value);
        }
        tuning.most_counted = self.most_counted;
        tuning
    }

    /// How often the head of the lock's line may be overtaken, if it is a front lock.
    pub(crate) fn bypass<P: Machine>(&self) -> Option<u32> {
        struct Bypass<'a>(&'a LockSpec, Option<u32>);
        impl<P: Machine> FrontVisitor<P> for Bypass<'_> {
            fn visit<R: Rule<P>>(&mut self, entry: &'static Entry, defaults: fn(Tuning) -> Tuning) {
                if self.0.entry.is_some_and(|own| std::ptr::eq(own, entry)) {
                    self.1 = Some(self.0.tuned_for::<P>(defaults).bypass);
                }
            }
        }
        let mut bypass = Bypass(self, None);
        visit_front::<P>(&mut bypass);
        bypass.1.or_else(|| self.value("bypass"))
    }
}
