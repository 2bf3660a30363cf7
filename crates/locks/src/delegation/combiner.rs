//! combiner: a lock while one thread wants it; under contention its holder runs the sections of those who wait.
//!
//! Our own. Its queue is that of CC-Synch (P. Fatourou and N. D. Kallimanis, *Revisiting the Combining Synchronization
//! Technique*, PPoPP 2012, algorithm 1).
//!
//! ```text
//!                                                      tail: null (free), or the last cell
//!                                                       ▼
//!     ┌───────────┐ next ┌───────────┐ next ┌───────────┐     a holder that found null leaves an empty cell there.
//!     │ A's, runs ├─────►│ B's       ├─────►│ nobody's  │     An asker swaps tail for a fresh cell, writes its request into the
//!     └───────────┘      └───────────┘      └───────────┘     cell that it got, and waits at that cell
//!
//!     a cell:   asked, by the asker: NO ─► AWAKE ─► ASLEEP, or by the combiner ─► CHOSEN
//!               state, by the combiner: WAITING ─► RUN, or YOURS: be the combiner
//! ```
//!
//! What it adds to the published ones:
//! - A thread that finds the lock free takes it by one exchange and runs its own section, as with any lock. (A combiner that
//!   finds nobody waiting any more leaves the last cell YOURS, to whoever comes: more will come. One that had nobody to serve makes
//!   tail null.)
//! - The role goes to the biggest core: a combiner on a slower core hands it to the first waiter on a faster one that is
//!   awake. There the data stays, and there the sections are short.
//! - The role ends: after `TENURE_NS`, or the caller's window if that is shorter, the combiner hands it to a waiter. So a
//!   combiner's own delay is bounded, and it seldom loses its CPU in the role.
//! - Waiters sleep if they wait for long. A combiner wakes those whose sections it has run, but one in 50 µs at most: a wake takes
//!   as long as many short sections. Others look again by the clock.
//! - A combiner answers by a plain store, which costs it nothing. An exchange, to learn whether the waiter sleeps by now, would have
//!   to wait until the waiter's copy of the line is gone. So a wake may be missing, and a sleeper looks again by the clock.
//!
//! State: (tail, the cells). lock: (null, ..) -> (fresh, ..). ask: (last, ..) -> (fresh, .., last is asked). combine, cell by cell: run,
//! RUN; or YOURS; the last: YOURS, or (last, ..) -> (null, ..).
//!
//! 1. Exactly one thread is the combiner while tail is neither null nor a cell that is YOURS: the thread that found tail null, or whose
//!    cell became YOURS.
//! 2. Each cell in the queue is asked, or will be in a moment, except the last.
//! 3. An asked cell belongs to its asker, which gives it back after RUN, or after its own combining. The last cell belongs to the
//!    combiner once it has made tail null, and with a lock that ends to whoever ends it.
//! 4. The combiner reads `next` of a cell before it answers that cell.
//! 5. A sleeper may get no wake: if it falls asleep just when it is answered, if another one was woken just before, or if it asked
//!    just when the combiner left the last cell to whoever comes. It looks again after 0.5 ms, and then after twice that, up to 4 ms.
//! 6. If the gate may end, the combiner leaves it before it answers an asker behind whom nobody has asked yet: that asker may free it.
//!    While another one waits, nobody may.
//!
//! Facts: first come first served; 16 B per lock, 128 B per holder or waiter, from a pool; a waiter sleeps after 50 µs; a combiner is
//! delayed by 32 short sections or its tenure, whichever is longer; by four tenures and a section if only slower cores or
//! sleepers wait.

use super::{Gate, Job, Naps, carried, give, lay};
use crate::entry::{Entry, Kind, Promise};
use core::cell::Cell;
use core::cmp::Ordering;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Class, Delegated, Platform, Ptr, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "combiner",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "a lock; under contention its holder, on a big core if possible, runs the sections of those who wait",
    source: "our own; its queue is that of P. Fatourou, N. D. Kallimanis, Revisiting the Combining Synchronization Technique, PPoPP 2012, algorithm 1",
    order: "first come first served",
    promise: Promise::Arrival,
    stands_by: false,
    space: "16 B per lock, 128 B per holder or waiter, from a pool",
    wakes: "a waiter sleeps after 50 µs; the combiner wakes it when its section has run, but one in 50 µs; others look again after 0.5 to 4 ms",
    delay: "the thread that runs the others' sections, by 100 µs or 32 of them, whichever is longer; by 400 µs and one of them if only slower cores or sleepers wait",
    advice: "short sections under high contention, in programs that can hand them over as functions",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Combiner<P>;

