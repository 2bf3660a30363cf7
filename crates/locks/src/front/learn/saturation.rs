//! Saturation: is it worth handing the lock to another core? And if not, how long does it stay?
//!
//! A waiter that takes the lock as soon as it is free makes the lock, and all data that it protects, travel between
//! cores. If the last holder would come back and finish its next section sooner than that, the hand-over gains nothing:
//! the last holder's core has the data already. So waiters learn. Now and then a waiter that finds the word free doesn't take
//! it. For some microseconds it watches who comes back (`__owner` tells), and how fast (*rounds*, below). If that is faster than a
//! hand-over, the lock moves a step towards *saturated*; otherwise a step back, or more. (NUMA locks likewise leave the lock
//! to the socket that has the data: Radovic & Hagersten, HPCA 2003.) On two CPUs waiters ask how busy the holder keeps the
//! lock (*busy*, below).
//!
//! ```text
//!   holder   [cs]..[cs]..[cs]..[cs]..        [cs]................[cs].....
//!   waiter        ^ watches: short rounds        ^ watches: nobody; takes it
//! ```
//!
//! The line's head leaves a saturated lock to its *runner*, the thread that keeps coming back for it, until the head's own
//! turn has come. A **wait budget**, in time, limits what turns may cost. The waiters' turns share three quarters of it
//! equally; the rest is for standby (rule/slo.rs) and for starting turns. Long turns move the data seldom, and make waits rare: a
//! runner with 1000 operations in its turn waits in one of the 1000. Meanwhile the head checks now and then whether the
//! runner is gone. On two CPUs the head sets TURN when its turn has come, and the runner gives way at once: it joins the
//! line. The next head is often asleep, and waking it may take longer than a hundred sections. Until it is awake, the lock is
//! left to its runner, too.
//!
//! ```text
//!   runner   [cs][cs][cs] ... [cs]│ joins the line's end
//!   head     naps  ^look    ^look │ its turn: [cs][cs][cs] ...
//! ```
//!
//! The budget bounds naps only. A wait also contains the wake-ups of the waiters before it, and the time that the wait would
//! take at an unsaturated lock.
//!
//! # Rounds
//!
//! On more than two CPUs rounds decide whether a runner comes back so soon that handing the lock on doesn't pay.
//!
//! A head that finds the word free doesn't take it. It watches for some microseconds who does. The rounds of a single
//! thread tell how fast the lock is on a core that has its data. This is compared with the time of one section when the lock
//! moves from core to core:
//!
//! - *Granted locks* (grant.rs) know that time: the chain ends for a slice of each millisecond, and tells its head its pace.
//! - *Other locks* guess it, by how long the last section took after somebody was first seen in it. Sections differ by chance,
//!   so only a runner that is twice as fast counts.
//!
//! ```text
//!   chain    [cs]→[cs]→[cs]→[cs]│            pace: time / grants
//!   runner                      [cs]..[cs]..[cs]..[cs]
//!   head                         ^ watches            ^ takes it, and votes
//! ```
//!
//! It matters most at the *knee*, where threads just keep the lock busy. A chain of grants then completes several sections in
//! the time of one runner's round. A lock that counted as saturated there would lose half of its throughput.
//!
//! # Busy
//!
//! How busy does a runner keep the lock? On two CPUs that decides whether there is work for a second runner.
//!
//! ```text
//!   runner   [held][free][held][free][held] ...     rounds, up to 8, or 10 us
//!   watcher  ^ the word tells when, and `__owner` whether it is the same thread
//! ```
//!
//! With two CPUs there is one runner beside the watcher. A second runner could at best fill the time in which the lock is
//! free. Each move of the lock costs it the lock's data, and all the data that the lock leads to. So if the runner holds the
//! lock for most of its time, it should run alone: LMDB's operations take twice the CPU time with two runners. In programs with
//! several locks one busy lock is enough: a thread that waits there doesn't disturb the others.
//!
//! On more CPUs rounds tell what a move costs. There, runners take the lock from each other, and no single thread's rounds can
//! be seen.
//!
//! # What it learns
//!
//! ```text
//!   hints, bits 16 to 22:   │ stalled │ saturated │ napping │ slow │ steps (3) │      napping is the line's
//! ```
//!
//! [`Learnt`] has these bits. Everything here is a hint: word 0 alone decides who holds the lock.

