//! Front locks: word 0 of `pthread_mutex_t` is the lock, in glibc's own protocol; what differs is who
//! waits, where, and who may overtake whom.
//!
//! ```text
//!                      ┌ spinners: at most `spinners`, awake for `spin_ns` at most
//!            arrivals ─┤
//!   word 0 ◄───────────┴ line:  head ─► waiter ─► waiter ◄─ tail     (nodes on the waiters' stacks)
//!   0|1|2   ◄─ sleepers on word 0 itself: timed lockers, requeued condvar waiters, glibc's own code
//! ```
//!
//! Word 0 is 0 (free), 1 (held) or 2 (held, and the holder's unlock owes somebody a wake). A fast path
//! takes 0 -> 1 and, if it still finds 1, releases 1 -> 0; everything here is off that path.
//!
//! State: (word, line, sleepers).  What moves it:
//!
//! | who | from | to |
//! |---|---|---|
//! | arrival, spinner, awake head | (0, q, s) | (1, q, s) held by it |
//! | head about to sleep | (1, q, s) | (2, q, s), then sleeps on its gate |
//! | head, having acquired | (1, h:q, s) | (1, q, s), or (2, q, s) if `q`'s head sleeps or s > 0 |
//! | sleeper on word 0 | (1, q, s) | (2, q, s + 1), then sleeps on the word |
//! | signal, by the holder | (1, q, s) | (2, q, s + 1), a condvar's sleeper now sleeps on the word |
//! | unlock | (1, q, s) | (0, q, s) |
//! | unlock | (2, h:q, s) | h's gate open, then (0, h:q, s), then wake h by address |
//! | unlock | (2, -, s) | (0, -, s), then wake one that sleeps on the word, by address |
//!
//! Invariants:
//! 1. Whoever sleeps as head stored ASLEEP in its gate and then found the word held and made it 2.
//! 2. Whoever slept, at its gate or on the word, acquires so that the word says 2 if somebody still
//!    needs a wake: a woken thread inherits the duty of its waker. So nobody else needs to count.
//! 3. Only the holder takes a waiter out of the line, and only itself; so all waiters of the line, and
//!    their stacks, stay where they are while the lock is held.
//! 4. After the write of 0 that releases, unlock uses nothing but addresses, for futex calls: the mutex
//!    and the waiter may be gone by then.
//! 5. An unlock that found 2 calls the kernel *after* it wrote 0, whether or not the gate said ASLEEP: a
//!    head that finds its gate open while the word is still held shuts it again and makes the word 2. So
//!    unlock writes 0 only over the 1 that it has put there, and otherwise starts again.
//! 6. `head` is written by the holder, or by the waiter that found the line empty, never by both: the
//!    holder clears `head` before it lets the line become empty.

mod alone;
pub mod asl;
pub mod asl_max;
pub mod asl_opt;
pub mod auto;
pub mod barging;
mod batch;
pub mod fifo;
mod line;
pub mod pb10;
mod tuning;
mod words;

pub use alone::{Alone, Arrival, Front};
pub use line::Waiter;
pub(crate) use tuning::option_bypass;
pub use tuning::{ANY, OPTION_SPIN, OPTION_SPINNERS, SPIN_NS, Tuning, Window};
pub use words::{mood, side};

use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Woken, Word};

/// Word 0: nobody holds the lock.
pub const FREE: u32 = 0;
/// Word 0: held, and nobody needs a wake.
pub const HELD: u32 = 1;
/// Word 0: held, and unlock owes somebody a wake.
pub const WAITED: u32 = 2;

/// A front lock's memory: inside a `pthread_mutex_t`, or in an [`Alone`].
pub struct Parts<'a, P: Platform> {
    /// Word 0.
    pub word: &'a P::Word,
    /// Small fields, see [`side`].
    pub side: &'a P::Word,
    /// What the lock has learnt, see [`mood`]; the lower half belongs to the runtime.
    pub mood: &'a P::Word,
    /// The last waiter of the line, with the era in its low bits; null: nobody queues.
    pub tail: &'a P::Ptr<Waiter<P>>,
    /// The first waiter of the line, with the era in its low bits. Written as invariant 6 says.
    pub head: &'a P::Ptr<Waiter<P>>,
}

