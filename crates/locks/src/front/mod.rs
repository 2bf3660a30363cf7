//! Front locks: word 0 of `pthread_mutex_t` is the lock, in glibc's own protocol. They differ in which threads
//! wait, where they wait, and who may overtake whom.
//!
//! ```text
//!                      ┌ beside the line: awake, or standing by, for a bounded time
//!            arrivals ─┤
//!   word 0 ◄───────────┴ line:  head ─► waiter ─► waiter ◄─ tail     (nodes in a pool)
//!   0..=4   ◄─ asleep on word 0 itself: the line's head, dozers, timed lockers, moved condvar waiters, glibc's code
//! ```
//!
//! Word 0 is 0 (free), 1 (held), 2 (held, and somebody may sleep on the word), 3 (held, within a chain of grants) or
//! 4 (held, somebody may sleep, and a thread that waits awake has promised to take care of the sleepers). The line
//! (line.rs, grant.rs) makes every change; a [`Rule`] decides who joins the line, who goes first, and how threads wait.
//!
//! State: (word, q threads in line, s asleep on the word).  The transitions:
//!
//! | who | from | to |
//! |---|---|---|
//! | arrival, or head that never slept | (0, q, s) | (1, q, s) held by it |
//! | a thread that found the word held | (1, q, s) | (2, q, s + 1), then sleeps on the word |
//! | a thread that has slept | (0, q, s) | (2, q, s) held by it |
//! | head that leaves; its successor sleeps at its gate | (1, q, s) | (2, q, s + 1): the head moves the successor to the word |
//! | signal, by the holder | (1, q, s) | (2, q, s + 1): a condvar's sleeper now sleeps on the word |
//! | head that acquired; its successor is awake | (1, q, s) | (3, q, s): the head stays in the line (grant.rs) |
//! | unlock by a holder that stayed | (3, q, s) | (3, q - 1, s), held by its successor; or (0, q, s), and the successor is head |
//! | holder by a grant, in a crowded line; its successor sleeps | (3, q, s) | (2, q, s + 1) as above |
//! | a thread that found the word 3 | (3, q, s) | (2, q, s + 1), then sleeps on the word; an unlock ends the chain soon |
//! | unlock by glibc's code | (2 or 3, q, s) | (0, q, s): the next in line notices that by itself, and is head |
//! | a thread that waits awake, and promises to take care of the sleepers (promise.rs) | (2, q, s) | (4, q, s) |
//! | the same, when it gives up | (1, 3 or 4, q, s) | (2, q, s); or it wakes a sleeper |
//! | the same, when it acquires | (0, q, s) | (2, q, s) held by it |
//! | unlock | (1 or 4, q, s) | (0, q, s) |
//! | unlock by a holder that has forgotten its node | (3, q, s) | (0, q, s), and the next in line is head, as after glibc's code |
//! | unlock | (2, q, s) | (0, q, s), then wakes, by address, the threads that signals moved here, or else one that sleeps on the word |
//!
//! Invariants:
//! 1. The *duty* to wake is glibc's own. While anybody sleeps on the word, it says 2; or a thread that an unlock has woken is
//!    on its way and will make it 2; or a thread that waits awake has promised to do so. So a thread that has slept, on the
//!    word or at a gate, acquires by writing 2. An unlock, by our code or by glibc's, needs to know only the word.
//! 2. A waiter that sleeps at its gate is never the next to get the lock. The thread that makes it head while it sleeps there
//!    holds the lock, and moves it to the word. And a waiter does not fall asleep behind a thread that has the lock (grant.rs).
//!    A head that is torn out of its wait holds nothing, so it wakes the next waiter instead (leaving.rs).
//! 3. Only the line's head, or a holder that stayed in the line, passes nodes (joining touches the tail). A line that consists
//!    of dead nodes alone, or that a fork's parent left, is cleared as a whole: by a thread that took the word, or by the
//!    first to see it.
//! 4. After the write of 0 that releases, or after the grant, unlock uses nothing but addresses, for futex calls: the mutex
//!    may be gone by then. (Nodes are not: they lie in memory that stays readable.)
//! 5. Only the holder writes the count of overtakers, and only after it took the word. So the count is exact.
//!
//! Bounds on overtakers, here and in the locks' own files, count *arrivals*: threads that lock without a deadline. A thread that
//! sleeps on the word without being the head (timed lockers, moved condvar waiters, glibc's code) takes the word whenever it finds
//! it free, and isn't counted.

