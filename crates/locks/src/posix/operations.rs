//! Kinds, owners, and answers. Callers have checked that the mutex is [ours](is_ours).

use super::contended::{acquire, forget, hand_on, own, release};
use super::hooks;
use super::mutex::{ERRORCHECK, Environment, KINDS, MARKED, Mutex, Policy, RECURSIVE, TYPE, USERS};
use crate::front::{self, View, counts};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Ptr, Word};

/// Why an operation was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Somebody holds it, or will come back for it: EBUSY.
    Busy,
    /// The caller already holds it: EDEADLK.
    Deadlock,
    /// The caller has locked it as often as can be counted: EAGAIN.
    TooOften,
    /// The caller does not hold it: EPERM.
    NotHolder,
    /// The deadline is invalid: EINVAL.
    Invalid,
    /// The deadline has passed: ETIMEDOUT.
    TimedOut,
}

/// The result of an operation.
type Answer = Result<(), Refused>;

/// Do we serve it, and not glibc (robust, PI, PP, process-shared, destroyed)?
#[inline(always)]
pub fn is_ours<E: Environment>(m: &Mutex<E>) -> bool {
    m.kind.load(Relaxed) & !KINDS == 0
}

/// The kind's answer before anybody waits, if the caller already holds the mutex. `again`: the error, if that is one.
#[inline(always)]
fn before_lock<E: Environment>(m: &Mutex<E>, kind: u32, again: Refused) -> Option<Answer> {
    let kind = kind & TYPE;
    // Relaxed: by invariant 2.
    if kind != RECURSIVE && kind != ERRORCHECK || m.owner.load(Relaxed) != E::thread() {
        return None;
    }
    if kind == ERRORCHECK {
        return Some(Err(again));
    }
    let count = m.count.load(Relaxed); // the holder's
    if count == u32::MAX {
        return Some(Err(Refused::TooOften));
    }
    m.count.store(count + 1, Relaxed);
    Some(Ok(()))
}

/// Locks; `caller` is the address of the call.
#[inline(always)]
pub fn lock<E: Environment>(m: &Mutex<E>, caller: usize) -> Answer {
    let kind = E::Platform::load_to_write(&m.kind);
    if let Some(answer) = before_lock(m, kind, Refused::Deadlock) {
        return answer;
    }
    if kind & MARKED != 0 {
        if !take_marked(m, kind) {
            acquire(m, kind, caller);
        }
    } else if E::take(m) {
        own(m, kind, E::thread());
    } else {
        acquire(m, kind, caller);
    }
    Ok(())
}

/// Takes a marked mutex, if it is free and the caller need not queue.
#[cold]
#[inline(never)]
fn take_marked<E: Environment>(m: &Mutex<E>, kind: u32) -> bool {
    let Some(slot) = hooks::meaning(m) else { return false };
    let has_it = slot.takes_past(m, kind) || E::take(m);
    if has_it {
        own(m, kind, E::thread()); // at once: see `got`
        slot.acquired(m, kind);
        hooks::unmark(m, slot);
    }
    has_it
}

/// The calling thread has the mutex, without having waited in line. It says so at once: if a signal handler doesn't return here, a
/// program whose mutexes know their holders can unlock the mutex, and nobody else could.
#[inline(always)]
fn got<E: Environment>(m: &Mutex<E>, kind: u32) -> Answer {
    own(m, kind, E::thread());
    if kind & MARKED != 0 {
        hooks::has_acquired(m, kind);
    }
    Ok(())
}

/// Tries to lock.
#[inline(always)]
pub fn try_lock<E: Environment>(m: &Mutex<E>) -> Answer {
    let kind = m.kind.load(Relaxed);
    if let Some(answer) = before_lock(m, kind, Refused::Busy) {
        return answer;
    }
    if E::try_take(m) { got(m, kind) } else { Err(Refused::Busy) }
}

