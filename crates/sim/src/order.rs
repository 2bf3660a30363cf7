//! Happens-before, by vector clocks: what a thread may know about other threads' writes to plain data.
//!
//! Here, operations on words take effect one after the other, whatever their ordering says, so even a Relaxed hand-over
//! would work. These clocks close the gap: only a Release that an Acquire reads from carries knowledge (C11 with its
//! release sequences), and an access to data that another thread wrote without our knowledge is a race.

use lockwright_platform::Ordering;
use rustc_hash::FxHashMap;

/// A thread's write, as others may know it: the thread, and its clock at the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    thread: u32,
    clock: u32,
}

/// The words that were used last are found by their address's low bits.
const RECENT: usize = 256;

/// What a word passes on.
#[derive(Default)]
struct Known {
    /// Empty if it passes on nothing.
    clock: Vec<u32>,
    /// The clock is all that this thread knew when its own clock had this value: a thread that knows that moment knows
    /// the rest.
    by: Option<(u32, u32)>,
}

/// What every thread knows, and what every word passes on.
pub(crate) struct Orders {
    clocks: Vec<Vec<u32>>,
    known: Vec<Known>,
    words: FxHashMap<usize, u32>,
    recent: Box<[(usize, u32); RECENT]>,
}

impl Default for Orders {
    fn default() -> Self {
        Self {
            clocks: Vec::new(),
            known: Vec::new(),
            words: FxHashMap::default(),
            recent: Box::new([(usize::MAX, 0); RECENT]),
        }
    }
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

impl Known {
    /// Whether a thread with this clock certainly knows all of it.
    fn is_known(&self, clock: &[u32]) -> bool {
        self.clock.is_empty() || self.by.is_some_and(|(by, then)| clock[by as usize] >= then)
    }
}

impl Orders {
    /// Adds a thread. All threads are added before the first one runs.
    pub(crate) fn add_thread(&mut self) {
        for clock in &mut self.clocks {
            clock.push(0);
        }
        let count = self.clocks.len() + 1;
        let mut clock = vec![0; count];
        clock[count - 1] = 1;
        self.clocks.push(clock);
    }

    /// What the word passes on.
    #[inline]
    fn of(&mut self, word: usize) -> usize {
        let place = word / 4 % RECENT;
        let (recent, number) = self.recent[place];
        if recent == word {
            return number as usize;
        }
        let next = u32::try_from(self.known.len()).expect("fewer than 4 G words");
        let number = *self.words.entry(word).or_insert(next);
        if number == next {
            self.known.push(Known::default());
        }
        self.recent[place] = (word, number);
        number as usize
    }

    /// `me` has read the word.
    pub(crate) fn load(&mut self, me: u32, word: usize, order: Ordering) {
        if acquires(order) {
            let number = self.of(word);
            self.acquire(me, number);
        }
    }

    fn acquire(&mut self, me: u32, number: usize) {
        let (mine, known) = (&mut self.clocks[me as usize], &self.known[number]);
        if !known.is_known(mine) {
            join(mine, &known.clock);
        }
    }

    /// `me` has written the word.
    pub(crate) fn store(&mut self, me: u32, word: usize, order: Ordering) {
        let number = self.of(word);
        if releases(order) {
            self.pass_on(me, number);
        } else {
            self.known[number].clock.clear();
        }
    }

    /// `me` has read and written the word, in one step.
    pub(crate) fn modify(&mut self, me: u32, word: usize, order: Ordering) {
        let number = self.of(word);
        if acquires(order) {
            self.acquire(me, number);
        }
        if !releases(order) {
            return;
        }
        let (clock, known) = (&mut self.clocks[me as usize], &mut self.known[number]);
        if acquires(order) || known.is_known(clock) {
            return self.pass_on(me, number);
        }
        join(&mut known.clock, clock);
        known.by = None;
        clock[me as usize] += 1;
    }

    /// The word passes on what `me` knows, and nothing else.
    fn pass_on(&mut self, me: u32, number: usize) {
        let (clock, known) = (&mut self.clocks[me as usize], &mut self.known[number]);
        known.clock.clear();
        known.clock.extend_from_slice(clock);
        known.by = Some((me, clock[me as usize]));
        clock[me as usize] += 1;
    }

    /// The current time on `me`'s own clock.
    pub(crate) fn clock(&self, me: u32) -> u32 {
        self.clocks[me as usize][me as usize]
    }

    /// Does `me` know what `other` had done by its own `clock`?
    pub(crate) fn knows(&self, me: u32, other: u32, clock: u32) -> bool {
        self.clocks[me as usize][other as usize] >= clock
    }

    /// `me` has seen all other threads end.
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

    /// `me` writes plain data that `last` wrote before; `None` if it didn't know about that write.
    pub(crate) fn write(&self, me: u32, last: Option<Stamp>) -> Option<Stamp> {
        let mine = &self.clocks[me as usize];
        let knows = last.is_none_or(|last| mine[last.thread as usize] >= last.clock);
        knows.then(|| Stamp { thread: me, clock: mine[me as usize] })
    }
}

impl Stamp {
    /// The thread that wrote.
    pub(crate) fn thread(self) -> u32 {
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::{AcqRel, Acquire, Relaxed, Release};

    /// Thread 0 writes data and hands over by `give`; thread 1 takes over by `take` and writes. Does it know of the
    /// first write?
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