mod alone;
pub mod asl;
pub mod asl_pthread;
pub mod auto;
pub mod barging;
mod batch;
mod before;
mod beside;
mod busy;
pub mod cal;
mod choice;
mod chooser;
mod description;
pub mod fifo;
mod grant;
mod hold;
mod leaving;
mod line;
pub mod malthusian;
pub mod mutexee;
mod note;
mod pace;
pub mod pb10;
mod preset;
pub mod programmed;
mod promise;
pub(crate) mod rest;
mod rounds;
mod rule;
pub mod slo;
pub mod tuning;
mod waiter;
mod words;

pub use alone::{Alone, By};
pub use choice::Waiters;
pub use leaving::{Seat, leave_line};
pub use line::acquire;
pub(crate) use line::join;
pub(crate) use line::{has_passed, is_left, meet_left_behind};
pub use note::Note;
pub use preset::{Preset, Tune};
pub use rule::{Arrived, Rule, Taken, View};
pub use tuning::{ANY, BYPASS_MAX, SPIN_NS, Tuning, Window};
#[cfg(test)]
pub(crate) use waiter::GRANTED;
pub use waiter::Waiter;
pub(crate) use waiter::{ASLEEP, PROMOTED, WAITING};
pub use words::{mood, side};

use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Woken, Word};

/// Word 0: nobody holds the lock.
pub const FREE: u32 = 0;
/// Word 0: held, and nobody needs a wake.
pub const HELD: u32 = 1;
/// Word 0: held, and unlock owes somebody a wake.
pub const WAITED: u32 = 2;
/// Word 0: held, within a chain of grants (grant.rs), and nobody needs a wake. To glibc's code it is just "more than 1".
pub const CHAINED: u32 = 3;

/// Word 0: held, somebody may sleep on the word, and a thread that waits awake takes care of the sleepers (promise.rs). To
/// glibc's code it is "more than 1", too.
pub const PROMISED: u32 = 4;

/// Owner: some thread that was GRANTED the lock (grant.rs). Not a thread's id.
pub const SOMEBODY: u32 = 1 << 30;

/// A front lock's memory: inside a `pthread_mutex_t`, or in an [`Alone`].
pub struct Parts<'a, P: Machine> {
    /// Word 0.
    pub word: &'a P::Word,
    /// Small fields, see [`side`].
    pub side: &'a P::Word,
    /// What the lock has learnt, see [`mood`]; the lower half belongs to the runtime.
    pub mood: &'a P::Word,
    /// Identifies the calling thread, while it holds a lock by a node (grant.rs). Null: it never does that.
    pub by: *const (),
    /// The calling thread's id, where the mutex has an owner field.
    pub thread: u32,
    /// The mutex's type, as policies count kinds: 1 recursive, 2 error-checking, otherwise 0.
    pub kind: u32,
    /// Identifies the critical section that the caller is about to enter: equal numbers mean the same section. 0: not known.
    pub site: u32,
    /// The last waiter of the line, with the era in its low bits; null: nobody queues.
    pub tail: &'a P::Ptr<Waiter<P>>,
    /// The holder's id, where the mutex has an owner field.
    pub owner: Option<&'a P::Word>,
}

impl<P: Machine> Parts<'_, P> {
    /// The holder's id, a hint; 0: nobody, or not known.
    fn holder(&self) -> u32 {
        self.owner.map_or(0, |owner| owner.load(Relaxed)) % SOMEBODY
    }
}

impl<P: Machine> Clone for Parts<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Machine> Copy for Parts<'_, P> {}

