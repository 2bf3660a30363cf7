//! What only some locks have: waits of readers and of writers, tries in vain, and the wake-ups of a condition variable.

use serde::Serialize;

/// Of one lock. `S` is a place in the program.
#[derive(Clone, Debug, Serialize)]
pub struct Beyond<S> {
    /// How often a thread tried to take it, and didn't get it. These are no waits.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_tries: u64,
    /// Places that tried in vain, sorted by how often.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triers: Vec<S>,
    /// Places that held the lock meanwhile, as far as they were seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried_holders: Vec<S>,
    /// Of a readers-writer lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sides: Option<Sides>,
    /// Of a condition variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakes: Option<Wakes>,
}

impl<S> Default for Beyond<S> {
    fn default() -> Self {
        let (triers, tried_holders) = (Vec::new(), Vec::new());
        Self { failed_tries: 0, triers, tried_holders, sides: None, wakes: None }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The waits for a readers-writer lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sides {
    /// Who goes first.
    pub prefer: Prefers,
    /// The readers' waits.
    pub readers: Side,
    /// The writers' waits.
    pub writers: Side,
}

/// Who goes first when readers and writers wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefers {
    /// Readers, also those that come after a waiting writer.
    #[default]
    Readers,
    /// Writers, but readers may join readers.
    Writers,
    /// Writers; a thread that reads again may wait for one that waits for it.
    #[serde(rename = "strict")]
    WritersStrictly,
    /// By turns: readers let a waiting writer go first, for a while.
    Patient,
}

impl Prefers {
    /// By glibc's number, or 3 for [`Patient`](Self::Patient).
    pub(super) fn of(number: u32) -> Self {
        match number {
            0 => Self::Readers,
            2 => Self::WritersStrictly,
            3 => Self::Patient,
            _ => Self::Writers,
        }
    }
}

/// The waits of the readers, or those of the writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Their number.
    pub waits: u64,
    /// Total waiting time, ns.
    pub wait_ns: u64,
    /// The longest wait, ns; over the whole run.
    pub max_ns: u64,
    /// Waits that began while readers held the lock.
    pub behind_readers: u64,
    /// Waits that began while a writer held it.
    pub behind_writer: u64,
}

/// What happened to the waiters of a condition variable. Calls that found no waiter don't count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wakes {
    /// The address of the mutex that it was last used with; 0: not known.
    pub mutex: u64,
    /// Calls that wake one waiter.
    pub signals: u64,
    /// Calls that wake all.
    pub broadcasts: u64,
    /// Threads that these calls woke.
    pub woken: u64,
    /// How many of them released the mutex next.
    pub got_on: u64,
    /// How many of them waited again first: those were woken for nothing.
    pub wasted: u64,
    /// Calls of threads whose own last wait was for this condition variable.
    pub by_waiters: u64,
}

impl<S> Beyond<S> {
    /// Applies `change` to each number and the same one of `other`; the places are the caller's.
    fn change(&mut self, other: &Self, change: impl Fn(&mut u64, u64)) {
        change(&mut self.failed_tries, other.failed_tries);
        if let Some(theirs) = &other.sides {
            let mine =
                self.sides.get_or_insert(Sides { prefer: theirs.prefer, ..Sides::default() });
            for (mine, theirs) in
                [(&mut mine.readers, theirs.readers), (&mut mine.writers, theirs.writers)]
            {
                change(&mut mine.waits, theirs.waits);
                change(&mut mine.wait_ns, theirs.wait_ns);
                change(&mut mine.behind_readers, theirs.behind_readers);
                change(&mut mine.behind_writer, theirs.behind_writer);
            }
        }
        if let Some(theirs) = &other.wakes {
            let mine = self.wakes.get_or_insert(Wakes { mutex: theirs.mutex, ..Wakes::default() });
            change(&mut mine.signals, theirs.signals);
            change(&mut mine.broadcasts, theirs.broadcasts);
            change(&mut mine.woken, theirs.woken);
            change(&mut mine.got_on, theirs.got_on);
            change(&mut mine.wasted, theirs.wasted);
            change(&mut mine.by_waiters, theirs.by_waiters);
        }
    }

    /// Adds another lock's numbers, without the places.
    pub(super) fn add(&mut self, other: &Self) {
        self.change(other, |mine, theirs| *mine = mine.saturating_add(theirs));
        if let (Some(mine), Some(theirs)) = (&mut self.sides, &other.sides) {
            mine.readers.max_ns = mine.readers.max_ns.max(theirs.readers.max_ns);
            mine.writers.max_ns = mine.writers.max_ns.max(theirs.writers.max_ns);
        }
    }

    /// Subtracts the numbers at an earlier moment, without the places.
    pub(super) fn subtract(&mut self, before: &Self) {
        self.change(before, |now, then| *now = now.saturating_sub(then));
        if let (Some(now), Some(then)) = (&mut self.sides, &before.sides) {
            for (now, then) in [(&mut now.readers, then.readers), (&mut now.writers, then.writers)]
            {
                if now.max_ns == then.max_ns {
                    now.max_ns = now.max_ns.min(now.wait_ns); // it is older, so nothing more is known
                }
            }
        }
    }

    /// The same numbers, with other places.
    pub(super) fn with<T>(&self, mut places: impl FnMut(&[S]) -> Vec<T>) -> Beyond<T> {
        let (triers, tried_holders) = (places(&self.triers), places(&self.tried_holders));
        let Self { failed_tries, sides, wakes, .. } = *self;
        Beyond { failed_tries, triers, tried_holders, sides, wakes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beyond(number: u64) -> Beyond<u8> {
        let side = Side {
            waits: number,
            wait_ns: 10 * number,
            max_ns: 10,
            behind_readers: number,
            behind_writer: number,
        };
        let wakes = Wakes { mutex: 64, woken: number, wasted: number, ..Wakes::default() };
        Beyond {
            failed_tries: number,
            sides: Some(Sides { prefer: Prefers::Writers, readers: side, writers: side }),
            wakes: Some(wakes),
            ..Beyond::default()
        }
    }

    #[test]
    fn numbers_are_added_and_subtracted() {
        let mut sum = Beyond::default();
        sum.add(&beyond(3));
        sum.add(&beyond(4));
        assert_eq!((sum.failed_tries, sum.wakes), (7, beyond(7).wakes));
        assert_eq!(sum.sides, beyond(7).sides);
        sum.subtract(&beyond(3));
        assert_eq!((sum.failed_tries, sum.wakes), (4, beyond(4).wakes));
        assert_eq!(sum.sides, beyond(4).sides);
    }

    #[test]
    fn what_a_lock_does_not_have_is_not_written() {
        assert_eq!(serde_json::to_string(&Beyond::<u8>::default()).unwrap(), "{}");
    }
}
