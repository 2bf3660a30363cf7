//! Front locks: word 0 of `pthread_mutex_t` is the lock, in glibc's own protocol. They differ in which threads
//! wait, where they wait, and who may overtake whom.
//!
//! ```text
//!   rule/    one page for each lock: who joins the line, who goes first, how threads wait       ┐
//!            mod.rs: Rule, View, and the one way through the line                               │ each floor
//!   outside  those who wait for the word alone: until a deadline, with a real-time policy, ... │ each floor
//!   learn/   saturation: should the lock stay where its data is? memos: how long are sections?  │ knows only
//!   line     who stands in line (line.rs), near whom (near.rs), hand-over (grant.rs),           │ those below
//!            who is next (choice.rs), a waiter's node (waiter.rs)                               │
//!   word     word 0: all its transitions (word.rs)                                              ┘
//!
//!            ┌ contenders: outside the line, awake or standing by, for a bounded time
//!   arrivals ┤
//!   word 0 ◄─┴ line:  head ─► waiter ─► waiter ◄─ tail     (nodes in a pool)
//!   0..=4   ◄─ asleep on word 0 itself: the line's head, dozers, timed lockers, moved condvar waiters, glibc's code
//! ```
//!
//! This file is the door: what programs call. A lock with a rule is [`acquire`]d through the line; timed lockers, condvar waiters and
//! glibc's algorithm wait for the word alone. Unlock is the same for all.
//!
//! # Grants and choice: the hard part
//!
//! **What we want.** Many cores ask for one lock. Each access to the mutex's cache line delays somebody else's. MCS solves this: waiters
//! stand in a list, each spins on its own node, and unlock writes into the next node. A hand-over then costs two transfers: the releaser
//! takes its successor's line, and the successor fetches the line back. But MCS's holder must stand in the list itself, must remember its
//! node until it unlocks, and must never meet code that doesn't know the list. Programs' mutexes break all three.
//!
//! **Two ways to hold.** So a thread holds the lock in one of two ways. *By the word*: word 0 says so, and the thread is in no line. This
//! is glibc's way, and the only one without contention. *By a node*: the thread came through the line, stays in the line as its first, and
//! remembers the node (posix/held.rs). Word 0 is 3 meanwhile. It is 2 once somebody sleeps on it, and 4 if the sleepers are taken care of
//! (word.rs); to glibc's code all are "more than 1".
//! Unlock by a node is MCS's: it turns the next gate to GRANTED, and neither thread touches the mutex. Each GRANTED gate counts the grants
//! since a holder last looked at the mutex. After 31 the holder looks: does somebody sleep on the word? Do waiters outnumber the CPUs?
//!
//! ```text
//!   by the word    word 0 = 1           H runs            head ─► waiter ─► ...      head spins on the word
//!   by a node      word 0 = 3           H ─► waiter ─► waiter ◄─ tail                each spins on its own gate
//!   unlock         by the word: 1 ─► 0, the head takes it     by a node: next gate := GRANTED, or, with nobody behind, tail := null, 3 ─► 0
//! ```
//!
//! **Three ways in which a grant could go wrong**, and the one rule that prevents each. (waiter.rs draws a gate's states. The head's is OPEN:
//! the head competes for the word, and is granted nothing.)
//!
//! 1. *The next waiter sleeps.* A granted sleeper would hold the lock while it wakes. So `grant` succeeds only from WAITING, by an exchange
//!    on the waiter's own gate, and a waiter says ASLEEP there before it sleeps. If the exchange fails because the waiter sleeps, the chain
//!    ends: the waiter becomes head, and is moved to the word (line.rs), where any unlock finds it.
//! 2. *A waiter falls asleep behind a holder that will not look.* Rule 1 acts at unlock, and the waiter should not sleep through that
//!    section. A holder looks only once, when it gets the lock, whether somebody sleeps behind it; a waiter that fell asleep later would
//!    be missed. So a waiter tells its predecessor, by one atomic step on the predecessor's gate that also reads whether that thread has
//!    the lock (`tell_predecessor`). Either the predecessor is granted the lock after that step, and then sees BEHIND and wakes the
//!    sleeper before its own section (or, in a crowd, leaves the line and makes the sleeper head); or the predecessor has the lock
//!    already, and then the waiter does not sleep, but makes itself head.
//! 3. *Somebody else releases.* glibc's own code writes 0 to word 0, and leaves the chain behind: a GRANTED gate whose thread is long gone.
//!    Nobody is told. So each waiter looks now and then whether the word is free and the predecessor had the lock (`is_first`), and before
//!    it sleeps. If so, it makes itself head (PROMOTED), and competes for the word like everybody else. A line of dead nodes alone is
//!    cleared by the next thread that takes the word (`clear_left_behind`).
//!
//! In short: *word 0 decides whether the lock is held; within a chain, gates decide by whom.* Whoever is in doubt competes for the word.
//!
//! **Choice.** Some rules want another order: CAL, a policy. The holder must not pay for that. So the *first waiter* chooses who follows
//! itself, while it waits anyway (choice.rs). Until the first waiter hands that right on, nobody else edits the line there. While it
//! edits, its gate says CHOOSING. That is the only state in which a grant waits: for 1 µs at most (twice, if a look at the mutex comes
//! between), and then the chooser becomes head. A choice takes longer than a short section. If each began only when its chooser is first,
//! none would be ready in time. So the first waiter hands the right to choose on, down the line, like a baton (`pass_the_choice`). A
//! waiter that was passed over `bypass` times is next, whatever a rule says. After an edit a sleeper may have told a node that is no
//! longer its predecessor. So if a moved waiter may sleep, the editor marks itself and all waiters up to the last chosen one as BEHIND.
//! Each of them then looks behind itself. Some look in vain; that costs time, and loses no wake.

