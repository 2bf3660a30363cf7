//! Barging: any thread that finds the word free takes it; the one that has waited longest is woken first.
//!
//! The idea is glibc's: an arrival may overtake sleepers, because a free lock and a running thread should not wait for a thread that
//! has yet to wake up. There are two differences. First, waiters stay awake for about as long as a sleep and a wake would cost (Karlin
//! et al., *Competitive Randomized Algorithms for Non-Uniform Problems*, SODA 1990), but only a few at a time. Second, sleepers stand
//! in a line, and only its head is woken. glibc's lock wakes many threads, which find it taken again and mark it "wake somebody" again.
//! That makes it slow with more threads than CPUs. But it never runs out of runners. So in a crowd an arrival first dozes on the word a few
//! times, as glibc's waiters do ([`doze`]).
//!
//! A lock is *saturated* if its last holder comes back for it before a waiter could have it, or, on two CPUs, keeps it busy.
//! Handing it to another core would only move its data there. So the line's head naps until its turn, and leaves the lock to
//! the thread that comes back (learn/saturation.rs).
//!
//! Overtaking has a bound: after `bypass` arrivals it is the head's turn, and arrivals join the line. So a head that was woken, and waits
//! for a CPU that one of them has, gets that CPU. Where it waits for another program, stopping doesn't help: if a head came late in a crowd,
//! the next heads may be passed until they are awake (learn/memos.rs). So may those of a saturated lock.
//!
//! ```text
//!   arrival ─ line empty? spin (at most `spinners` threads, `spin` ns) and take
//!           ├ free, and the head was overtaken fewer than `bypass` times? take
//!           ├ crowded, not saturated? doze on the word, and take
//!           └ join the line ─► head ─► take
//! ```
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. Between two headships at most `bypass` arrivals overtake a head that is awake and neither naps nor watches. While the lock is
//!    saturated, or heads come late in a crowd (learn/memos.rs), a head that gets no CPU (say, because of a real-time thread) is overtaken
//!    without a bound.

use super::{Choose, Note, Observe, Rule, Taken, View};
use crate::entry::{Entry, Kind, Promise};
use crate::front::learn::{memos, saturation};
use crate::front::tuning::{self, ANY};
use lockwright_platform::{Machine, Woken};

/// An arrival dozes at most this often before it joins the line ...
const DOZES: u32 = 4;

/// ... and for this long, ns.
const DOZE_NS: u32 = 10_000_000;

/// If fewer overtakers than this come between two times of giving way, nobody gives way to the head before its turn.
const LEAST: u32 = 16;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "barging",
    kind: Kind::Front,
    preset_of: None,
    idea: "any thread that finds the lock free takes it; waiters spin briefly, then sleep in a line",
    source: "glibc's 0/1/2 futex word (Drepper, Futexes Are Tricky, 2011) with a K42-style line of \
             sleepers; spin budget after Karlin et al., SODA 1990",
    order: "none among running threads, or those that doze in a crowd; first come first served among sleepers",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool",
    wakes: "unlock wakes the head of the line or, in a crowd, the next thread that sleeps on the word",
    delay: "a waiter dozes for up to 10 ms, then waits for those ahead of it and `bypass` overtakers for each; if heads of a crowd come late, for any number until each is awake; while saturated, `budget` plus 0.1 ms per waiter",
    advice: "up to four equal CPUs, where auto picks it; with more CPUs auto is faster nearly everywhere (docs/choosing.md); when fairness matters, use fifo",
    options: &[tuning::SPIN, tuning::SPINNERS, tuning::BYPASS.or(tuning::BYPASSES), tuning::BUDGET],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    const BY_PRIORITY: bool = true;

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        // Without a budget nobody knows whether the lock is saturated. Then a dozer might just take it from its runner.
        let runs_short = lock.tuning.budget_ns != 0 && lock.is_crowded();
        if runs_short {
            give_way(lock);
        }
        let taken = lock.take().or_else(|| spin_in_front(lock));
        if taken.is_some() || !runs_short {
            return taken;
        }
        note.asked_ns = P::now();
        if P::is_urgent(note.asked_ns) {
            return None; // it waits on the word anyway
        }
        let taken = doze(lock, DOZES, DOZE_NS);
        if taken.is_none() && lock.overtaken() >= lock.tuning.bypass {
            memos::stops_for_head(lock);
        }
        taken
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}