/// `asked`: nobody has asked yet.
const NO: u32 = 0;
/// The request is there; its asker waits awake, or will look at `state` before it sleeps.
const AWAKE: u32 = 1;
/// The asker sleeps.
const ASLEEP: u32 = 2;
/// The asker, who is awake, is about to be the combiner.
const CHOSEN: u32 = 3;

/// `state`: the section has not run.
const WAITING: u32 = 0;
/// The combiner has run the section.
const RUN: u32 = 1;
/// The asker is the combiner; its section is the first.
const YOURS: u32 = 2;

/// How long a waiter stays awake, ns: on machines of a hundred CPUs so many short sections may be before it.
const SPIN_NS: u32 = 50_000;
/// How long a waiter sleeps at first, unless a wake ends it, ns; then twice as long each time.
const NAP_NS: u32 = 500_000;
/// The longest of these sleeps, ns.
const NAP_MAX_NS: u32 = 4_000_000;
/// A tick is 2^TICK_BITS ns.
const TICK_BITS: u32 = 10;
/// A combiner wakes one sleeper in this many ticks.
const WAKES_EVERY: u32 = 50;

/// How long a combiner serves the others, ns.
const TENURE_NS: u32 = 100_000;
/// After how many tenures it hands the role to a slower core, or to a sleeper, if no other waits.
const LAST: u64 = 4;
/// How many sections it runs between two looks at the clock.
const LOOKS_EVERY: u32 = 16;

/// A request, or the place for one.
struct Slip<P: Platform> {
    /// Written by the asker.
    asked: P::Word,
    /// Written by the combiner.
    state: P::Word,
    /// The next cell. Written by the asker before `asked`.
    next: P::Ptr<Slip<P>>,
    /// As `next`.
    job: Cell<Job>,
    /// On which core it asked. As `next`.
    class: Cell<Class>,
}

impl<P: Platform> Slip<P> {
    /// A cell that nobody has asked in.
    fn empty() -> Self {
        Self {
            asked: P::Word::new(NO),
            state: P::Word::new(WAITING),
            next: P::Ptr::new(null_mut()),
            job: Cell::new(Job::NONE),
            class: Cell::new(Class::BIG),
        }
    }

    /// Waits until the section has run, or the caller is the combiner.
    fn wait(&self, naps: &impl Naps<P>) -> u32 {
        // ORDERING: Acquire, here and below, pairs with [answer] and [yours].
        let mut now = P::spin_for(&self.state, Acquire, SPIN_NS, |now| now != WAITING);
        if now == WAITING {
            // STATE: (AWAKE, ..) -> (ASLEEP, ..), unless CHOSEN.
            // Relaxed, both: it publishes nothing but the word itself.
            let sleeps = self.asked.compare_exchange(AWAKE, ASLEEP, Relaxed, Relaxed).is_ok();
            now = match sleeps {
                true => self.state.load(Acquire),
                false => P::spin_until(&self.state, Acquire, |now| now != WAITING),
            };
        }
        let mut nap_ns = NAP_NS;
        while now == WAITING {
            // It ends by the clock (invariant 5).
            naps.nap(&self.state, WAITING, nap_ns);
            nap_ns = (2 * nap_ns).min(NAP_MAX_NS);
            // ORDERING: Acquire, pairs with [answer] and [yours].
            now = self.state.load(Acquire);
        }
        now
    }

    /// Chooses the asker, who was AWAKE or ASLEEP as `asked` says; `false`: it has fallen asleep since.
    fn choose(&self, asked: u32) -> bool {
        // STATE: (AWAKE or ASLEEP, ..) -> (CHOSEN, ..).
        // Relaxed, both: [yours] publishes.
        self.asked.compare_exchange(asked, CHOSEN, Relaxed, Relaxed).is_ok()
    }

    /// Makes the asker, who was AWAKE or ASLEEP as `asked` says, and is CHOSEN now, the combiner.
    fn elect(&self, asked: u32) {
        let state = &raw const self.state;
        // STATE: (.., WAITING) -> (.., YOURS).
        // ORDERING: Release [yours]: the sections come before those of the next combiner. After this the cell may be gone.
        self.state.store(YOURS, Release);
        if asked == ASLEEP {
            // SURVIVES: the sleep ends by the clock (invariant 5).
            P::unpark(state, 1);
        }
    }
}

