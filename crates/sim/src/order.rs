//! Happens-before, by vector clocks: what a thread may know about others' writes to plain data.
//!
//! Operations on words take effect one after the other here, whatever their ordering says; so a hand-over that is Relaxed
//! would work. These clocks close the gap: only a Release that an Acquire has read from carries knowledge (C11 with its
//! release sequences), and an access to data that another thread wrote without our knowledge is a race.

use lockwright_platform::Ordering;
use rustc_hash::FxHashMap;

/// A thread's writes, as others may know them: the thread, and its clock at the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    thread: u32,
    clock: u32,
}

/// What every thread knows, and what every word passes on.
#[derive(Default)]
pub(crate) struct Orders {
    clocks: Vec<Vec<u32>>,
    words: FxHashMap<usize, Vec<u32>>,
}

pub(crate) fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

pub(crate) fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

fn join(into: &mut [u32], from: &[u32]) {
    for (mine, theirs) in into.iter_mut().zip(from) {
        *mine = (*mine).max(*theirs);
    }
}

impl Orders {
    /// One more thread. All threads are made before the first one runs.
    pub(crate) fn add_thread(&mut self) {
        for clock in &mut self.clocks {
            clock.push(0);
        }
        let count = self.clocks.len() + 1;
        let mut clock = vec![0; count];
        clock[count - 1] = 1;
        self.clocks.push(clock);
    }

    /// `me` has read the word.
    pub(crate) fn load(&mut self, me: u32, word: usize, order: Ordering) {
        if acquires(order)
            && let Some(known) = self.words.get(&word)
        {
            join(&mut self.clocks[me as usize], known);
        }
    }

    /// `me` has written the word.
    pub(crate) fn store(&mut self, me: u32, word: usize, order: Ordering) {
        if releases(order) {
            let clock = &mut self.clocks[me as usize];
            let known = self.words.entry(word).or_default();
            known.clear();
            known.extend_from_slice(clock);
            clock[me as usize] += 1;
        } else if let Some(known) = self.words.get_mut(&word) {
            known.clear();
        }
    }

    /// `me` has read and written the word, in one step.
    pub(crate) fn modify(&mut self, me: u32, word: usize, order: Ordering) {
        self.load(me, word, order);
        if releases(order) {
            let clock = &mut self.clocks[me as usize];
            let known = self.words.entry(word).or_default();
            known.resize(clock.len(), 0);
            join(known, clock);
            clock[me as usize] += 1;
        }
    }

    /// The moment, on `me`'s own clock.
    pub(crate) fn clock(&self, me: u32) -> u32 {
        self.clocks[me as usize][me as usize]
    }

    /// Does `me` know what `other` had done by its own `clock`?
    pub(crate) fn knows(&self, me: u32, other: u32, clock: u32) -> bool {
        self.clocks[me as usize][other as usize] >= clock
    }

    /// `me` has seen all others end.
    pub(crate) fn join_all(&mut self, me: u32) {
        for other in 0..self.clocks.len() {
            let known = self.clocks[other].clone();
            join(&mut self.clocks[me as usize], &known);
        }
    }

    /// `me` has read what `known` came with.
    pub(crate) fn learn(&mut self, me: u32, known: &[u32]) {
        join(&mut self.clocks[me as usize], known);
    }

    /// `me` writes something that carries what it knows.
    pub(crate) fn tell(&mut self, me: u32, known: &mut [u32]) {
        let clock = &mut self.clocks[me as usize];
        join(known, clock);
        clock[me as usize] += 1;
    }

    /// `me` writes plain data that `last` wrote before; `None` if it did not know of that.
    pub(crate) fn write(&self, me: u32, last: Option<Stamp>) -> Option<Stamp> {
        let mine = &self.clocks[me as usize];
        let knows = last.is_none_or(|last| mine[last.thread as usize] >= last.clock);
        knows.then(|| Stamp { thread: me, clock: mine[me as usize] })
    }
}

impl Stamp {
    /// Whose write it was.
    pub(crate) fn thread(self) -> u32 {
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::{AcqRel, Acquire, Relaxed, Release};

    /// Thread 0 writes data, hands over by `give`; thread 1 takes by `take`, and writes: does it know?
    fn knows(give: impl Fn(&mut Orders), take: impl Fn(&mut Orders)) -> bool {
        let mut orders = Orders::default();
        for _ in 0..3 {
            orders.add_thread();
        }
        let first = orders.write(0, None);
        give(&mut orders);
        take(&mut orders);
        orders.write(1, first).is_some()
    }

    #[test]
    fn only_a_release_that_was_acquired_carries_knowledge() {
        for (give, take, expected) in [
            (Release, Acquire, true),
            (AcqRel, AcqRel, true),
            (Relaxed, Acquire, false),
            (Release, Relaxed, false),
            (Acquire, Release, false),
        ] {
            assert_eq!(knows(|o| o.store(0, 8, give), |o| o.load(1, 8, take)), expected);
            assert_eq!(knows(|o| o.modify(0, 8, give), |o| o.modify(1, 8, take)), expected);
        }
        assert!(!knows(|o| o.store(0, 8, Release), |o| o.load(1, 16, Acquire)));
    }

    #[test]
    fn a_release_sequence_goes_on_through_modifications_and_ends_with_a_store() {
        let chain = |o: &mut Orders| {
            o.store(0, 8, Release);
            o.modify(2, 8, Relaxed);
        };
        assert!(knows(chain, |o| o.load(1, 8, Acquire)));
        let broken = |o: &mut Orders| {
            o.store(0, 8, Release);
            o.store(2, 8, Relaxed);
        };
        assert!(!knows(broken, |o| o.load(1, 8, Acquire)));
    }
}
