//! dynamic: an ordinary lock that delegates its sections while that runs more of them.
//!
//! Our own. J.-P. Lozi et al., *Remote Core Locking*, USENIX ATC 2012, section 7, leave it for the future: a runtime that changes
//! between locks and servers (R16).
//!
//! ```text
//!                    ┌ the lock is free: takes it, and runs its own section, as with any lock (not in SERVE)
//!     a section ─────┤               ┌ HOME      waits for the lock, in the lock's own way
//!                    └ it is held ───┤ COMBINE   asks the combiner, who holds the lock while it runs everybody's (combiner.rs)
//!                                    └ SERVE     asks a server, which holds the lock for up to 32 sections (server.rs); only by hand
//!
//!                  crowded            four turns of 5 ms:        better by 10 %
//!         HOME ────────────────► COMBINE, HOME, COMBINE, HOME ────────────────► COMBINE      and back likewise
//! ```
//!
//! Whoever runs a section holds the lock. So the mode may change at any time, and threads that still see the last one exclude those that see
//! the next. All that a mode decides is what a thread does when it has to wait.
//!
//! *Which one.* RCL's authors measure the share of time that threads spend in sections, and know from a microbenchmark from which share on
//! delegation pays. Here the share says only whether to try ([`CROWD`]). The lock then runs either way in turns, and counts. That
//! needs no figures of the machine, and sees what a share can't: how many cache lines the sections move, and who else is running.
//! A lock tries again after 50 ms, then after twice that, up to 0.5 s; and at once when the rate changes by half. If only the *other* mode's
//! rate changes, the lock learns of that at the next trial.
//!
//! State: mode. by the rule: HOME <-> COMBINE. by hand: any -> (any, BY_HAND).
//!
//! 1. Whoever runs a section holds the lock.
//! 2. The ledger belongs to the lock's holder.
//! 3. A server's threads touch the lock only while somebody asks for it, or while they show it (server.rs, invariant 3).
//!
//! Facts: order and waits as the lock's, or as the combiner's or the server's; the clock is read only by some of those who wait, and by combiners.

use super::combiner::Combiner;
use super::server::SectionServer;
use super::waiting::Spins;
use super::{Gate, Naps, carried};
use crate::entry::{Entry, Kind, Promise};
use crate::front::{self, Alone};
use core::cell::Cell;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Ptr, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "dynamic",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "an ordinary lock (auto), which becomes a combiner while that runs more sections, and goes back",
    source: "our own, after the future work of J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, Remote Core Locking: Migrating Critical-Section Execution to Improve the Performance of Multithreaded Applications, USENIX ATC 2012, section 7",
    order: "none: auto's, then the combiner's",
    promise: Promise::Nothing,
    stands_by: false,
    space: "128 B per lock in a program, 128 B per waiter of a combiner, from a pool",
    wakes: "as auto or combiner",
    delay: "as auto or combiner; a trial of 20 ms, half of it in the mode that does not pay, every 70 ms to 0.5 s",
    advice: "programs that can hand their sections over as functions: what Delegated, lw_execute and lockwright::delegated use",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Dynamic<P, Alone<P, front::auto::Lock>>;

/// What a thread does when it has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It waits for the lock.
    Home,
    /// It asks a combiner.
    Combine,
    /// It asks the server.
    Serve,
}

/// A mode: it waits for the lock.
pub const HOME: u32 = 0;
/// It asks a combiner.
pub const COMBINE: u32 = 1;
/// It asks the server.
pub const SERVE: u32 = 2;
/// These bits.
pub const MODE: u32 = 3;
/// A flag: the mode was set by hand, and stays.
pub const BY_HAND: u32 = 4;
/// A flag of SERVE: any server will do.
pub const ANY: u32 = 8;

/// A turn, and a look at the rate, ns.
const PERIOD_NS: u64 = 5_000_000;
/// How long a combiner waits for one of those who wait for the lock, ns: as long as a slow wake.
const TURN_NS: u32 = 200_000;
/// A look that comes later than after this many periods tells nothing: nobody had to wait in between.
const STALE: u64 = 4;
/// Turns of a trial: the other mode, this one, and both again.
const TURNS: u8 = 4;
/// The other mode has to be better by this, in percent.
const BETTER: u64 = 110;
/// Periods until the next trial, at first.
const PAUSE: u16 = 10;
/// At most.
const PAUSE_MAX: u16 = 100;
/// Periods in which the rate is another one, until the lock tries at once.
const ODD: u8 = 2;
/// The share of sections whose threads had to wait, in quarters, from which a lock is crowded.
const CROWD: u64 = 1;
/// One wait in this many looks at the clock at its end.
const SAMPLE: u32 = 16;
/// One short tenure in this many looks at the clock.
const TENURES: u32 = 16;
/// How many sections are a long tenure.
const LONG: u32 = 16;