use crate::front::grant::is_in_slice;
use crate::front::line::{Parts, Taken, View, counts, hints};
use crate::front::waiter::Pace;
use crate::front::word::FREE;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Stage, Word};

/// The time from its predecessor's acquisition until a waiter learns that it is head, plus the time from a release until it can
/// have acquired, ns.
const HEADSHIP_NS: u64 = 200;

/// A head that was overtaken this often while it woke up suspects that somebody keeps coming back for the lock.
const OVERTAKEN: u32 = 16;

/// A slower core's turn is a fast core's turn divided by this, because a slower core does less in it.
const SLOW_SHARE: u64 = 3;

/// After one turn in this many the lock goes from core to core for a while, to see whether that pays now.
const TRY_EACH: u64 = 32;

/// The same for locks that are granted, where measuring is cheap: once in this time, ns.
const TRIES_NS: u64 = 1 << 26;

/// A head that naps looks at the lock after this long, ns, then after twice as long ...
const FIRST_LOOK_NS: u32 = 20_000;

/// ... up to this: a lock that falls idle does not stay idle for longer.
const LONGEST_LOOK_NS: u32 = 200_000;

/// A runner that has not been back for this long is gone, ns.
const GONE_NS: u64 = 1_000;

/// Where the pace is known, this many rounds of one thread tell how fast it is.
const PACE_ROUNDS: u64 = 3;

/// Other threads may take the lock this often meanwhile.
const OTHERS: u64 = 3;

/// A runner must be this many times as fast as a guess.
const FASTER: u64 = 2;

/// A pace has at most this many votes: a wake-up among a few grants must not decide.
const VOTES: u32 = 4;

/// Enough votes to decide at once.
const ALL: i32 = (hints::STEPS / hints::STEP) as i32;

/// Nobody waits for a runner that isn't back after this long, ns.
const GRACE_MAX_NS: u64 = 2_000;

/// The least cost of a move to another core: the word, and a few cache lines of data, ns. (Watching costs the runner about as much.)
const MOVED_NS: u64 = 150;

/// A watcher on another socket makes each round of a runner longer by up to this, ns. (It fetches the word and the owner, and the runner
/// fetches them back.)
const WATCHED_NS: u64 = 800;

/// A thread that has taken the word writes its id within this time, ns.
const OWNER_NS: u32 = 100;

/// How long a runner is watched, ns.
const WATCH_NS: u64 = 5_000;

/// This many rounds show how busy the lock is. Fewer than three are enough only if it is hardly ever free.
const ROUNDS: u64 = 8;

/// A busy lock is free for at most this many quarters of the time for which it is held ...
const BUSY: u64 = 3;

/// ... and a lock that counts as saturated may go up to this: chance must not end a turn.
const STILL_BUSY: u64 = 8;

/// The lock may have been free for this much longer by chance when watching ends, ns.
const SLACK_NS: u64 = 500;

/// How long waiters stay awake at most while the line is crowded, ns.
const CROWDED_SPIN_NS: u32 = 4_000;

/// While holders seem to lose their CPUs, one waiter in this many stays awake, to find out whether they still do.
const AWAKE_EACH: u64 = 16;

/// What a lock has learnt: its bits of the hints word.
struct Learnt<'a, P: Machine>(&'a P::Word);