/// Should this waiter be the combiner instead of the caller, who runs on a core of class `mine` and has served for some tenures?
fn is_next(asked: u32, its: Class, mine: Class, tenures: u64) -> bool {
    // A slower core, or a sleeper, gets the role only if no other has come for long.
    let wanted = match its.cmp(&mine) {
        _ if asked == ASLEEP => LAST,
        Ordering::Less => 0,
        Ordering::Equal => 1,
        Ordering::Greater => LAST,
    };
    tenures >= wanted
}

/// A lock whose holder runs the sections of those who wait.
pub struct Combiner<P: Platform> {
    /// Null, or the last cell.
    tail: P::Ptr<Slip<P>>,
    /// When the combiner last woke a sleeper, in ticks.
    woke: P::Word,
}

// SAFETY: a cell's plain fields are written before `asked`, and then read by the combiner alone.
unsafe impl<P: Platform> Sync for Combiner<P> {}
// SAFETY: as for Sync; cells belong to no thread.
unsafe impl<P: Platform> Send for Combiner<P> {}

impl<P: Platform> Combiner<P> {
    /// Releases, if the caller's cell is still the last.
    #[inline]
    fn free(&self, last: *mut Slip<P>) -> bool {
        // STATE: (last, ..) -> (null, ..).
        // ORDERING: Release [free]: the sections come before those of the next holder. Relaxed on failure: [ask] follows.
        // SURVIVES: with a gate, which orders the sections, too.
        let is_free = self.tail.compare_exchange(last, null_mut(), Release, Relaxed).is_ok();
        if is_free {
            // SAFETY: ours, by invariant 3: nobody has swapped it out.
            unsafe { give::<P, _>(last) };
        }
        is_free
    }

    /// Is the last wake long enough ago? A wake takes as long as many short sections, and the woken thread would only ask again.
    fn may_wake(&self) -> bool {
        let now = (P::now() >> TICK_BITS) as u32;
        // Relaxed, both: the combiner's own.
        let may = now.wrapping_sub(self.woke.load(Relaxed)) >= WAKES_EVERY;
        if may {
            self.woke.store(now, Relaxed);
        }
        may
    }

    /// The combiner, inside of `gate`, runs the sections from cell `at` on; it leaves the gate, and releases, or hands the role on.
    /// `is_own`: the first one is its own.
    ///
    /// # Safety
    /// The caller is the combiner; `at` is its own cell, or the last.
    unsafe fn combine<G: Gate>(
        &self,
        (gate, key): (&G, &mut G::Key),
        mut at: *mut Slip<P>,
        mut is_own: bool,
        window_ns: u32,
    ) {
        let class = P::place().class;
        let tenure = u64::from(window_ns.clamp(1, TENURE_NS));
        // When it first looked at the clock, and how many tenures ago that was.
        let (mut since, mut tenures) = (None, 0);
        let mut others = 0_u32;
        // Sections since it entered the gate: one at first, its own, before or in this loop.
        let mut ran = u32::from(!is_own);
        // A section may have ended its right to the gate.
        let mut is_inside = is_own || !gate.is_left();
        loop {
            // SAFETY: in the queue, so its asker waits, or will ask in a moment, or it is the last (invariants 2 and 3).
            let cell = unsafe { &*at };
            // ORDERING: Acquire, here and below, pairs with [ask]: the request is there.
            let mut asked = cell.asked.load(Acquire);
            if asked == NO {
                // The gate first: it's free when the next combiner comes.
                let may_return = is_inside;
                if is_inside {
                    gate.leave(key, ran);
                }
                if others == 0 && self.free(at) {
                    return;
                }
                // (Nor does a thread come back that is outside for good: its own section may have taken the gate along, or the gate may end.)
                if others > 0 || !may_return || G::MAY_END {
                    // STATE: (.., WAITING) -> (.., YOURS).
                    // ORDERING: Release [yours]: the sections come before those of the next combiner.
                    return cell.state.store(YOURS, Release);
                }
                gate.enter_to_combine(key);
                (ran, is_inside) = (0, true);
                asked = P::spin_until(&cell.asked, Acquire, |asked| asked != NO);
            } else if !is_inside {
                // We are no longer inside, and somebody asks.
                let by = if cell.choose(AWAKE) { AWAKE } else { ASLEEP };
                if by == ASLEEP {
                    cell.choose(ASLEEP); // and there it stays: only we could change that (invariant 1)
                }
                return cell.elect(by);
            }
            if others % LOOKS_EVERY == LOOKS_EVERY - 1 || asked == ASLEEP {
                let now = P::now();
                tenures = now.saturating_sub(*since.get_or_insert(now)) / tenure;
            }
            // On a big core, within the first tenure, there is nobody to look for.
            let may_elect = !is_own && (tenures > 0 || !class.is_big());
            if may_elect && is_next(asked, cell.class.get(), class, tenures) && cell.choose(asked) {
                gate.leave(key, ran);
                return cell.elect(asked);
            }
            // Relaxed: [ask] has published it.
            let next = cell.next.load(Relaxed);
            // SAFETY: its asker waits, or is us; it is answered once.
            unsafe { cell.job.get().run() };
            ran = ran.saturating_add(1);
            let is_handed_on = gate.is_left();
            if is_handed_on {
                is_inside = false;
            // SAFETY: the cell behind one that has asked: as for `cell`. Relaxed: a hint.
            } else if G::MAY_END && unsafe { (*next).asked.load(Relaxed) } == NO {
                // The asker may know that nobody else wants the gate any more, and end it (invariant 6).
                gate.leave(key, ran);
                is_inside = false;
            }
            let state = &raw const cell.state;
            let sleeps = cell.asked.load(Relaxed) == ASLEEP; // a hint (invariant 5)
            // STATE: (.., WAITING) -> (.., RUN); our own: from YOURS.
            // ORDERING: Release [answer]: the section, and its result, come before the asker goes on. After this the cell may be gone.
            cell.state.store(RUN, Release);
            if sleeps && (is_handed_on || self.may_wake()) {
                // SURVIVES: the sleep ends by the clock (invariant 5).
                P::unpark(state, 1);
            }
            at = next;
            others = others.saturating_add(u32::from(!is_own));
            is_own = false;
        }
    }