/// What the lock's holder counts, in this period.
#[derive(Default)]
struct Ledger {
    /// Sections.
    sections: Cell<u32>,
    /// Of those, sections that ran for others.
    others: Cell<u32>,
    /// Sections whose threads had to wait for the lock.
    waited: Cell<u32>,
    /// Waits and tenures.
    calls: Cell<u32>,
}

/// What the lock's holder decides by.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Trial {
    /// The rate that is usual in this mode, in sections a second.
    usual: u32,
    /// In the trial's turns, at home and sent.
    rates: [u32; 2],
    /// Periods until the next trial.
    left: u16,
    /// Periods from the last trial to the next.
    pause: u16,
    /// 0: no trial. Else the turn that runs.
    turn: u8,
    /// Periods in which the rate was another one.
    odd: u8,
    /// How many times the mode has changed, trials apart.
    changes: u16,
}

impl Trial {
    /// A period is over. Returns the next one's mode: `true`, sections are sent.
    fn next(&mut self, is_sent: bool, rate: u32, is_crowded: bool) -> bool {
        if self.turn > 0 {
            return self.next_turn(is_sent, rate);
        }
        self.left = self.left.saturating_sub(1);
        let (rate64, usual) = (u64::from(rate), u64::from(self.usual));
        if 2 * rate64 > 3 * usual || 3 * rate64 < 2 * usual {
            self.odd += 1;
        } else {
            self.odd = 0;
            self.usual = u32::try_from((3 * usual + rate64) / 4).unwrap_or(u32::MAX);
        }
        if self.odd >= ODD {
            (self.odd, self.usual, self.left, self.pause) = (0, rate, 0, PAUSE);
        }
        if is_crowded && self.left == 0 {
            (self.turn, self.rates) = (1, [0; 2]);
            return !is_sent;
        }
        is_sent
    }

    fn next_turn(&mut self, is_sent: bool, rate: u32) -> bool {
        let of = &mut self.rates[usize::from(is_sent)];
        *of = of.saturating_add(rate / 2);
        self.turn += 1;
        if self.turn <= TURNS {
            return !is_sent;
        }
        // The last turn was in the mode from before the trial.
        let was_sent = is_sent;
        let [mine, other] = [was_sent, !was_sent].map(|sent| self.rates[usize::from(sent)]);
        let changes = 100 * u64::from(other) > BETTER * u64::from(mine);
        if changes {
            self.changes = self.changes.saturating_add(1);
            self.pause = PAUSE;
        } else {
            self.pause = (2 * self.pause).clamp(PAUSE, PAUSE_MAX);
        }
        (self.turn, self.odd, self.left) = (0, 0, self.pause);
        self.usual = if changes { other } else { mine };
        was_sent != changes
    }
}

/// A lock over `L` that delegates its sections while that pays.
///
/// Over a mutex it has two halves of 64 B: two cache lines, if it begins one. The holder, and those who wait for the lock, write the first
/// half. Those who ask use the second one, so a combiner need not fetch the lock's line from whoever looks at the mode.
#[repr(C)]
pub struct Dynamic<P: Platform, L> {
    /// Held by whoever runs a section.
    lock: L,
    ledger: Ledger,
    /// When the period began, in µs.
    since: P::Word,
    /// How many threads wait for the lock, or have done so and are about to say that they are through.
    at_home: P::Word,
    mode: P::Word,
    rule: Cell<Trial>,
    /// In SERVE, whom to ask.
    server: P::Ptr<SectionServer<P, Self>>,
    combiner: Combiner<P>,
}

// SAFETY: ledger and rule belong to the lock's holder (invariant 2).
unsafe impl<P: Platform, L: Sync> Sync for Dynamic<P, L> {}
// SAFETY: it belongs to no thread; the server outlives it.
unsafe impl<P: Platform, L: Send> Send for Dynamic<P, L> {}

