//! Word 0: the lock itself, in glibc's own protocol. [`Word0`] has all of its transitions as named functions, and nothing else of ours
//! writes the word.
//!
//! ```text
//!   0 FREE       nobody holds the lock
//!   1 HELD       held, and nobody needs a wake
//!   2 WAITED     held, and somebody may sleep on the word: unlock owes a wake
//!   3 CHAINED    held, within a chain of grants (grant.rs), and nobody needs a wake      ┐ to glibc's code these two are
//!   4 PROMISED   held, unlock takes the slow path and owes no wake: a waiter that is     ┘ just "more than 1"
//!                awake cares for the sleepers, or there are none
//!
//!            take                begin_chain              promise
//!   0 ─────────────► 1 ────────────────────────► 3     2 ─────────► 4      divert:                   1 ─► 4
//!   ▲                │ ◄────── end_chain ─────── │     │            │      mark, owe_wake, pass_on:  1, 3, 4 ─► 2
//!   ├──── give ──────┘                           │     │            │      take, after a sleep:      0 ─► 2
//!   ├──── give_chained ──────────────────────────┘     │            │      mark, if it is free:      0 ─► 2
//!   └──── release: from 1 to 4 ────────────────────────┴────────────┘
//! ```
//!
//! State: (word, q threads in line, s asleep on the word). The transitions:
//!
//! | who | from | to | function |
//! |---|---|---|---|
//! | arrival, or head that never slept | (0, q, s) | (1, q, s) held by it | [`try_take`](Word0::try_take), [`take`](Word0::take) |
//! | a thread that has slept | (0, q, s) | (2, q, s) held by it | [`take`](Word0::take) |
//! | a thread that found the word held | (1, 3 or 4, q, s) | (2, q, s + 1), then sleeps on the word | [`mark`](Word0::mark) |
//! | the same, if the word is free by then | (0, q, s) | (2, q, s) held by it | [`mark`](Word0::mark) |
//! | head that leaves; its successor sleeps at its gate | (1, 3 or 4, q, s) | (2, q, s + 1): the head moves the successor to the word | [`owe_wake`](Word0::owe_wake) |
//! | signal, by the holder | (1, 3 or 4, q, s) | (2, q, s + 1): a condvar's sleeper now sleeps on the word | [`owe_wake`](Word0::owe_wake) |
//! | head that acquired; its successor is awake, or nobody is behind it yet | (1, q, s) | (3, q, s): the head stays in the line | [`begin_chain`](Word0::begin_chain) |
//! | unlock by a holder that stayed | (3, q, s) | (3, q - 1, s), held by its successor | none: the successor's gate |
//! | holder by a grant that leaves the line | (3, q, s) | (1, q, s) | [`end_chain`](Word0::end_chain) |
//! | a thread that waits awake, and promises to take care of the sleepers | (2, q, s) | (4, q, s) | [`promise`](Word0::promise) |
//! | a thread that has promised, or may have been woken at the word, and does not acquire | (1, 3 or 4, q, s) | (2, q, s); or it wakes a sleeper | [`pass_on`](Word0::pass_on) |
//! | a thread that wants the holder to unlock by the slow path | (1, q, s) | (4, q, s) | [`divert`](Word0::divert) |
//! | unlock by a holder that stayed, and has left the line empty | (3, q, s) | (0, q, s) | [`give_chained`](Word0::give_chained) |
//! | unlock by the fast path; an arrival that must not overtake | (1, q, s) | (0, q, s) | [`give`](Word0::give), [`put_back`](Word0::put_back) |
//! | unlock | (1 to 4, q, s) | (0, q, s), then wakes those whom signals moved here, or, if it was 2, a sleeper | [`release`](Word0::release) |
//! | the only thread of a process | (0, 0, 0) | (1, 0, 0), and back | [`take_alone`](Word0::take_alone), [`give_alone`](Word0::give_alone) |
//! | glibc's code | any | the same, without 3 and 4 | its own |
//!
//! Invariants:
//! 1. The *duty* to wake is glibc's own. While anybody sleeps on the word, the word is 2; or a thread that an unlock has woken is
//!    on its way and will make the word 2; or a thread that waits awake has promised to do so. So a thread that has slept, on the
//!    word or at a gate, acquires by writing 2. An unlock, by our code or by glibc's, needs to know only the word.
//! 2. After the write of 0 that releases, or after the grant, unlock uses nothing but the address, for futex calls: the mutex may be
//!    gone by then.

use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Woken, Word};

/// Word 0: nobody holds the lock.
pub const FREE: u32 = 0;
/// Word 0: held, and nobody needs a wake.
pub const HELD: u32 = 1;
/// Word 0: held, and unlock owes somebody a wake.
pub const WAITED: u32 = 2;
/// Word 0: held, within a chain of grants, and nobody needs a wake.
pub const CHAINED: u32 = 3;
/// Word 0: held; unlock takes the slow path and owes no wake: a thread that waits awake takes care of the sleepers, or there are none.
pub const PROMISED: u32 = 4;