impl<P: Machine> Learnt<'_, P> {
    /// Moves `by` steps towards saturated, or away from it.
    fn note(&self, by: i32) {
        let now = self.0.load(Relaxed);
        let so_far = ((now & hints::STEPS) / hints::STEP) as i32;
        let steps = (so_far + by).clamp(0, ALL) as u32 * hints::STEP;
        let mut next = now & !hints::STEPS | steps;
        if steps >= hints::SATURATED_AT {
            next |= hints::SATURATED;
        } else if steps < hints::IDLE_AT {
            next &= !hints::SATURATED;
        }
        self.change(now, next);
    }

    /// From now on a saturated lock counts only as probably saturated.
    fn doubt(&self) {
        let now = self.0.load(Relaxed);
        let probably = hints::SATURATED_AT - hints::STEP;
        self.change(now, now & !(hints::STEPS | hints::SATURATED) | probably);
    }

    /// A turn begins, on a core of a slower class if `is_slow()`.
    fn begin_turn(&self, is_slow: impl FnOnce() -> bool) {
        let now = self.0.load(Relaxed);
        if now & (hints::SATURATED | hints::SLOW) != 0 {
            let slow = if is_slow() { hints::SLOW } else { 0 };
            self.change(now, now & !hints::SLOW | slow);
        }
    }

    /// Does the holder seem to have lost its CPU?
    fn is_stalled(&self) -> bool {
        self.0.load(Relaxed) & hints::STALLED != 0
    }

    /// Notes whether it has.
    fn set_stalled(&self, stalled: bool) {
        if stalled {
            self.0.fetch_or(hints::STALLED, Relaxed); // a hint
        } else {
            self.0.fetch_and(!hints::STALLED, Relaxed); // a hint
        }
    }

    /// A hint. If others change the word meanwhile, their change stays.
    fn change(&self, now: u32, next: u32) {
        if next != now {
            let _ = self.0.compare_exchange(now, next, Relaxed, Relaxed);
        }
    }
}

fn learnt<'a, P: Machine>(parts: &Parts<'a, P>) -> Learnt<'a, P> {
    Learnt(parts.hints)
}

/// Does the holder seem to have lost its CPU?
pub(crate) fn is_stalled<P: Machine>(line: &View<'_, P>) -> bool {
    learnt(line.parts).is_stalled()
}

/// Do most hand-overs go to waiters that have slept, as noted?
pub(crate) fn is_asleep<P: Machine>(line: &View<'_, P>) -> bool {
    line.parts.hints.load(Relaxed) & hints::SATURATED != 0
}

/// Notes a hand-over of a lock that doesn't ask whether it is saturated: 1 for a waiter that has slept, -1 for one that was awake.
pub(crate) fn note_asleep<P: Machine>(line: &View<'_, P>, by: i32) {
    learnt(line.parts).note(by);
}

/// How long a waiter stays awake now, ns. If waiters outnumber the CPUs, a holder that doesn't release at once has probably lost
/// its CPU; then the waiter should give up its own. `spin_ns`: how long it stays awake otherwise.
pub(crate) fn awake_ns<P: Machine>(line: &View<'_, P>, spin_ns: u32) -> u32 {
    // Hints, both: waiting awake and waiting asleep are both correct.
    if is_stalled(line) && P::now() / 64 % AWAKE_EACH != 0 {
        return 0;
    }
    if line.is_crowded() { spin_ns.min(CROWDED_SPIN_NS) } else { spin_ns }
}

/// Waits awake for `spin_ns`, or less in a crowd; `done` sees each new value of the word. Notes whether the holder seems to have lost
/// its CPU: if so, others need not wait awake for it.
pub(crate) fn watch<P: Machine>(
    line: &View<'_, P>,
    spin_ns: u32,
    mut done: impl FnMut(u32) -> bool,
) {
    let (parts, ns) = (line.parts, awake_ns(line, spin_ns));
    let (holder, mut over, mut free) = (parts.holder(), false, false);
    parts.word.spin_for(ns, |value| {
        free |= value == FREE;
        over = done(value);
        over
    });
    let (learnt, stalled) = (learnt(parts), is_stalled(line));
    if over && stalled && ns != 0 {
        learnt.set_stalled(false);
    } else if ns != 0 && !over && !free && !stalled && parts.holder() == holder {
        learnt.set_stalled(true);
    }
}