impl<P: Platform, L: TryLock<P>> Naps<P> for Dynamic<P, L> {
    fn nap(&self, word: &P::Word, while_it_is: u32, ns: u32) {
        self.lock.nap(word, while_it_is, ns);
    }
}

impl<P: Platform, L: TryLock<P>> Gate for Dynamic<P, L> {
    const MAY_END: bool = L::MAY_END;

    type Key = L::Node;

    fn is_left(&self) -> bool {
        self.lock.is_handed_on()
    }

    fn enter(&self, key: &mut L::Node) {
        // SAFETY: the caller keeps the key until it leaves.
        unsafe { self.lock.lock(key) };
    }

    fn enter_to_combine(&self, key: &mut L::Node) {
        // Those who sleep in the lock's own line ask nobody, and a combiner that took the lock at once would leave them there. So after a
        // change to COMBINE it first lets them through, one after the other.
        let before = self.at_home.load(Relaxed); // a hint, as all below
        let mut left = before;
        while left > 0 && self.is_new() {
            let now = P::spin_for(&self.at_home, Relaxed, TURN_NS, |now| now < left);
            if now >= left {
                break;
            }
            left = now;
        }
        self.enter(key);
        if left < before {
            self.begin((P::now() / 1_000) as u32);
        }
    }

    fn try_enter(&self, key: &mut L::Node) -> bool {
        // SAFETY: as in `enter`.
        unsafe { self.lock.try_lock(key) }
    }

    fn leave(&self, key: &mut L::Node, ran: u32) {
        let Ledger { others, calls, .. } = &self.ledger;
        self.count(ran);
        others.set(others.get().wrapping_add(ran.saturating_sub(1)));
        calls.set(calls.get().wrapping_add(1));
        if ran >= LONG || calls.get() % TENURES == 0 {
            self.look(P::now());
        }
        // SAFETY: the caller has entered with it.
        unsafe { self.lock.unlock(key) };
    }

    fn move_to(&self, server: *const ()) {
        let mode = self.mode.load(Relaxed);
        if mode & MODE == SERVE && mode & ANY != 0 {
            // ORDERING: Release [server]: the server was made before.
            self.server.store(server.cast::<SectionServer<P, Self>>().cast_mut(), Release);
        }
    }
}

impl<P: Platform, L: TryLock<P>> Dynamic<P, L> {
    /// Over an unlocked lock. All zeroes is the same, if that holds for the lock.
    pub fn over(lock: L) -> Self {
        Self {
            lock,
            ledger: Ledger::default(),
            since: P::Word::new(0),
            at_home: P::Word::new(0),
            mode: P::Word::new(HOME),
            rule: Cell::new(Trial::default()),
            server: P::Ptr::new(null_mut()),
            combiner: Sections::new(),
        }
    }

    /// The lock below: whoever holds it may use the data, too, and no section runs meanwhile.
    pub fn lock(&self) -> &L {
        &self.lock
    }

    /// Where its mode is, and behind that what it decides by: commands read it, and may write the mode.
    pub const STATE_AT: usize = core::mem::offset_of!(Self, mode);
    /// How many bytes that are.
    pub const STATE: usize =
        core::mem::offset_of!(Self, rule) + size_of::<Trial>() - Self::STATE_AT;

    /// What a thread does now if it has to wait; `true`: by hand.
    pub fn mode(&self) -> (Mode, bool) {
        let mode = self.mode.load(Relaxed); // a hint
        let what = match mode & MODE {
            HOME => Mode::Home,
            COMBINE => Mode::Combine,
            _ => Mode::Serve,
        };
        (what, mode & BY_HAND != 0)
    }

    /// Sets the mode by hand: combine, or wait at home.
    pub fn combine(&self, combines: bool) {
        // STATE: any -> HOME or COMBINE, BY_HAND. Relaxed: it's a hint (invariant 1).
        self.mode.store(BY_HAND | if combines { COMBINE } else { HOME }, Relaxed);
    }

    /// Leaves the mode to the lock again.
    pub fn decide(&self) {
        // STATE: any -> HOME.
        self.mode.store(HOME, Relaxed); // as in `combine`
    }

    /// Sends the sections to this server from now on. Requests that wait elsewhere run there. `may_move`: if it has too much to do, the
    /// lock may move to another one.
    ///
    /// # Safety
    /// The server stays as long as anybody may ask for this lock.
    pub unsafe fn serve_by(&self, server: *const SectionServer<P, Self>, may_move: bool) {
        // ORDERING: Release [server]: the server was made before.
        self.server.store(server.cast_mut(), Release);
        // STATE: any -> SERVE, BY_HAND. Relaxed: whoever sees it looks for the server.
        self.mode.store(BY_HAND | SERVE | if may_move { ANY } else { 0 }, Relaxed);
    }