impl<P: Platform> Clone for Parts<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Platform> Copy for Parts<'_, P> {}

/// An arrival takes a free word past the line's head, if the head has not been overtaken too often.
///
/// From a quarter of the bound on, one arrival in 32 is sent to join the line instead. With more threads
/// than CPUs the head, woken long ago, may wait for a CPU: that arrival, going to sleep, gives it one, and
/// the others need not all stop for it.
#[inline]
fn overtake<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) -> bool {
    if parts.mood.load(Relaxed) & mood::NAPPING != 0 {
        return try_take::<P>(parts.word); // it leaves the lock to us, for a bounded time
    }
    let now = parts.side.load(Relaxed); // re-checked by the exchange
    let overtaken = (now & side::BYPASSES) / side::BYPASS;
    if parts.word.load(Relaxed) != FREE || overtaken >= tuning.bypass {
        return false;
    }
    // A compare-and-swap, so that the count can't pass its bound. Relaxed: a count, it publishes nothing.
    let counted = parts.side.compare_exchange(now, now + side::BYPASS, Relaxed, Relaxed).is_ok();
    let sent = overtaken >= tuning.bypass / 4 && overtaken % 32 == 31;
    counted && !sent && take::<P>(parts.word)
}

/// Is the word free, and nobody in the line? A hint.
pub(crate) fn is_free<P: Platform>(parts: &Parts<'_, P>) -> bool {
    parts.word.load(Relaxed) == FREE && parts.tail.load(Relaxed).is_null()
}

/// Takes a free word; the first try of every slow path.
#[inline]
pub fn try_take<P: Platform>(word: &P::Word) -> bool {
    word.load(Relaxed) == FREE && take::<P>(word)
}

#[inline]
fn take<P: Platform>(word: &P::Word) -> bool {
    // ORDERING: Acquire, pairs with [release]: what the last holder wrote is ours to see.
    // STATE: (0, q, s) -> (1, q, s).
    word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
}

/// Acquires before `deadline`, sleeping on word 0; `false` if it passed first.
///
/// Timed lockers never join the line, so that they can leave at any time.
#[cold]
pub fn lock_until<P: Platform>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    deadline: P::Deadline,
) -> bool {
    sleep_on_word(parts, tuning.spin_ns, Some(deadline))
}

/// Acquires by glibc's own algorithm: make the word 2, sleep on it.
#[cold]
pub fn lock_as_glibc<P: Platform>(parts: Parts<'_, P>) {
    sleep_on_word(parts, 0, None);
}

/// Acquires, for a condvar waiter that a signal moved to word 0 (see [`adopt`]), and that is awake now.
#[cold]
pub fn lock_moved<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) {
    let mut got = false;
    P::spin_for(parts.word, Relaxed, tuning.awake_ns::<P>(parts.side), |value| {
        got = value == FREE && take::<P>(parts.word);
        got
    });
    if got {
        inherit_duty(&parts, false);
    } else {
        sleep_on_word(parts, 0, None);
    }
}

/// Acquires by sleeping on word 0, counted as a sleeper.
fn sleep_on_word<P: Platform>(
    parts: Parts<'_, P>,
    spin_ns: u32,
    deadline: Option<P::Deadline>,
) -> bool {
    let counted = add_sleeper::<P>(parts.side);
    let got = loop {
        let mut got = false;
        P::spin_for(parts.word, Relaxed, spin_ns, |value| {
            // ORDERING: Acquire, pairs with [release].
            // STATE: (0, q, s) -> (2, q, s) held by us, as invariant 2 wants.
            got = value == FREE
                && parts.word.compare_exchange(FREE, WAITED, Acquire, Relaxed).is_ok();
            got
        });
        if got {
            break true;
        }
        // ORDERING: Acquire, pairs with [release]. Release: publishes our count in `side` to the unlock
        // that finds this 2, [mark] (and to whoever acquires after it: the RMWs of the word are a chain).
        // STATE: (0, q, s) -> (2, q, s) held by us, or (1|2, q, s) -> (2, q, s) and we sleep.
        // SURVIVES: an unlock that misses the count wakes one at the word all the same, unless it sees a head.
        if parts.word.swap(WAITED, AcqRel) == FREE {
            break true;
        }
        if P::park(parts.word, WAITED, deadline) == Woken::TimedOut {
            // Only the kernel's own word for it counts: had it woken us, we would owe a wake.
            break false;
        }
    };
    if counted {
        // Relaxed: a count that is too high for a while costs a system call, nothing else.
        parts.side.fetch_sub(side::SLEEPER, Relaxed);
    }
    got
}