/// Waits awake until `take` has taken the word; `false` if that took too long. `head`: `Some` if the line's head calls, with
/// whether it has slept; `None` if a contender calls.
pub(crate) fn spin<P: Machine>(
    line: &View<'_, P>,
    spin_ns: u32,
    head: Option<bool>,
    mut take: impl FnMut() -> bool,
) -> bool {
    let View { parts, tuning, .. } = line;
    let now = parts.hints.load(Relaxed);
    let start = P::now();
    // Somebody kept coming back while it woke up.
    let overtaken = head == Some(true) && line.overtaken() >= OVERTAKEN;
    let watches = tuning.budget_ns != 0
        && now & hints::SATURATED == 0
        && match now & hints::STEPS {
            // Granted: a head that comes after some grants knows their pace. With nobody else in line there are no grants to measure.
            _ if let Some(pace) = line.pace
                && (pace.is_known() || now / hints::WAITER > 1) =>
            {
                pace.is_known()
            }
            _ if overtaken && !few(line) => true,
            0 => is_in_slice(start) || start / 64 % if few(line) { 64 } else { 32 } == 0,
            // The clock's low bits serve as a die.
            steps if steps < hints::IDLE_AT => start / 64 % 8 == 0,
            _ => start / 64 % 2 == 0,
        };
    if watches && spin_and_watch(line, spin_ns, head, start, overtaken, &mut take) {
        return true;
    }
    let mut got = false;
    watch(line, spin_ns, |value| {
        got = value == FREE && take();
        got
    });
    got
}

/// As [`spin`], and sees what the last holder does meanwhile. Who calls stays out of its way, if it is the head.
#[inline(never)] // see `acquire`
fn spin_and_watch<P: Machine>(
    line: &View<'_, P>,
    spin_ns: u32,
    head: Option<bool>,
    start: u64,
    overtaken: bool,
    take: &mut dyn FnMut() -> bool,
) -> bool {
    let parts = line.parts;
    if head.is_some() {
        leaves(line);
    }
    let (mut got, mut holder, mut since) = (false, parts.holder(), start);
    let mut held = few(line) && line.is_crowded() && head == Some(true);
    watch(line, spin_ns, |value| {
        if value == FREE {
            held = false;
            let late = if head.is_some() { HEADSHIP_NS } else { 0 };
            let guess = (!overtaken).then(|| P::now().saturating_sub(since) + late);
            got = !is_back(line, holder, guess) && take();
        } else if parts.holder() != holder {
            (holder, since) = (parts.holder(), P::now());
        }
        value == FREE
    });
    if held && parts.holder() == holder {
        learnt(parts).note(1); // it looked at a random moment, perhaps on the runner's CPU, and the lock was held
    }
    if head.is_some() {
        is_back_at_it(line);
    }
    got
}

/// A contender waits awake, and takes the lock if that works.
pub(crate) fn contend<P: Machine>(line: &View<'_, P>) -> Option<Taken> {
    let mut taken = None;
    spin(line, line.tuning.spin_ns, None, || {
        taken = line.take();
        taken.is_some()
    });
    taken
}

/// The word is free: does its last holder come back soon? Notes the answer. `false`: nobody came, and the word is still free.
/// `last`, `guess`: see [`rounds`].
#[inline(never)] // see `acquire`
fn is_back<P: Machine>(line: &View<'_, P>, last: u32, guess: Option<u64>) -> bool {
    if few(line) {
        let busy = is_busy(line.parts, BUSY);
        if let Some(busy) = busy {
            learnt(line.parts).note(if busy { 1 } else { -1 });
        }
        return busy.is_some();
    }
    let seen = rounds(line, last, guess);
    learnt(line.parts).note(seen.votes);
    seen.came
}