    /// The server that serves it; null: none.
    pub fn server(&self) -> *const SectionServer<P, Self> {
        match self.mode().0 {
            // ORDERING: Acquire, pairs with [server].
            Mode::Serve => self.server.load(Acquire),
            _ => null_mut(),
        }
    }

    /// The caller holds the lock, and has run `ran` sections.
    #[inline]
    fn count(&self, ran: u32) {
        let sections = &self.ledger.sections;
        sections.set(sections.get().wrapping_add(ran));
    }

    /// Does a combiner's first period run?
    fn is_new(&self) -> bool {
        let now = (P::now() / 1_000) as u32;
        let took = u64::from(now.wrapping_sub(self.since.load(Relaxed)));
        self.mode.load(Relaxed) == COMBINE && took < PERIOD_NS / 1_000
    }

    /// The caller holds the lock: a period begins. Returns what was counted before: sections, those that ran for others, those that had to wait.
    fn begin(&self, now: u32) -> [u64; 3] {
        let Ledger { sections, others, waited, .. } = &self.ledger;
        self.since.store(now, Relaxed);
        [sections, others, waited].map(|of| of.take().into())
    }

    /// The caller holds the lock: is the period over?
    fn look(&self, now_ns: u64) {
        let mode = self.mode.load(Relaxed);
        if mode & BY_HAND != 0 {
            return;
        }
        let now = (now_ns / 1_000) as u32;
        let took = u64::from(now.wrapping_sub(self.since.load(Relaxed)));
        if took < PERIOD_NS / 1_000 {
            return;
        }
        let [ran, others, waited] = self.begin(now);
        if took >= STALE * PERIOD_NS / 1_000 {
            return;
        }
        let is_sent = mode == COMBINE;
        let is_crowded = 4 * (others + waited) >= CROWD * ran;
        let rate = u32::try_from(1_000_000 * ran / took).unwrap_or(u32::MAX);
        let mut rule = self.rule.get();
        let sends = rule.next(is_sent, rate, is_crowded);
        self.rule.set(rule);
        if sends != is_sent {
            let next = if sends { COMBINE } else { HOME };
            // STATE: HOME <-> COMBINE, unless it was set by hand meanwhile. Relaxed: it's a hint (invariant 1).
            let _ = self.mode.compare_exchange(mode, next, Relaxed, Relaxed);
        }
    }

    /// Does a combiner run sections, or has somebody asked for one? A hint.
    #[inline]
    pub fn is_combining(&self) -> bool {
        !self.combiner.is_idle()
    }

    /// Runs the section here and now, if that is right in this mode, and nobody runs another one; or else gives it back.
    #[inline]
    pub fn here<R, F: FnOnce() -> R>(&self, section: F) -> Result<R, F> {
        let mode = self.mode.load(Relaxed);
        // A server has the data, and a combiner's queue is where the others are.
        if mode != HOME && (mode & MODE == SERVE || !self.combiner.is_idle()) {
            return Err(section);
        }
        let mut key = L::Node::default();
        // SAFETY: it stays until we unlock.
        if !unsafe { self.lock.try_lock(&mut key) } {
            return Err(section);
        }
        let result = section();
        if !self.lock.is_handed_on() {
            self.count(1);
            // SAFETY: locked above.
            unsafe { self.lock.unlock(&mut key) };
        }
        Ok(result)
    }

    /// Has the section run, as in this mode.
    #[cold]
    pub fn wait<R: Send>(
        &self,
        mode: Mode,
        window_ns: u32,
        section: impl FnOnce() -> R + Send,
    ) -> R {
        match mode {
            Mode::Combine => return self.combiner.with_gate(self, window_ns, section),
            Mode::Serve => {
                // ORDERING: Acquire, pairs with [server].
                // SAFETY: it stays, by the promise of `serve_by`.
                if let Some(server) = unsafe { self.server.load(Acquire).as_ref() } {
                    // SAFETY: `ask` returns after the job has run, and was answered [answer], or has run here.
                    return unsafe {
                        carried::<P, R>(section, |job| server.ask::<Spins>(self, job))
                    };
                }
            }
            Mode::Home => {}
        }
        self.wait_at_home(window_ns, section)
    }