/// Counts one more thread that is about to sleep on word 0; `false`: there were too many to count, and the
/// word is treated as glibc's from now on.
fn add_sleeper<P: Platform>(side: &P::Word) -> bool {
    let mut now = side.load(Relaxed); // re-checked by the exchange
    loop {
        if now & side::SLEEPERS == side::SLEEPERS {
            side.fetch_or(side::FOREIGN, Relaxed); // published as the count below
            return false;
        }
        // Relaxed: published by the swap of word 0 that follows, see `sleep_on_word`.
        match side.compare_exchange(now, now + side::SLEEPER, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(seen) => now = seen,
        }
    }
}

/// From now on glibc's own code may unlock: everybody sleeps on word 0, where it looks for them. The caller
/// holds the lock; `has_line` as for [`unlock_slow`].
pub fn make_foreign<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning, has_line: bool) {
    parts.side.fetch_or(side::FOREIGN, Relaxed); // we hold the lock, and our own writes come later
    // ORDERING: AcqRel, pairs with [foreign] in line.rs: either a head that is about to sleep sees it, or we
    // see that head, and its gate ASLEEP.
    // SURVIVES: the Release; a head that sees it counts itself at the word, whatever it sees of `side`.
    parts.mood.fetch_or(mood::FOREIGN_UNLOCK, AcqRel);
    let head = if has_line { line::head::<P>(&parts, tuning.era) } else { core::ptr::null() };
    if !head.is_null() {
        // SAFETY: by invariant 3: we hold the lock.
        P::unpark(unsafe { line::open::<P>(head) }, 1);
    }
}

/// Acquires by glibc's own algorithm, if the mutex is one that glibc's code unlocks at times.
pub fn lock_if_foreign<P: Platform>(parts: Parts<'_, P>) -> bool {
    // Relaxed: whoever misses it joins the line, and sees it before it sleeps.
    let foreign = parts.mood.load(Relaxed) & mood::FOREIGN_UNLOCK != 0;
    if foreign {
        lock_as_glibc(parts);
    }
    foreign
}

/// The holder claims, by `claim`, a thread that sleeps elsewhere, to move it to word 0: there it will be
/// woken by an unlock, when it can run on. It must go on with [`lock_moved`]; `false`: the claim failed.
pub fn adopt<P: Platform>(parts: Parts<'_, P>, claim: impl FnOnce() -> bool) -> bool {
    if !claim() {
        return false;
    }
    // Relaxed, all three: we hold the lock, and our own unlock reads them.
    if parts.side.load(Relaxed) & side::MOVEDS == side::MOVEDS {
        parts.side.fetch_or(side::FOREIGN, Relaxed); // too many to count
    } else {
        parts.side.fetch_add(side::MOVED, Relaxed);
    }
    // STATE: (1|2, q, s) -> (2, q, s + 1). Not a store: see `inherit_duty`.
    parts.word.swap(WAITED, Relaxed);
    true
}

/// Makes the word 2 if our unlock will owe a wake (invariant 2). The caller has just acquired.
fn inherit_duty<P: Platform>(parts: &Parts<'_, P>, next_sleeps: bool) {
    // Relaxed: those that were counted before the release we acquired by are visible; later ones make the
    // word 2 themselves.
    if next_sleeps || parts.side.load(Relaxed) & side::ON_WORD != 0 {
        // STATE: (1|2, q, s) -> (2, q, s). Relaxed: we hold it; others write nothing but 2 meanwhile. Not a
        // store: over somebody's 2 that would end the release sequence by which [mark] sees its head or count.
        parts.word.swap(WAITED, Relaxed);
    }
}

