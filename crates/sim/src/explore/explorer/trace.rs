//! The steps of a schedule, for its report, and what its threads wait for in the end.

use super::{Blocked, Explorer, TracedOperation, Wait};
use crate::explore::mutant::{At, short};
use crate::units::Tid;

impl Explorer {
    /// Adds an operation to the report.
    pub(crate) fn record(
        &mut self,
        thread: Tid,
        what: &'static str,
        word: usize,
        value: Option<u64>,
        at: At,
    ) {
        if let Some(trace) = &mut self.trace {
            if word != 0 && !trace.words.contains(&word) {
                trace.words.push(word);
            }
            trace.steps.push(TracedOperation { thread, what, word, value, at });
        }
    }

    /// A word's name: the lock's fields in their order, other words in the order of their first use.
    fn name_of(&self, word: usize) -> String {
        let Some(trace) = &self.trace else { return "a word".to_owned() };
        let (start, end) = self.lock;
        let is_lock = |word: &usize| (start..end).contains(word);
        if is_lock(&word) {
            let before = trace.words.iter().filter(|one| is_lock(one) && **one < word).count();
            return format!("word {before} of the lock");
        }
        let others = trace.words.iter().filter(|one| !is_lock(one));
        let number = others.into_iter().position(|&one| one == word);
        number.map_or("a word".to_owned(), |number| format!("waiters' word {number}"))
    }

    /// The steps, one a line.
    pub(crate) fn story(&self) -> Vec<String> {
        let steps = self.trace.iter().flat_map(|trace| &trace.steps);
        let line = |step: &TracedOperation| {
            let word = if step.word == 0 { String::new() } else { self.name_of(step.word) };
            let value = step.value.map_or(String::new(), |value| match value {
                0..=0xffff_ffff => format!(" {value:#x}"),
                pointer => format!(" pointer to {}", self.owner_of(pointer)),
            });
            let (file, line) = (short(step.at.file()), step.at.line());
            format!("thread {} {:<16} {word}{value}  ({file}:{line})", step.thread, step.what)
        };
        steps.map(line).collect()
    }

    /// What a pointer points to, if its words are known.
    fn owner_of(&self, pointer: u64) -> String {
        let words = self.trace.iter().flat_map(|trace| &trace.words);
        let near = |word: &&usize| (**word as u64).wrapping_sub(pointer & !63) < 64;
        words
            .copied()
            .find(|word| near(&word))
            .map_or("a node".to_owned(), |word| self.name_of(word))
    }

    /// Each thread that is left, and what it waits for.
    pub(super) fn who(&self) -> Vec<String> {
        let left = self.waiters.iter().enumerate().filter(|(_, w)| w.wait != Wait::Ended);
        let each = |(thread, waiter): (usize, &Blocked)| {
            let what = match waiter.wait {
                Wait::Turn => "runs".to_owned(),
                Wait::Pauses => "pauses".to_owned(),
                Wait::Spins => format!("spins on {}", self.name_of(waiter.word)),
                Wait::Sleeps { .. } => format!("sleeps on {}", self.name_of(waiter.word)),
                Wait::Ended => unreachable!("filtered"),
            };
            let at = waiter
                .at
                .map_or(String::new(), |at| format!(" ({}:{})", short(at.file()), at.line()));
            format!("thread {thread} {what}{at}")
        };
        left.map(each).collect()
    }
}