    /// A section of [`wait_at_home`](Self::wait_at_home) has ended its thread, which has unlocked.
    pub fn has_left_home(&self) {
        self.at_home.fetch_sub(1, Relaxed); // a count: it orders nothing
    }

    /// Waits for the lock, and runs the section, whatever the mode.
    pub fn wait_at_home<R>(&self, window_ns: u32, section: impl FnOnce() -> R) -> R {
        self.at_home.fetch_add(1, Relaxed); // a count: it orders nothing
        let mut key = L::Node::default();
        // SAFETY: it stays until we unlock.
        unsafe { self.lock.lock_in_front(&mut key, window_ns, || true) };
        let Ledger { waited, calls, .. } = &self.ledger;
        waited.set(waited.get().wrapping_add(1));
        calls.set(calls.get().wrapping_add(1));
        if calls.get().is_multiple_of(SAMPLE) {
            self.look(P::now());
        }
        let result = section();
        if !self.lock.is_handed_on() {
            self.count(1);
            // SAFETY: locked above.
            unsafe { self.lock.unlock(&mut key) };
        }
        // Only now: its line may be far away, and the lock is free meanwhile.
        self.has_left_home();
        result
    }
}

impl<P: Platform, L: TryLock<P>> Sections<P> for Dynamic<P, L> {
    type Node = ();

    fn new() -> Self {
        Self::over(L::new())
    }

    #[inline]
    unsafe fn with<R: Send>(&self, node: *mut (), section: impl FnOnce() -> R + Send) -> R {
        // SAFETY: the caller's promise.
        unsafe { self.with_window(node, u32::MAX, section) }
    }

    #[inline]
    unsafe fn with_window<R: Send>(
        &self,
        _: *mut (),
        window_ns: u32,
        section: impl FnOnce() -> R + Send,
    ) -> R {
        match self.here(section) {
            Ok(result) => result,
            Err(section) => self.wait(self.mode().0, window_ns, section),
        }
    }
}

impl<P: Platform, L: TryLock<P>> Delegated<P> for Dynamic<P, L> {
    fn vary(&self, how: u32) {
        self.combine(how.is_multiple_of(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `periods` of a load with these rates at home and sent. Returns the share of the periods in which sections were sent.
    fn run(
        rule: &mut Trial,
        is_sent: &mut bool,
        periods: u32,
        rates: [u32; 2],
        crowd: bool,
    ) -> f64 {
        let mut sent = 0;
        for _ in 0..periods {
            sent += u32::from(*is_sent);
            *is_sent = rule.next(*is_sent, rates[usize::from(*is_sent)], crowd);
        }
        f64::from(sent) / f64::from(periods)
    }

    #[test]
    fn it_finds_the_better_mode_and_goes_back() {
        let (mut rule, mut is_sent) = (Trial::default(), false);
        assert!(run(&mut rule, &mut is_sent, 200, [1_000_000, 2_000_000], true) > 0.9);
        assert!(run(&mut rule, &mut is_sent, 200, [4_000_000, 1_000_000], true) < 0.1);
        // Each second another load: the better mode for nine tenths of the time.
        for _ in 0..5 {
            assert!(run(&mut rule, &mut is_sent, 200, [900_000, 1_800_000], true) > 0.9);
            assert!(run(&mut rule, &mut is_sent, 200, [3_000_000, 1_000_000], true) < 0.1);
        }
        assert_eq!(rule.changes, 12);
        // Nothing tells that home has become better: the next trial does, within half a second.
        assert!(run(&mut rule, &mut is_sent, 200, [900_000, 1_800_000], true) > 0.9);
        assert!(run(&mut rule, &mut is_sent, 200, [3_600_000, 1_800_000], true) < 0.6);
    }

    #[test]
    fn it_stays_where_it_is_without_a_crowd_or_a_difference() {
        let (mut rule, mut is_sent) = (Trial::default(), false);
        assert_eq!(run(&mut rule, &mut is_sent, 1_000, [1_000, 9_000], false), 0.0);
        let equal = run(&mut rule, &mut is_sent, 1_000, [1_000, 1_050], true);
        assert!(equal > 0.0 && equal < 0.05, "{equal}: it tries, seldom");
        assert_eq!(rule.changes, 0);
        // By chance better once: it takes more than one turn.
        assert!(rule.turn == 0 && !is_sent);
    }
}