/// Word 0 of a mutex.
#[repr(transparent)]
pub struct Word0<P: Machine>(P::Word);

impl<P: Machine> Word0<P> {
    /// A word 0 with this content.
    pub const fn of(word: P::Word) -> Self {
        Self(word)
    }

    /// What the word says now: a hint, stale as soon as it is read.
    #[inline(always)]
    pub fn now(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Is the lock free? A hint.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.now() == FREE
    }

    /// Is the word within a chain of grants? What its first holder wrote before is visible.
    pub(crate) fn is_chained(&self) -> bool {
        // ORDERING: Acquire, pairs with [begin]: a thread that began a chain after ours has ended our node.
        self.0.load(Acquire) == CHAINED
    }

    /// Makes the word say this, and returns what it said.
    #[cfg(test)]
    pub(crate) fn set(&self, value: u32) -> u32 {
        self.0.swap(value, Relaxed)
    }

    /// Where the word is, for futex calls.
    pub fn address(&self) -> *const P::Word {
        &raw const self.0
    }

    /// Waits awake for `ns` at most, until `done`, which sees each new value.
    pub fn spin_for(&self, ns: u32, done: impl FnMut(u32) -> bool) -> u32 {
        P::spin_for(&self.0, Relaxed, ns, done)
    }

    /// Waits awake, without a bound, until `done`.
    pub(crate) fn spin_until(&self, done: impl Fn(u32) -> bool) {
        P::spin_until(&self.0, Relaxed, done);
    }

    /// Takes a free word; the first try of every slow path.
    #[inline]
    pub fn try_take(&self) -> bool {
        self.is_free() && self.take(false)
    }

    /// Takes a free word. `slept`: the caller has slept, so it may owe somebody a wake (invariant 1).
    #[inline(always)]
    pub fn take(&self, slept: bool) -> bool {
        // ORDERING: Acquire, pairs with [release]: what the last holder wrote is ours to see.
        // STATE: (0, q, s) -> (1 or 2, q, s).
        self.0.compare_exchange(FREE, if slept { WAITED } else { HELD }, Acquire, Relaxed).is_ok()
    }

    /// Makes the word 2, before the caller sleeps on it. `true`: it was free, and the caller has it now.
    pub fn mark(&self) -> bool {
        // ORDERING: Acquire, pairs with [release] if it was free. Release is not needed: the unlock that finds this 2
        // looks at nothing but the word.
        // STATE: (0, q, s) -> (2, q, s) held by us, or (1|3|4, q, s) -> (2, q, s) and we sleep.
        self.0.swap(WAITED, Acquire) == FREE
    }

    /// Sleeps while the word is 2.
    pub fn sleep(&self, deadline: Option<P::Deadline>) -> Woken {
        P::park(&self.0, WAITED, deadline)
    }

    /// As [`sleep`](Self::sleep), for a thread with a real-time policy: any wake may be for it.
    pub(crate) fn sleep_urgently(&self, deadline: Option<P::Deadline>) -> Woken {
        P::park_urgent(&self.0, WAITED, deadline)
    }

    /// The holder has moved a sleeper to the word, or is about to: its unlock owes a wake.
    pub fn owe_wake(&self) {
        // STATE: (1|3|4, q, s) -> (2, q, s + 1). Relaxed: we hold it, and only our own unlock has to see it.
        self.0.swap(WAITED, Relaxed);
    }

    /// The holder, which is head, stays in the line and will grant the lock.
    pub(crate) fn begin_chain(&self) {
        // [begin] STATE: (1, q, s) -> (3, q, s), or it is 2 or 4. ORDERING: Release, pairs with the Acquire of `is_chained`:
        // no dead node in the line appears to hold the lock.
        // SURVIVES: needs code that knows nothing of chains, and a signal, under the same mutex.
        // SURVIVES no-store: a chain that the word doesn't show ends like one that was left behind (grant.rs, invariant 3).
        let _ = self.0.compare_exchange(HELD, CHAINED, Release, Relaxed);
    }

    /// The holder leaves the line: there is no chain any more. Somebody may sleep on the word; then it stays 2.
    pub(crate) fn end_chain(&self) {
        if self.now() == CHAINED {
            // STATE: (3, q, s) -> (1, q, s). Relaxed: we hold it. It may have become 2.
            let _ = self.0.compare_exchange(CHAINED, HELD, Relaxed, Relaxed);
        }
    }