/// Takes a free word; the first try of every slow path.
#[inline]
pub fn try_take<P: Machine>(word: &P::Word) -> bool {
    word.load(Relaxed) == FREE && take_as::<P>(word, HELD)
}

/// Takes a free word by writing [`HELD`], or [`WAITED`] if the caller has slept (invariant 1).
#[inline]
fn take_as<P: Machine>(word: &P::Word, value: u32) -> bool {
    // ORDERING: Acquire, pairs with [release]: what the last holder wrote is ours to see.
    // STATE: (0, q, s) -> (1 or 2, q, s).
    word.compare_exchange(FREE, value, Acquire, Relaxed).is_ok()
}

/// Acquires, sleeping on word 0; returns `false` if `deadline` passes first.
///
/// Timed lockers never join the line, so they can give up at any time.
#[cold]
pub fn lock_until<P: Machine>(parts: Parts<'_, P>, tuning: &Tuning, deadline: P::Deadline) -> bool {
    sleep_on_word(parts, tuning, false, Some(deadline))
}

/// Acquires by glibc's own algorithm: make the word 2, sleep on it.
#[cold]
pub fn lock_as_glibc<P: Machine>(parts: Parts<'_, P>) {
    sleep_on_word(parts, &Tuning { spin_ns: 0, ..Tuning::for_any() }, false, None);
}

/// Acquires, for a condvar waiter that a signal moved to word 0 (see [`adopt`]) and that is awake now.
#[cold]
pub fn lock_moved<P: Machine>(parts: Parts<'_, P>, tuning: &Tuning) {
    sleep_on_word(parts, tuning, true, None);
}

/// Waits for the word, awake for a while before each sleep. `slept`: the caller has already been woken at the word.
fn sleep_on_word<P: Machine>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    mut slept: bool,
    deadline: Option<P::Deadline>,
) -> bool {
    loop {
        let mut got = false;
        batch::watch(&parts, tuning.awake_ns(&parts), |value| {
            got = value == FREE && take_as::<P>(parts.word, if slept { WAITED } else { HELD });
            got
        });
        if got || mark::<P>(parts.word) {
            line::meet_left_behind(&parts, tuning.era);
            return true;
        }
        if P::park(parts.word, WAITED, deadline) == Woken::TimedOut {
            // Give up only if the kernel says so, not by the clock: had the kernel woken us, we would owe a wake.
            return false;
        }
        slept = true;
    }
}

/// Makes the word 2, before the caller sleeps on it. `true`: it was free, and the caller has it now.
pub(crate) fn mark<P: Machine>(word: &P::Word) -> bool {
    // ORDERING: Acquire, pairs with [release] if it was free. Release is not needed: the unlock that finds this 2
    // looks at nothing but the word.
    // STATE: (0, q, s) -> (2, q, s) held by us, or (1|2|3, q, s) -> (2, q, s) and we sleep.
    word.swap(WAITED, Acquire) == FREE
}

/// The caller may have been woken at the word, and does not acquire. Passes the wake on to another sleeper there, now or
/// by the holder's unlock.
pub fn pass_on<P: Machine>(word: &P::Word) {
    let mut now = HELD;
    // STATE: (1|3, q, s) -> (2, q, s). Relaxed: it only says "look", and the holder reads it by an RMW. Ours is an RMW, too:
    // a load might read an old 2.
    while let Err(seen) = word.compare_exchange(now, WAITED, Relaxed, Relaxed) {
        match seen {
            // A thread may take the word meanwhile, but if it hasn't slept it owes no wake. So we wake somebody all the same.
            // EXPLORED: needs four threads, two of them asleep on the word.
            FREE => return P::unpark(word, 1),
            WAITED => return,
            _ => now = seen,
        }
    }
}