/// The head of a saturated lock leaves it to its runner until the head's turn has come, and asks nobody for a wake. It `take`s
/// the lock early if the runner doesn't come back. `asked_ns`: when it asked; 0 if it didn't read the clock.
#[inline(never)] // see `acquire`
pub(crate) fn nap<P: Machine>(
    line: &View<'_, P>,
    asked_ns: u64,
    take: impl FnOnce() -> bool,
) -> bool {
    let (parts, budget) = (line.parts, u64::from(line.tuning.budget_ns));
    let start = P::now();
    let waiters = parts.hints.load(Relaxed) / hints::WAITER; // a hint, like all of these
    let mut turn = budget / 4 * 3 / u64::from(waiters.max(1));
    if few(line) {
        turn = turn.min(budget / 2); // with one waiter, turns are rare enough even so, and the longest wait gets shorter
    }
    if parts.hints.load(Relaxed) & hints::SLOW != 0 {
        turn /= SLOW_SHARE;
    }
    if asked_ns != 0 {
        turn = turn.min((asked_ns + budget).saturating_sub(start));
    }
    let gone = leave(line, || {
        line.end_turn();
        let mut look = FIRST_LOOK_NS;
        loop {
            let left = turn.saturating_sub(P::now().saturating_sub(start));
            if left == 0 {
                return false;
            }
            let first = look == FIRST_LOOK_NS;
            line.sleep_aside(u64::from(look).min(left) as u32);
            look = (2 * look).min(LONGEST_LOOK_NS);
            if is_gone(line, first) {
                return true;
            }
        }
    });
    let tries = match line.pace {
        Some(_) => start / TRIES_NS != P::now() / TRIES_NS,
        None => P::now() / 64 % TRY_EACH == 0,
    };
    if tries {
        learnt(parts).doubt();
    } else if !gone && line.pace.is_some() {
        learnt(parts).note(1);
    }
    if !gone && few(line) {
        line.begin_turn(); // nobody overtakes it until it has the lock: a hint
    }
    gone && take()
}

/// The caller has the lock, and leaves the line. If the lock is saturated, this begins its turn.
pub(crate) fn runs<P: Machine>(line: &View<'_, P>) {
    line.end_turn();
    learnt(line.parts).begin_turn(|| !P::place().class.is_big());
}

/// The line's head leaves the lock to others while `looks` runs.
fn leave<P: Machine, R>(line: &View<'_, P>, looks: impl FnOnce() -> R) -> R {
    leaves(line);
    let answer = looks();
    is_back_at_it(line);
    answer
}

fn leaves<P: Machine>(line: &View<'_, P>) {
    P::reached(Stage::Naps);
    line.parts.hints.fetch_or(hints::NAPPING, Relaxed); // a hint, to arrivals
}

fn is_back_at_it<P: Machine>(line: &View<'_, P>) {
    line.parts.hints.fetch_and(!hints::NAPPING, Relaxed);
    P::reached(Stage::Head);
}

/// Is the runner of a saturated lock gone, at least for now? `first`: the first look of this nap.
#[inline(never)] // see `acquire`
fn is_gone<P: Machine>(line: &View<'_, P>, first: bool) -> bool {
    let (parts, grants) = (line.parts, line.pace.is_some());
    if few(line) {
        // The next thread that takes the lock clears this: a hint.
        let used = parts.counts.fetch_or(counts::TURN, Relaxed) & counts::TURN == 0;
        let gone = (first || !used) && !is_busy(parts, STILL_BUSY).unwrap_or(used);
        if gone {
            learnt(parts).note(-1);
        }
        return gone;
    }
    let until = |is_free| until(parts, is_free, GONE_NS).unwrap_or_else(P::now);
    let (released, back) = (until(true), until(false));
    if parts.word.is_free() {
        learnt(parts).note(if grants { -1 } else { -2 });
        return true;
    }
    let hold = until(true).saturating_sub(back);
    if !grants && back.saturating_sub(released) > 2 * MOVED_NS + hold / 4 {
        learnt(parts).doubt();
        return true;
    }
    false
}

/// What a watcher has seen.
struct Seen {
    /// Somebody took the word meanwhile.
    came: bool,
    /// Steps towards saturated, or away from it.
    votes: i32,
}

