//! A thread that waits awake makes a promise to the threads that sleep on the word. Then unlock need not wake anybody.
//!
//! A wake takes a system call, and the woken thread takes microseconds to arrive. If another thread is awake anyway, and
//! takes the lock, all that was for nothing. MUTEXEE's unlock therefore watches the word for a moment before it wakes anybody
//! (Falsafi et al., *Unlocking Energy*, USENIX ATC 2016, section 5). POSIX doesn't allow that: the next holder may free the
//! mutex. So here the waiter announces itself beforehand:
//!
//! ```text
//!   waiter   sees 2, makes it 4 ─┬─ takes the free word, as 2
//!                                └─ gives up: makes it 2 again, or wakes a sleeper if it is free
//!   unlock   word 4 ─► 0, and wakes nobody
//! ```
//!
//! Invariants:
//! 1. A thread that has made the word 4 takes it as 2, or passes a wake on when it gives up, whatever the word says by then. All
//!    steps act on this one word. So an unlock comes either before the second step, which then finds the word free or held again,
//!    or after it, and then the unlock finds 2.
//! 2. A thread that falls asleep makes the word 2, so a promise covers only the threads that slept before it.
//! 3. Nobody promises once it is the head's turn. So after at most `bypass` overtakers some unlock wakes a thread that sleeps on
//!    the word, even if another one always waits awake. (Timed lockers and glibc's code may sleep there for long.)

use super::{FREE, PROMISED, Taken, View, WAITED, pass_on};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Word};

impl<P: Machine> View<'_, P> {
    /// Waits awake for `ns`, and takes the lock if that works. Meanwhile unlock wakes nobody.
    pub fn spin_and_promise(&self, ns: u32) -> Option<Taken> {
        let word = self.parts.word;
        let (mut taken, mut promised) = (None, false);
        P::spin_for(word, Relaxed, ns, |value| {
            match value {
                FREE if promised => taken = self.take_as(WAITED),
                FREE => taken = self.take(),
                // With nobody in line, hardly anybody sleeps on the word: after one wake in vain it is 1 again. (By invariant 3.)
                // STATE: (2, q, s) -> (4, q, s). Relaxed: it changes what an unlock does, and publishes nothing.
                WAITED if !self.is_line_empty() && self.may_overtake() => {
                    promised |= word.compare_exchange(WAITED, PROMISED, Relaxed, Relaxed).is_ok();
                }
                _ => {}
            }
            // Is it the head's turn? Then the head may be asleep, and we owe it a wake now.
            taken.is_some() || promised && value == FREE && !self.may_overtake()
        });
        if promised && taken.is_none() {
            pass_on::<P>(word);
        }
        taken
    }
}