/// Releases a word that is not 1: somebody may need a wake.
///
/// `has_line` says whether `tail` and `head` are a line (they are a whole lock's memory otherwise).
#[cold]
pub fn unlock_slow<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning, has_line: bool) {
    loop {
        // [mark] ORDERING: Acquire, pairs with the AcqRel swaps to 2 (here and in line.rs): we see the
        // head that made it 2, and the count of the sleeper that did. Release is not needed: still held.
        // STATE: (2, q, s) -> (1, q, s): a 2 that comes from now on is news, and fails the exchange below.
        parts.word.swap(HELD, Acquire);
        let head = if has_line { line::head::<P>(&parts, tuning.era) } else { core::ptr::null() };
        let sleepers = parts.side.load(Relaxed) & side::ON_WORD != 0;
        let released = if !head.is_null() {
            wake_head(parts, tuning, head, sleepers)
        } else if sleepers {
            wake_sleepers(parts, tuning)
        } else {
            // Nobody needs us, as far as we can tell: its time was up. Or glibc's own code sleeps there.
            let word: *const P::Word = parts.word;
            let released = release::<P>(parts.word);
            if released {
                // SURVIVES: everybody in the models is counted.
                P::unpark(word, 1);
            }
            released
        };
        if released {
            return;
        }
    }
}

/// Releases, unless somebody has made the word 2 since [mark]: what we have done for it may be undone.
fn release<P: Platform>(word: &P::Word) -> bool {
    // [release] ORDERING: Release, pairs with every Acquire that takes the word.
    // STATE: (1, q, s) -> (0, q, s). From here on only addresses, by invariant 4.
    word.compare_exchange(HELD, FREE, Release, Relaxed).is_ok()
}

fn wake_head<P: Platform>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    head: *const Waiter<P>,
    sleepers: bool,
) -> bool {
    // SAFETY: by invariant 3 the head stays until we have released.
    let gate = unsafe { line::open::<P>(head) };
    let sleepers_turn = sleepers && {
        let before = parts.side.fetch_or(side::TURN, Relaxed);
        if before & side::TURN != 0 {
            parts.side.fetch_and(!side::TURN, Relaxed);
        }
        // Where glibc's code unlocks, the head itself may be one of those who sleep on the word ([foreign] in line.rs).
        before & (side::TURN | side::MOVEDS | side::FOREIGN) != 0
    };
    let released = if sleepers_turn {
        wake_sleepers(parts, tuning)
    } else {
        // By invariant 5: the head may have shut its gate again, and found the word held.
        release::<P>(parts.word)
    };
    if released {
        P::unpark(gate, 1); // always, by invariant 5
    }
    released
}

/// Releases, and wakes who sleeps on the word: those that signals moved there, up to a herd, and one that
/// came by itself.
///
/// So the count of the moved is never too low, whoever the kernel serves first: only they take these wakes. It is
/// too high, and a wake meets nobody, if one of them woke up by itself.
fn wake_sleepers<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) -> bool {
    let now = parts.side.load(Relaxed); // MOVEDS is ours; sleepers that come now make the word 2
    let awake = ((now & side::MOVEDS) / side::MOVED).min(tuning.herd.max(1));
    parts.side.fetch_sub(awake * side::MOVED, Relaxed);
    let word: *const P::Word = parts.word;
    // A head that came meanwhile sleeps at its gate, and the thread that we wake may be gone, timed out.
    if !release::<P>(parts.word) {
        parts.side.fetch_add(awake * side::MOVED, Relaxed);
        return false;
    }
    if awake > 0 {
        P::unpark_moved(word, awake);
    }
    if now & (side::SLEEPERS | side::FOREIGN) != 0 {
        P::unpark(word, 1);
    }
    true
}