/// The word is free: watches who comes back. `last`: its last holder, 0 if that isn't known. `guess`: the time of a section on
/// a core that has just got the data, including the move, ns; used where no pace is known.
#[inline(never)] // see `acquire`
fn rounds<P: Machine>(line: &View<'_, P>, mut last: u32, guess: Option<u64>) -> Seen {
    let (parts, grants) = (line.parts, line.pace.is_some());
    let pace = line.pace.filter(Pace::is_known);
    let moved = pace.map_or(guess.unwrap_or(0), |pace| pace.ns.into()).min(GRACE_MAX_NS);
    let (least, others, enough) = match pace {
        Some(_) => (GONE_NS, OTHERS, PACE_ROUNDS),
        None => (MOVED_NS, 0, u64::MAX),
    };
    let start = P::now();
    let (mut released, mut taken) = (start, 0);
    // Rounds of one thread, and how long the lock was free, and held, in them, ns.
    let (mut rounds, mut free, mut held) = (0, 0, 0);
    let is_enough = loop {
        let patience =
            (moved * (taken + 1)).saturating_sub(P::now().saturating_sub(start)).min(GRACE_MAX_NS);
        let Some(back) = until(parts, false, patience.max(least)) else { break rounds >= enough };
        taken += 1;
        let by = if pace.is_some() { who(parts) } else { parts.holder() };
        let Some(end) = until(parts, true, WATCH_NS) else { break rounds >= enough };
        if by == 0 || last == 0 || by == last {
            rounds += 1;
            free += back.saturating_sub(released);
            held += end.saturating_sub(back);
        }
        (last, released) = (if by == 0 { last } else { by }, end);
        if taken - rounds > others {
            break rounds >= enough;
        }
        if end.saturating_sub(start) > WATCH_NS {
            break rounds > 0;
        }
    };
    // Saturated if the runner is back sooner than a move takes, whatever the section; or if its rounds are short, allowing for
    // the cost of watching.
    let is_faster = match pace {
        Some(_) => free + held < rounds * (moved + MOVED_NS),
        None => (free + held) * FASTER < rounds * moved,
    };
    let votes = match (is_enough && (free < rounds * MOVED_NS || is_faster), pace) {
        (true, Some(pace)) => pace.grants.min(VOTES) as i32,
        (false, Some(_))
            if rounds >= PACE_ROUNDS && free + held > rounds * (moved + WATCHED_NS) =>
        {
            -ALL
        }
        (false, Some(_)) => 0, // too few rounds, or the watcher may be what makes them slow
        // Several threads have come since, whose sections by a node look like one thread's. Their chain will tell.
        (true, None) if grants && line.waiters() > 1 => 0,
        (true, None) if is_in_slice(start) => ALL,
        (true, None) => 1,
        (false, None) if grants => 0, // a chain will tell, if there are any
        (false, None) => -2,
    };
    Seen { came: taken != 0, votes }
}

/// Is there at most one visible runner?
fn few<P: Machine>(line: &View<'_, P>) -> bool {
    line.tuning.cpus <= 2 && line.pace.is_none()
}

/// Waits awake, for `ns` at most, until the word is free (or, without `is_free`, is held); returns when that was.
fn until<P: Machine>(parts: &Parts<'_, P>, is_free: bool, ns: u64) -> Option<u64> {
    let seen = parts.word.spin_for(ns as u32, |value| (value == FREE) == is_free);
    ((seen == FREE) == is_free).then(P::now)
}

/// The thread that has just taken the word; 0: not known. The owner is written after the word.
fn who<P: Machine>(parts: &Parts<'_, P>) -> u32 {
    if let Some(owner) = parts.owner {
        P::spin_for(owner, Relaxed, OWNER_NS, |owner| owner != 0);
    }
    parts.holder()
}

/// Watches a runner. Busy means: the lock is free for at most `most` quarters of the time for which it is held. `None`: its last
/// holder doesn't come back; perhaps the watcher occupies its CPU.
#[inline(never)] // see `acquire`
fn is_busy<P: Machine>(parts: &Parts<'_, P>, most: u64) -> Option<bool> {
    let (mut free, mut held, mut holder, mut count) = (0, 0, 0, 0);
    let Some(mut released) = until(parts, true, 2 * WATCH_NS) else { return Some(true) };
    while count < ROUNDS && free + held < 2 * WATCH_NS && free <= held * most / 4 + SLACK_NS {
        let back = until(parts, false, GRACE_MAX_NS)?;
        let by = parts.holder();
        if by != 0 && holder != 0 && by != holder {
            return Some(false);
        }
        holder = if by == 0 { holder } else { by };
        free += back.saturating_sub(released);
        (released, count) = (until(parts, true, 2 * WATCH_NS)?, count + 1);
        held += released.saturating_sub(back);
    }
    let enough = if count < 3 { held / 8 } else { held * most / 4 };
    Some(free <= enough || free < count * MOVED_NS)
}
