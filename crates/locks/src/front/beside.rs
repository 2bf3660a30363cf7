//! Beside the line: threads that wait awake, and are counted; and threads that doze.
//!
//! *Dozing* keeps the number of runners constant where threads outnumber the CPUs. A thread that falls asleep in the line wakes
//! nobody. The line's head has been woken, but often it waits for a CPU that a runner keeps, while another CPU falls
//! idle: Linux moves the head there only milliseconds later. So a thread that must sleep first dozes on the word, as glibc's
//! waiters do:
//!
//! ```text
//!   line     head, woken, waits for CPU 0 ◄─ next ◄─ next ...
//!   CPU 0    R: [cs] gap [cs] gap [cs] ...  each unlock that finds the word 2 wakes a thread that sleeps there
//!   CPU 1    T: finds it held, makes the word 2, dozes ─ woken, takes it [cs] gap ...
//! ```
//!
//! (Real, 2 CPUs, 32 threads, 2 us in and 10 us out: 0.64 of glibc's throughput with one CPU idle, 1.01 with dozing.)
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. A thread that dozed takes the word like any arrival: it is counted, up to `bypass`.
//! 2. It takes the word as 2, or passes on the wake that it may have got. If it is the head's turn, it passes it on at once.

use super::{Taken, View, WAITED, mark, pass_on, side};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Woken, Word};

impl<P: Machine> View<'_, P> {
    /// The number of threads that wait beside the line and have [counted](Self::count_in) themselves.
    pub fn beside(&self) -> u32 {
        self.beside_in(self.parts.side.load(Relaxed))
    }

    /// As [`beside`](Self::beside), by this value of the side word. Threads from before a fork don't count.
    pub(super) fn beside_in(&self, side: u32) -> u32 {
        if side & side::ERA == self.era() { (side & side::SPINNERS) / side::SPINNER } else { 0 }
    }

    /// The era, as the side word holds it.
    fn era(&self) -> u32 {
        (self.tuning.era as u32).wrapping_mul(side::FORK)
    }

    /// Counts the calling thread as one that waits beside the line, if fewer than `most` do.
    pub fn count_in(&self, most: u32) -> bool {
        let side = self.parts.side;
        let mut now = side.load(Relaxed); // the exchange checks it again
        loop {
            let beside = self.beside_in(now);
            if beside >= most.min(side::SPINNERS / side::SPINNER) {
                return false;
            }
            let others = now & !(side::SPINNERS | side::ERA) | self.era();
            let counted = others | ((beside + 1) * side::SPINNER);
            // Relaxed: a count, it publishes nothing. Not a fetch_add: that could carry into the next field.
            match side.compare_exchange(now, counted, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.seat.inspect(|seat| seat.is_beside(true));
        true
    }

    /// The opposite of [`count_in`](Self::count_in).
    pub fn count_out(&self) {
        self.seat.inspect(|seat| seat.is_beside(false));
        if self.beside() > 0 {
            self.parts.side.fetch_sub(side::SPINNER, Relaxed); // a count: it publishes nothing
        }
    }

    /// Waits as glibc's own code does: makes the word 2, and sleeps on it whenever it isn't free. `None`: it is the turn of a head
    /// in line, behind which the caller should join.
    pub fn sleep_on_word(&self) -> Option<Taken> {
        let mut sleeps = self.parts.word.load(Relaxed) == WAITED; // glibc, too, looks before it swaps
        loop {
            if !sleeps && mark::<P>(self.parts.word) {
                return self.overtakes(WAITED);
            }
            P::park(self.parts.word, WAITED, None);
            sleeps = false;
        }
    }

    /// Sleeps on the word, at most `times` times and for at most `ns` in all, while threads outnumber the CPUs and the line's head may
    /// be overtaken. An unlock that finds 2 wakes one of the threads that sleep there: real-time threads first, otherwise by arrival.
    pub fn doze(&self, times: u32, ns: u32) -> Option<Taken> {
        let may = || {
            let in_crowd = self.is_crowded() && !self.is_line_empty();
            in_crowd && !self.is_saturated() && !self.is_left() && self.may_overtake()
        };
        let deadline = P::after(ns);
        for _ in 0..times {
            if !may() {
                break;
            }
            if mark::<P>(self.parts.word) {
                return self.overtakes(WAITED);
            }
            // SURVIVES no-compare: it sleeps for `ns` at most.
            if P::park(self.parts.word, WAITED, Some(deadline)) == Woken::TimedOut {
                break; // only because the kernel says so: had it woken us, we would owe a wake
            }
            let mut taken = None;
            if may() {
                self.spin_for(|_| {
                    taken = self.take_as(WAITED);
                    taken.is_some()
                });
            }
            if taken.is_some() {
                return taken;
            }
            pass_on::<P>(self.parts.word);
        }
        None
    }
}