mod alone;
mod choice;
mod grant;
mod learn {
    //! What locks learn about themselves: hints, which cost time if they are wrong, and nothing else.
    pub(crate) mod memos;
    pub(crate) mod saturation;
}
mod leaving;
mod line;
pub(crate) mod near;
mod outside;
mod rule;
mod seat;
pub mod tuning;
mod waiter;
mod word;

pub use alone::{Alone, AsIs, By, Tune};
pub use choice::Waiters;
pub use grant::{Left, hand_on, leave_or_hand_on};
#[cfg(test)]
pub(crate) use learn::{memos, saturation};
pub use line::{Parts, Taken, View, counts, hints};
pub(crate) use line::{has_passed, is_left};
pub use outside::{lock_as_glibc, lock_moved, lock_until};
pub use rule::{Choose, Observe, Rule, acquire};
pub use rule::{
    asl, asl_pthread, auto, barging, cal, fifo, malthusian, mutexee, pb10, programmed, slo,
};
pub use seat::Seat;
pub use tuning::{ANY, BYPASS_MAX, SPIN_NS, Tuning, Window};
#[cfg(test)]
pub(crate) use waiter::GRANTED;
pub(crate) use waiter::{ASLEEP, PROMOTED, WAITING};
pub use waiter::{Note, SOMEBODY, Waiter};
pub use word::{CHAINED, FREE, HELD, PROMISED, WAITED, Word0};

use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Word};

/// The holder claims, by `claim`, a thread that sleeps elsewhere, and will move it to word 0. There an unlock wakes it, when
/// it can get the lock. That thread must go on with [`lock_moved`]. `false`: the claim failed.
pub fn adopt<P: Machine>(parts: &Parts<'_, P>, claim: impl FnOnce() -> bool) -> bool {
    View::new(parts, &Tuning::for_any()).adopt(claim)
}

/// Unlock, by a thread that holds the lock by the word and has just left the line ([`Left::Empty`]).
pub fn unlock_alone<P: Machine>(line: &View<'_, P>) {
    if !line.parts.word.give_chained() {
        line.release();
    }
}

/// Unlock, by a thread whose node is in no line any more ([`Left::Stale`]).
#[cold]
pub fn unlock_stale<P: Machine>(line: &View<'_, P>) {
    line.parts.owner.inspect(|owner| owner.store(0, Relaxed)); // glibc's code asserts it of a mutex that is free
    line.release();
}

/// As [`hand_on`], but always releases, if need be by the mutex.
///
/// # Safety
/// As [`hand_on`]. (A node that has ended may be asked, too: nodes stay readable.)
#[cold]
pub unsafe fn release<P: Machine>(line: &View<'_, P>, node: &Waiter<P>) {
    if !line.is_in_line(node) {
        unlock_stale(line);
    } else if !grant::hand_on_or_leave(line, node) {
        line.release();
    }
}

/// Takes a waiter out of the line. It doesn't wait for the lock; if it has just been granted the lock, it releases it.
///
/// # Safety
/// `node` is the calling thread's own, and in the line, and its wait does not go on. (A [`Seat`] knows more.)
#[cold]
pub unsafe fn leave_line<P: Machine>(line: &View<'_, P>, node: *const Waiter<P>) {
    // SAFETY: the caller's promise: the node is in the line.
    let node = unsafe { &*node };
    if !line.leave(node, || near::end(line, node, false)) && !grant::hand_on_or_leave(line, node) {
        line.release();
    }
}