/// Locks, or gives up at the deadline; `None`: the deadline is invalid, which matters only if the
/// thread has to wait.
#[inline(always)]
pub fn lock_until<E: Environment>(
    m: &Mutex<E>,
    deadline: Option<<E::Platform as Platform>::Deadline>,
) -> Answer {
    let kind = m.kind.load(Relaxed);
    if let Some(answer) = before_lock(m, kind, Refused::Deadlock) {
        return answer;
    }
    if E::take(m) {
        return got(m, kind);
    }
    let Some(deadline) = deadline else {
        return if E::try_take(m) { got(m, kind) } else { Err(Refused::Invalid) };
    };
    let (me, Policy { tuning, .. }) = m.policy();
    E::guarded(m, m.parts_of(kind, me), &tuning, |parts| {
        if View::new(parts, &tuning).take().is_some() {
            return got(m, kind);
        }
        let tells = me.tells && E::waits(m, 0);
        let acquired = front::lock_until(parts, &tuning, deadline);
        if tells {
            E::has_waited(m, acquired);
        }
        if acquired { got(m, kind) } else { Err(Refused::TimedOut) }
    })
}

/// Unlocks.
#[inline(always)]
pub fn unlock<E: Environment>(m: &Mutex<E>) -> Answer {
    if hand_on(m) {
        return Ok(());
    }
    let marked = E::Platform::load_to_write(&m.kind);
    let kind = marked & TYPE;
    if kind == RECURSIVE || kind == ERRORCHECK {
        // Relaxed: by invariant 2.
        if m.owner.load(Relaxed) != E::thread() || m.word.is_free() {
            return Err(Refused::NotHolder);
        }
        if kind == RECURSIVE {
            let count = m.count.load(Relaxed) - 1; // the holder's, at least 1
            m.count.store(count, Relaxed);
            if count != 0 {
                return Ok(());
            }
        }
    }
    if marked & MARKED != 0 {
        hooks::is_releasing(m, kind);
    }
    m.owner.store(0, Relaxed); // glibc's condvar code asserts it
    if !E::give(m) {
        release(m, kind);
    }
    Ok(())
}

/// Destroys: refused while held, or while a condvar's waiter will come back for it.
pub fn destroy<E: Environment>(m: &Mutex<E>) -> Answer {
    // The count is negative if glibc's code has unlocked what ours locked: it counts the holder down.
    let users = m.users.load(Relaxed) & USERS;
    // A program that ignores the answer may use this memory for another mutex.
    forget(m);
    if !m.word.is_free() || (1..=USERS / 2).contains(&users) {
        return Err(Refused::Busy);
    }
    m.kind.store(u32::MAX, Relaxed); // as glibc does: later use is an error, not a lock
    Ok(())
}

/// Acquires again after a condvar wait; `moved` is what the wait said.
#[inline(always)]
pub fn lock_again<E: Environment>(m: &Mutex<E>, moved: bool, caller: usize) -> Answer {
    if moved { lock_moved(m, caller) } else { lock(m, caller) }
}

/// Not inlined: a condvar's waiter that wasn't moved should not keep what this needs on its stack.
#[inline(never)]
fn lock_moved<E: Environment>(m: &Mutex<E>, caller: usize) -> Answer {
    let (me, Policy { tuning, .. }) = m.policy();
    let kind = m.kind.load(Relaxed);
    let tells = me.tells && E::waits(m, caller);
    E::guarded(m, m.parts_of(kind, me), &tuning, |parts| {
        front::lock_moved(parts, &tuning);
        if tells {
            E::has_waited(m, true);
        }
        got(m, kind)
    })
}

/// Does the calling thread hold it, as one of ours? `None`: that is not certain, because threads have held it by nodes,
/// and code that knows nothing of nodes may have unlocked it.
pub fn holds<E: Environment>(m: &Mutex<E>) -> Option<bool> {
    if !is_ours(m) || m.word.is_free() {
        return Some(false);
    }
    let is_owner = m.owner.load(Relaxed) == E::thread(); // by invariant 2
    let by_node =
        || m.counts.load(Relaxed) & counts::BY_NODE != 0 && !m.tail.load(Relaxed).is_null();
    if E::with_held(|held| held.is_surely_held(&m.word, E::era())) {
        Some(true)
    } else if m.kind.load(Relaxed) & TYPE != RECURSIVE && by_node() {
        None
    } else {
        Some(is_owner)
    }
}
