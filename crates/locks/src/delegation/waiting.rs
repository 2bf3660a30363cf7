//! How a thread waits for an answer, and how it is answered.

use lockwright_platform::Ordering::{Acquire, Release};
use lockwright_platform::{Platform, Word};

/// A way to wait. A word that is waited for belongs to the asker.
pub trait Patience<P: Platform>: Send + Sync + 'static {
    /// Waits while `word` holds `waiting`; returns the answer, after which the asker sees what the answerer wrote before.
    fn wait(word: &P::Word, waiting: u32) -> u32;

    /// As [`wait`](Self::wait), but at most for about `ns`: returns what the word says then.
    fn wait_for(word: &P::Word, waiting: u32, ns: u32) -> u32 {
        // ORDERING: Acquire, pairs with [answer].
        P::spin_for(word, Acquire, ns, |now| now != waiting)
    }

    /// Lets others run, between two looks at what it waits for.
    fn between() {}

    /// Answers, with all that the caller wrote before. Later the word may be gone.
    ///
    /// # Safety
    /// `word` is valid, and its owner waits for an answer, or will look before it waits.
    unsafe fn answer(word: *const P::Word, answer: u32) {
        // ORDERING: Release [answer]: the section, and its result, come before the asker goes on.
        // SAFETY: the caller's promise.
        unsafe { (*word).store(answer, Release) }
    }
}

/// Stays awake, as published.
#[derive(Debug)]
pub struct Spins;

impl<P: Platform> Patience<P> for Spins {
    fn wait(word: &P::Word, waiting: u32) -> u32 {
        // ORDERING: Acquire, pairs with [answer].
        P::spin_until(word, Acquire, |now| now != waiting)
    }
}

/// Stays awake, and yields its CPU now and then: the papers' variants for more threads than CPUs.
#[derive(Debug)]
pub struct Yields;

/// How long it looks before it yields.
const YIELD_NS: u32 = 500;

impl<P: Platform> Patience<P> for Yields {
    fn wait_for(word: &P::Word, waiting: u32, ns: u32) -> u32 {
        let mut now = waiting;
        for _ in 0..ns / YIELD_NS {
            // ORDERING: Acquire, pairs with [answer].
            now = P::spin_for(word, Acquire, YIELD_NS, |now| now != waiting);
            if now != waiting {
                break;
            }
            P::give_way();
        }
        now
    }

    fn between() {
        P::give_way();
    }

    fn wait(word: &P::Word, waiting: u32) -> u32 {
        loop {
            // ORDERING: Acquire, pairs with [answer].
            let now = P::spin_for(word, Acquire, YIELD_NS, |now| now != waiting);
            if now != waiting {
                return now;
            }
            P::give_way();
            P::pause(0);
        }
    }
}