    /// Asks in cell `mine`, which the caller has got for `fresh`: has the section run by the combiner, or becomes that.
    #[cold]
    fn ask<G: Gate + Naps<P>>(
        &self,
        gate: &G,
        (mine, fresh): (*mut Slip<P>, *mut Slip<P>),
        window_ns: u32,
        job: Job,
    ) {
        // SAFETY: ours from now on (invariant 3).
        let cell = unsafe { &*mine };
        cell.job.set(job);
        cell.class.set(P::place().class);
        // Relaxed: [ask] publishes it.
        cell.next.store(fresh, Relaxed);
        // STATE: (NO, ..) -> (AWAKE, ..).
        // ORDERING: Release [ask]: the request is there before it is found, and the fresh cell was made.
        cell.asked.store(AWAKE, Release);
        if cell.wait(gate) == YOURS {
            let mut key = G::Key::default();
            gate.enter_to_combine(&mut key);
            // SAFETY: we are the combiner, and it is ours.
            unsafe { self.combine((gate, &mut key), mine, true, window_ns) };
        }
        // SAFETY: the combiner has answered, or we were that: nobody looks at it any more.
        unsafe { give::<P, _>(mine) };
    }
}

impl<P: Platform> Sections<P> for Combiner<P> {
    type Node = ();

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()), woke: P::Word::new(0) }
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
        self.with_gate(&(), window_ns, section)
    }
}

impl<P: Platform> Combiner<P> {
    /// Is there neither a combiner nor an asker? A hint.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// As `with_window`, where whoever runs sections is inside of `gate`. All who ask name the same gate.
    #[inline]
    pub(super) fn with_gate<G: Gate + Naps<P>, R: Send>(
        &self,
        gate: &G,
        window_ns: u32,
        section: impl FnOnce() -> R + Send,
    ) -> R {
        let fresh = lay::<P, _>(Slip::<P>::empty());
        // STATE: (t, ..) -> (fresh, ..).
        // ORDERING: AcqRel [join], pairs with itself: the cell that we get was made before. Acquire also pairs with [free]:
        // earlier sections are over.
        let mine = self.tail.swap(fresh, AcqRel);
        if mine.is_null() {
            let mut key = G::Key::default();
            gate.enter_to_combine(&mut key);
            let result = section();
            // SAFETY: we are the combiner; the cell follows our section.
            unsafe { self.combine((gate, &mut key), fresh, false, window_ns) };
            return result;
        }
        // SAFETY: `ask` returns after the job has run, on this thread or on one that answered RUN [answer].
        unsafe { carried::<P, R>(section, |job| self.ask(gate, (mine, fresh), window_ns, job)) }
    }
}

impl<P: Platform> Delegated<P> for Combiner<P> {}

impl<P: Platform> Drop for Combiner<P> {
    fn drop(&mut self) {
        // Relaxed: whoever drops it has synchronized with all askers.
        let last = self.tail.load(Relaxed);
        if !last.is_null() {
            // SAFETY: nobody asks any more (invariant 3).
            unsafe { give::<P, _>(last) };
        }
    }
}
