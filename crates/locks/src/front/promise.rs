//! A promise to those who sleep on the word, by a thread that waits awake: then unlock need not wake anybody.
//!
//! A wake takes a system call, and the thread that has been woken takes microseconds to come. If another one is awake anyway, and
//! takes the lock, all that was for nothing. MUTEXEE's unlock therefore watches the word for a moment before it wakes anybody
//! (Falsafi et al., *Unlocking Energy*, USENIX ATC 2016, section 5). POSIX doesn't allow that: the next holder may free the
//! mutex. So the waiter says beforehand that it is there:
//!
//! ```text
//!   waiter   sees 2, makes it 4 ─┬─ takes the free word, as 2
//!                                └─ gives up: makes it 2 again, or wakes a sleeper if it is free
//!   unlock   word 4 ─► 0, and wakes nobody
//! ```
//!
//! Invariants:
//! 1. A thread that has made the word 4 takes it as 2, or passes a wake on when it gives up, whatever the word says by then. All
//!    steps are on the one word: an unlock comes before the second step, which then finds the word free or held again, or
//!    after it, and finds 2.
//! 2. Whoever falls asleep makes it 2, so a promise holds for those only who slept before it.
//! 3. Nobody promises once the head's turn has come. So among `bypass` overtakers at most there is an unlock that wakes one of
//!    those who sleep on the word, though always somebody waits awake: timed lockers, and glibc's code, sleep there for long.

use super::{FREE, PROMISED, Taken, View, WAITED, pass_on};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

impl<P: Platform> View<'_, P> {
    /// Waits awake for `ns`, and takes the lock if that works. Meanwhile unlock wakes nobody.
    pub fn spin_and_promise(&self, ns: u32) -> Option<Taken> {
        let word = self.parts.word;
        let (mut taken, mut promised) = (None, false);
        P::spin_for(word, Relaxed, ns, |value| {
            match value {
                FREE if promised => taken = self.take_as(WAITED),
                FREE => taken = self.take(),
                // With nobody in line hardly anybody sleeps there: one wake in vain, and the word is 1 again. (By invariant 3.)
                // STATE: (2, q, s) -> (4, q, s). Relaxed: it changes what an unlock does, and publishes nothing.
                WAITED if !self.is_line_empty() && self.may_overtake() => {
                    promised |= word.compare_exchange(WAITED, PROMISED, Relaxed, Relaxed).is_ok();
                }
                _ => {}
            }
            // Has the head's turn come? Then it may be asleep, and the wake that this one owes is due.
            taken.is_some() || promised && value == FREE && !self.may_overtake()
        });
        if promised && taken.is_none() {
            pass_on::<P>(word);
        }
        taken
    }
}