/// The holder claims, by `claim`, a thread that sleeps elsewhere, and will move it to word 0. There an unlock wakes it, when
/// it can get the lock. That thread must go on with [`lock_moved`]. `false`: the claim failed.
pub fn adopt<P: Machine>(parts: Parts<'_, P>, claim: impl FnOnce() -> bool) -> bool {
    if !claim() {
        return false;
    }
    // Relaxed, both: we hold the lock, and our own unlock reads them. Threads beyond the field's range are woken one by one.
    if parts.side.load(Relaxed) & side::MOVEDS != side::MOVEDS {
        parts.side.fetch_add(side::MOVED, Relaxed);
    }
    owe_wake(&parts);
    true
}

/// The holder has moved a sleeper to the word, or is about to: its unlock owes a wake.
fn owe_wake<P: Machine>(parts: &Parts<'_, P>) {
    // STATE: (1|2|3, q, s) -> (2, q, s + 1). Relaxed: we hold it, and only our own unlock has to see it.
    parts.word.swap(WAITED, Relaxed);
}

/// Unlock, by a thread that holds the lock by its `node`. `false`: it has to look at the mutex, by calling [`release`].
///
/// # Safety
/// [`acquire`] returned the node to the calling thread, and [`Waiter::is_held`] says that it holds the lock by it.
#[inline]
pub unsafe fn hand_on<P: Machine>(node: *const Waiter<P>) -> bool {
    // SAFETY: the caller's promise.
    grant::hand_on(unsafe { &*node })
}

/// As [`hand_on`], but always releases, if need be by the mutex.
///
/// # Safety
/// As [`hand_on`].
#[cold]
pub unsafe fn release<P: Machine>(parts: Parts<'_, P>, tuning: &Tuning, node: *const Waiter<P>) {
    // SAFETY: the caller's promise.
    let node = unsafe { &*node };
    let in_line = line::is_in_line(&parts, node, tuning.era);
    if !in_line {
        parts.owner.inspect(|owner| owner.store(0, Relaxed)); // glibc's code asserts it of a mutex that is free
    }
    if !in_line || !grant::hand_on_or_leave(&View::new(parts, tuning), node) {
        unlock_slow(parts, tuning);
    }
}

/// Releases a word that is not 1: somebody may need a wake.
///
/// It works under any rule, and with or without a line: a thread that needs the wake sleeps on the word.
#[cold]
pub fn unlock_slow<P: Machine>(parts: Parts<'_, P>, tuning: &Tuning) {
    match parts.word.load(Relaxed) {
        FREE => return, // nobody held it: undefined in POSIX, and as harmless as with glibc
        HELD => {}
        // The holder does not hold it by a node, or has forgotten that node: then the node is in the way.
        now if now == CHAINED || parts.side.load(Relaxed) & side::BY_NODE != 0 => {
            line::meet_left_behind(&parts, tuning.era);
        }
        _ => {}
    }
    let word: *const P::Word = parts.word;
    // Signals moved these threads here. Only the holder writes the two fields. Moved threads come first, `herd` of them at
    // most: each has its signal, and passes the duty on. After seven such unlocks it is another sleeper's turn.
    let now = parts.side.load(Relaxed);
    let mut moved = ((now & side::MOVEDS) / side::MOVED).min(tuning.herd.max(1));
    if now & side::PREFERENCES == side::PREFERENCES || moved == 0 {
        moved = 0;
        if now & side::PREFERENCES != 0 {
            parts.side.fetch_and(!side::PREFERENCES, Relaxed);
        }
    } else {
        parts.side.fetch_add(side::PREFERENCE.wrapping_sub(moved * side::MOVED), Relaxed);
    }
    // [release] ORDERING: Release, pairs with every Acquire that takes the word.
    // STATE: (1|2|3, q, s) -> (0, q, s). From here on only the address, by invariant 4.
    let before = parts.word.swap(FREE, Release);
    debug_assert!(before != FREE || moved == 0, "released a lock that nobody holds");
    // The count of moved threads is too high if one woke up by itself. Then the wake goes to another sleeper.
    // SURVIVES: without it they are woken one by one, by the duty that each passes on.
    let woken = if moved > 0 { P::unpark_moved(word, moved) } else { 0 };
    if woken == 0 && before == WAITED {
        P::unpark(word, 1);
    }
}