/// Gives way four times before the head's turn comes: the head may be waiting for this very CPU. (If all runners stopped only
/// at the bound, the other CPUs would be idle until the head had woken the next one.)
fn give_way<P: Machine>(lock: &View<'_, P>) {
    let part = lock.tuning.bypass / 4;
    let so_far = lock.overtaken();
    if part >= LEAST && so_far % part == part - 1 && !lock.is_left() && !lock.is_line_empty() {
        P::give_way();
    }
}

/// Waits awake outside the line, if few enough threads do.
fn spin_in_front<P: Machine>(lock: &View<'_, P>) -> Option<Taken> {
    // All of these are hints: `take` decides who may have the lock.
    if lock.is_saturated() || lock.overtaken() >= lock.tuning.bypass || lock.is_turn() {
        return None;
    }
    if lock.tuning.spinners == ANY {
        return saturation::contend(lock);
    }
    if !lock.count_in(lock.tuning.spinners) {
        return None;
    }
    let taken = saturation::contend(lock);
    lock.count_out();
    taken
}

/// A contender sleeps on the word, at most `times` times and for at most `ns` in all, while threads outnumber the CPUs and the line's
/// head may be overtaken. An unlock that finds 2 wakes one of the threads that sleep there: real-time threads first, otherwise by
/// arrival.
///
/// *Dozing* keeps the number of runners constant where threads outnumber the CPUs. A thread that falls asleep in the line wakes
/// nobody. The line's head has been woken, but often it waits for a CPU that a runner keeps, while another CPU falls
/// idle: Linux moves the head there only milliseconds later. So a thread that must sleep first dozes on the word, as glibc's
/// waiters do:
///
/// ```text
///   line     head, woken, waits for CPU 0 ◄─ next ◄─ next ...
///   CPU 0    R: [cs] gap [cs] gap [cs] ...  each unlock that finds the word 2 wakes a thread that sleeps there
///   CPU 1    T: finds it held, makes the word 2, dozes ─ woken, takes it [cs] gap ...
/// ```
///
/// (Real, 2 CPUs, 32 threads, 2 us in and 10 us out: 0.64 of glibc's throughput with one CPU idle, 1.01 with dozing.)
///
/// A thread that dozed takes the word like any arrival: it is counted, up to `bypass`. It takes the word as 2, or passes on the wake
/// that it may have got. If it is the head's turn, it passes the wake on at once.
#[inline(never)] // see `acquire`
pub fn doze<P: Machine>(lock: &View<'_, P>, times: u32, ns: u32) -> Option<Taken> {
    let word = lock.parts.word;
    let may = || {
        let in_crowd = lock.is_crowded() && !lock.is_line_empty();
        in_crowd && !lock.is_saturated() && !lock.is_left() && lock.may_overtake()
    };
    let deadline = P::after(ns);
    for _ in 0..times {
        if !may() {
            break;
        }
        if lock.mark_word() {
            return lock.overtakes(true);
        }
        if word.sleep(Some(deadline)) == Woken::TimedOut {
            break; // only because the kernel says so: had it woken us, we would owe a wake
        }
        let mut taken = None;
        if may() {
            saturation::watch(lock, lock.tuning.spin_ns, |_| {
                taken = lock.take_as(true);
                taken.is_some()
            });
        }
        if taken.is_some() {
            return taken;
        }
        word.pass_on();
    }
    None
}