    /// A waiter that is awake promises to take care of those who sleep on the word: it will take the word as 2, or pass a wake on.
    pub(crate) fn promise(&self) -> bool {
        // STATE: (2, q, s) -> (4, q, s). Relaxed: it changes what an unlock does, and publishes nothing.
        self.0.compare_exchange(WAITED, PROMISED, Relaxed, Relaxed).is_ok()
    }

    /// Makes the holder release the lock by the slow path, if the holder has not been asked yet. It costs the holder no wake.
    pub fn divert(&self) {
        // STATE: (1, q, s) -> (4, q, s). Relaxed: it changes what an unlock does, and publishes nothing. Nobody sleeps on a word that
        // says 1, except threads that an unlock has woken; and a thread that falls asleep makes it 2. The word may also be 2 or 3.
        let _ = self.0.compare_exchange(HELD, PROMISED, Relaxed, Relaxed);
    }

    /// The caller may have been woken at the word, and does not acquire. Passes the wake on to another sleeper there, now or
    /// by the holder's unlock.
    pub fn pass_on(&self) {
        let mut now = HELD;
        // STATE: (1|3|4, q, s) -> (2, q, s). Relaxed: it only says "look", and the holder reads it by an RMW. Ours is an RMW, too:
        // a load might read an old 2.
        while let Err(seen) = self.0.compare_exchange(now, WAITED, Relaxed, Relaxed) {
            match seen {
                // A thread may take the word meanwhile, but if it hasn't slept it owes no wake. So we wake somebody all the same.
                // EXPLORED: needs four threads, two of them asleep on the word.
                FREE => return P::unpark(&raw const self.0, 1),
                WAITED => return,
                _ => now = seen,
            }
        }
    }

    /// Releases a word that is 1: nobody needs a wake. `false`: it isn't 1.
    #[inline(always)]
    pub fn give(&self) -> bool {
        // [give] ORDERING: Release, pairs with every Acquire that takes the word.
        // STATE: (1, q, s) -> (0, q, s).
        self.0.compare_exchange(HELD, FREE, Release, Relaxed).is_ok()
    }

    /// Releases a word that is 3, by a holder that has just left the line empty. `false`: it isn't 3.
    pub(crate) fn give_chained(&self) -> bool {
        // ORDERING: Release, pairs with every Acquire that takes the word.
        // STATE: (3, q, s) -> (0, q, s). From here on nothing, by invariant 2.
        self.0.compare_exchange(CHAINED, FREE, Release, Relaxed).is_ok()
    }

    /// May the lock be held by a node?
    pub(crate) fn may_be_by_node(now: u32) -> bool {
        [CHAINED, WAITED, PROMISED].contains(&now)
    }

    /// As [`now`](Self::now), for a thread that will soon write to the word's cache line.
    pub(crate) fn now_to_write(&self) -> u32 {
        P::load_to_write(&self.0)
    }

    /// Gives back a word that the caller took a moment ago; nothing was done under the lock. `false`: it isn't 1.
    pub(crate) fn put_back(&self) -> bool {
        // ORDERING: Release, pairs with every Acquire that takes the word.
        // SURVIVES: we did nothing; as an RMW it carries on what the last holder has released.
        // STATE: (1, q, s) -> (0, q, s).
        self.0.compare_exchange(HELD, FREE, Release, Relaxed).is_ok()
    }

    /// Releases, and then wakes `moved` threads that signals moved here, or else, if the word was 2, a thread that sleeps on the word.
    pub(crate) fn release(&self, moved: u32) {
        let address = self.address();
        // [release] ORDERING: Release, pairs with every Acquire that takes the word.
        // STATE: (1 to 4, q, s) -> (0, q, s). From here on only the address, by invariant 2.
        let was = self.0.swap(FREE, Release);
        debug_assert!(was != FREE || moved == 0, "released a lock that nobody holds");
        // The count of moved threads is too high if one woke up by itself. Then the wake goes to another sleeper.
        // SURVIVES: without it they are woken one by one, by the duty that each passes on.
        let woken = if moved > 0 { P::unpark_moved(address, moved) } else { 0 };
        if woken == 0 && was == WAITED {
            P::unpark(address, 1);
        }
    }

    /// Releases as glibc's own code does: checkers stand in for that code. Returns what the word said.
    pub fn release_as_glibc(&self) -> u32 {
        // ORDERING: Release, pairs with every Acquire that takes the word.
        // STATE: (1 to 4, q, s) -> (0, q, s).
        self.0.swap(FREE, Release)
    }

    /// The only thread of a process takes a free word.
    #[inline(always)]
    pub fn take_alone(&self) {
        self.0.store(HELD, Relaxed); // nobody else is there to see it
    }

    /// The only thread of a process releases a word that is 1.
    #[inline(always)]
    pub fn give_alone(&self) {
        self.0.store(FREE, Relaxed); // nobody else is there to see it
    }
}
