//! Those who wait for word 0 alone, outside the line: until a deadline, with a real-time policy, after a condvar's signal, or by glibc's
//! algorithm. They sleep on the word, and may leave at any time.

use super::learn::saturation::watch;
use super::line::{Parts, View};
use super::tuning::Tuning;
use super::word::{CHAINED, FREE, HELD};
use lockwright_platform::{Machine, Stage, Woken};

/// How long a timed locker gives way to a head whose turn it is, ns, at first; then twice as long ...
const GIVES_WAY_NS: u32 = 50_000;

/// ... and so on, this many times.
const GIVES_WAY: u32 = 4;

/// Acquires, sleeping on word 0; returns `false` if `deadline` passes first.
///
/// Timed lockers never join the line, so they can give up at any time. Those that overtake the line's head are counted, as arrivals are. If it
/// is the head's turn, a timed locker gives way, so that the head gets a CPU: until its deadline, but only for a fraction of a millisecond.
/// (A head that hasn't come by then waits for another program, and a deadline is a promise, too.)
#[cold]
pub fn lock_until<P: Machine>(
    parts: &Parts<'_, P>,
    tuning: &Tuning,
    deadline: P::Deadline,
) -> bool {
    let (line, word) = (View::new(parts, tuning), parts.word);
    let (mut slept, mut ways) = (false, 0);
    loop {
        let mut got = false;
        // If others sleep already, to stay awake only takes CPU time from the holder; within a chain of grants the word isn't free at all.
        if [FREE, HELD].contains(&word.now()) {
            watch(&line, tuning.spin_ns, |value| {
                got = value == FREE && line.take_as(slept).is_some();
                got
            });
        }
        if got {
            return true;
        }
        if word.is_free() && !line.may_overtake() {
            // It is the head's turn.
            if slept {
                word.pass_on(); // we may have been woken in its place
                slept = false;
            }
            if ways < GIVES_WAY {
                let ns = GIVES_WAY_NS << ways;
                ways += 1;
                line.sleep_until(P::sooner(P::after(ns), deadline));
            } else if line.take_word(false) {
                P::reached(Stage::Uncounted);
                line.clear_left_behind();
                return true;
            }
            continue;
        }
        if line.mark_word() {
            if line.overtakes(true).is_some() {
                return true;
            }
            continue;
        }
        // Give up only if the kernel says so, not by the clock: had the kernel woken us, we would owe a wake.
        if sleep(&line, Some(deadline)) == Woken::TimedOut {
            return false;
        }
        slept = true;
    }
}

/// Sleeps on the word, as long as it is 2. The calling thread may have a real-time policy.
fn sleep<P: Machine>(line: &View<'_, P>, deadline: Option<P::Deadline>) -> Woken {
    if P::is_urgent(0) { sleep_urgently(line, deadline) } else { line.parts.word.sleep(deadline) }
}

/// The same, of a thread that has one. A holder by a node doesn't look at the word, unless it is told.
fn sleep_urgently<P: Machine>(line: &View<'_, P>, deadline: Option<P::Deadline>) -> Woken {
    P::urge(line.parts.word.address());
    line.parts.word.sleep_urgently(deadline)
}

/// Acquires by glibc's own algorithm: spin for `spin_ns` (0 unless the mutex is adaptive), make the word 2, sleep on it.
#[cold]
pub fn lock_as_glibc<P: Machine>(parts: &Parts<'_, P>, spin_ns: u32) {
    let tuning = Tuning { spin_ns: 0, ..Tuning::for_any() };
    let line = View::new(parts, &tuning);
    let (word, mut got) = (parts.word, false);
    if spin_ns > 0 {
        word.spin_for(spin_ns, |value| {
            got = value == FREE && line.take_word(false);
            got
        });
    }
    match got {
        true => line.clear_left_behind(),
        false => wait_on_word(&line, false, |_| word.sleep(None)),
    }
}

/// Acquires, for a condvar waiter that a signal moved to word 0 (see [`adopt`](super::adopt)) and that is awake now.
#[cold]
pub fn lock_moved<P: Machine>(parts: &Parts<'_, P>, tuning: &Tuning) {
    wait_on_word(&View::new(parts, tuning), true, |line| sleep(line, None));
}

/// Acquires, for a thread with a real-time policy, which stays outside the line. The kernel's queue of those that sleep on the word has the
/// order of priorities, so the next unlock wakes this thread before any ordinary one. The thread takes a free word whenever it finds
/// one, and isn't counted.
pub(super) fn wait_urgently<P: Machine>(line: &View<'_, P>) {
    let word = line.parts.word;
    let mut slept = false;
    P::reached(Stage::Uncounted);
    loop {
        let mut got = false;
        // Within a chain of grants the word isn't free before somebody asks for that.
        if word.now() != CHAINED {
            watch(line, line.tuning.spin_ns, |value| {
                got = value == FREE && line.take_word(slept);
                got
            });
        }
        if got || line.mark_word() {
            P::has_looked(word.address());
            return line.clear_left_behind();
        }
        sleep_urgently(line, None);
        slept = true;
    }
}

/// Waits for the word, awake for a while before each sleep. `slept`: the caller has already been woken at the word.
fn wait_on_word<P: Machine>(
    line: &View<'_, P>,
    mut slept: bool,
    sleep: impl Fn(&View<'_, P>) -> Woken,
) {
    loop {
        let mut got = false;
        watch(line, line.tuning.spin_ns, |value| {
            got = value == FREE && line.take_word(slept);
            got
        });
        if got || line.mark_word() {
            return line.clear_left_behind();
        }
        sleep(line);
        slept = true;
    }
}
