//! For checkers: a wait in a front lock's line that is torn.

use crate::front::{ASLEEP, Note, Parts, Tuning, WAITED, WAITING, Waiter};
use crate::front::{join, leave_line, mark, unlock_slow};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Word};

/// Joins the line, is torn out of its wait, and leaves. `asleep`: once it has made sure that it would be
/// woken; with a deadline, after it has slept until then.
///
/// # Safety
/// `memory` can be written, and stays readable. The node in it ends before this returns.
pub unsafe fn torn_wait<P: Platform>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    memory: *mut Waiter<P>,
    asleep: bool,
    deadline: Option<P::Deadline>,
) {
    let passes = P::Word::new(0);
    // SAFETY: the caller's promise.
    let node = unsafe {
        memory.write(Waiter::new(WAITING, Note::default(), &passes));
        &*memory
    };
    let behind = join(&parts, node, tuning);
    let mut holds = false;
    let (word, value) = if behind { (&node.gate, ASLEEP) } else { (parts.word, WAITED) };
    if asleep {
        // Relaxed: as in line.rs.
        let sleeps = if behind {
            node.gate.compare_exchange(WAITING, ASLEEP, Relaxed, Relaxed).is_ok()
        } else {
            holds = mark::<P>(parts.word);
            !holds
        };
        if sleeps && deadline.is_some() {
            // SURVIVES: it is torn out of this sleep anyway.
            P::park(word, value, deadline);
        }
    }
    // SAFETY: our own, and in the line; then nobody looks at it.
    unsafe {
        leave_line(parts, tuning, memory);
        memory.drop_in_place();
    }
    if holds {
        unlock_slow(parts, tuning);
    }
}
