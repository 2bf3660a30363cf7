//! Programmed: a policy of the user's decides who is next, and how threads wait.
//!
//! S. Park, I. Calciu, T. Kim, S. Kashyap, *Contextual Concurrency Control*, HotOS 2021: locks ask small programs, which are loaded while
//! the lock is in use. S. Park, D. Zhou, Y. Qian, I. Calciu, T. Kim, S. Kashyap, *Application-Informed Kernel Synchronization Primitives*,
//! OSDI 2022 (SynCord): such hooks in the kernel's locks. S. Kashyap, I. Calciu, X. Cheng, C. Min, T. Kim, *Scalable and Practical Locking
//! with Shuffling*, SOSP 2019: waiters reorder the line while they wait, off the critical path. What each hook is told, and what its
//! answers mean: `lockwright_platform::hooks`.
//!
//! ```text
//!   arrival ─ lock_contended: stands by ─► line ─ schedule_waiter ─► first ─ skip_shuffle ─ cmp_node for each behind it ─► head ─► word
//!                                                                            └ the line moves the chosen one (choice.rs)
//! ```
//!
//! A policy answers; the line makes every change. So no answer can break exclusion, lose a waiter, or move one past a bound. Where there is
//! no policy, or the policy lacks a hook, the lock does what fifo does, at the same cost. What no hook reads is not looked up either.
//!
//! Our deviations. In the papers the kernel's verifier checks programs as they are loaded; here that is done outside the process. A
//! waiter that is about to be first shuffles, and looks at 16 others at most; in ShflLock a shuffler may be anywhere in the line. A policy with
//! `lock_contended` gets asl's line: in a crowd, barging's.
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. A waiter is passed over at most `bypass` times, and then it is next. Between two headships at most `bypass` arrivals overtake the
//!    head. Both hold whatever a policy says.
//! 2. A choice looks at 16 waiters, and the waiters before and after it are the same (debug builds check that).
//! 3. A thread stands by for at most 100 ms before it is in the line. Meanwhile it holds nothing, and nobody waits for it.
//! 4. An answer out of range counts as 0.

use super::{Choose, Note, Observe, Rule, Taken, View, asl, barging, fifo};
use crate::amp::standby::confirmed;
use crate::entry::{Entry, Kind, Promise};
use crate::front::choice::Waiters;
use crate::front::learn::memos;
use crate::front::tuning::{self, Tuning};
use crate::front::waiter::{More, Waiter};
use core::ops::Deref;
use lockwright_platform::hooks::{self, CLOCK, Context, Hook, LENGTHS, THREADS, WAITERS};
use lockwright_platform::{Class, Machine};

/// A waiter may be passed over this often, and a head overtaken, by default.
const BYPASS: u32 = 250;

/// How many waiters behind the next one a choice looks at.
const WINDOW: usize = 15;

/// Answers of `cmp_node`.
const NEXT: u64 = 1;
const BETTER: u64 = 2;
const GROUP: u64 = 3;

/// Answers of `schedule_waiter`.
const PARK: u64 = 1;
const WAKE_EARLY: u64 = 2;
const BOOST: u64 = 3;

/// Hooks that are told about waiters in line.
const IN_LINE: u32 = Hook::CmpNode.bit() | Hook::SkipShuffle.bit() | Hook::ScheduleWaiter.bit();

/// Hooks of which a holder by a node is reminded when it releases.
const TOLD: u32 = Hook::ScheduleWaiter.bit() | Hook::LockRelease.bit();

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "programmed",
    kind: Kind::Front,
    preset_of: None,
    idea: "a policy that you load decides who is next and how threads wait; without one, as fifo",
    source: "C3: Park et al., Contextual Concurrency Control, HotOS 2021; SynCord: Park et al., Application-Informed Kernel \
             Synchronization Primitives, OSDI 2022; ShflLock: Kashyap et al., Scalable and Practical Locking with Shuffling, SOSP 2019",
    order: "as the policy says: nobody in line is passed over more than `bypass` times",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool; the policy's maps",
    wakes: "as fifo, or as the policy says",
    delay: "each waiter, by those ahead of it and at most `bypass` overtakers; by standby of up to 100 ms, if the policy asks for it",
    advice: "when you know something that no lock can know: which threads matter, what they hold, who pays for them",
    options: &[tuning::SLOT.or(0), tuning::WAIT, tuning::SPIN, tuning::BYPASS.or(BYPASS)],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BYPASS, ..<fifo::Lock as Rule<P>>::defaults(tuning) }
    }

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        let lock = Asker(lock);
        if !lock.has(Hook::LockContended) {
            return fifo::Lock::arrive(&lock, note);
        }
        // All looks at the mutex come first, while its cache line is ours.
        let (crowded, lock_now) = (lock.is_crowded(), lock.context(0));
        if !crowded && let Some(taken) = fifo::Lock::arrive(&lock, note) {
            return Some(taken);
        }
        let own = if lock.reads(THREADS) { P::describe() } else { hooks::Node::default() };
        let window_ns = lock.ask(Hook::LockContended, &Context { own, ..lock_now });
        let window_ns = u32::try_from(window_ns).unwrap_or(0); // `largest` fits
        if window_ns == 0 && !crowded {
            return None;
        }
        if window_ns > 0 {
            // A thread that moves to a faster core meanwhile asks at once. (Without a description it asked on the fastest.)
            let asked_on = own.core_class;
            let looks_for = |class: Class| {
                if u32::from(class.0) < asked_on { 0 } else { confirmed(class).max(1) }
            };
            if let Some(taken) = asl::stand_by_for(&lock, window_ns, looks_for) {
                return Some(taken);
            }
        }
        if lock.is_crowded() {
            barging::Lock::arrive(&lock, note)
        } else {
            fifo::Lock::arrive(&lock, note)
        }
    }

    fn awake_ns(lock: &View<'_, P>, note: &Note) -> u32 {
        let lock = Asker(lock);
        match u64::from(note.own) {
            PARK | WAKE_EARLY if lock.has(Hook::ScheduleWaiter) => 0,
            _ => fifo::Lock::awake_ns(&lock, note),
        }
    }
}

impl<P: Machine> Choose<P> for Lock {
    const AHEAD: usize = WINDOW;

    /// A question may take long, and there may be 16 of them.
    const CHOOSERS: u32 = 8;

    fn chooses(lock: &View<'_, P>) -> bool {
        let lock = Asker(lock);
        lock.has(Hook::CmpNode) && !memos::backs_off(&lock)
    }

    fn is_worth(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
        let lock = Asker(lock);
        if !lock.has(Hook::SkipShuffle) {
            return true;
        }
        let now = lock.clock();
        let context = Context { own: lock.own(node, now), ..lock.context(now) };
        lock.ask(Hook::SkipShuffle, &context) == 0
    }

    fn next(lock: &View<'_, P>, waiters: &mut Waiters<'_, P>) -> u32 {
        let lock = Asker(lock);
        let now = P::now();
        let mut context = Context { own: lock.own(waiters.chooser(), now), ..lock.context(now) };
        let describe = |waiters: &Waiters<'_, P>, place| match lock.reads(THREADS) {
            true => waiters.describe(place, now),
            false => hooks::Node::default(),
        };
        context.best = describe(waiters, 0);
        context.batch = waiters.passes(0);
        let (mut best, mut group, mut place) = (0, 0, 0); // `best` and `group` are sets of places
        let mut kinds = 0;
        while place < waiters.notes().len() || waiters.look() {
            if waiters.is_late() {
                memos::chose_in_vain(&lock, now, kinds);
                return 0;
            }
            context.round = place as u32; // at most 15
            context.curr = describe(waiters, place);
            kinds |= memos::kind(&context.curr);
            match lock.ask(Hook::CmpNode, &context) {
                NEXT => {
                    if place > 0 {
                        memos::chose(&lock);
                    }
                    return group | 1 << place;
                }
                BETTER => (best, context.best) = (1 << place, context.curr),
                GROUP => group |= 1 << place,
                _ => {}
            }
            place += 1;
        }
        let chosen = if group == 0 { best } else { group };
        if chosen == 0 {
            memos::chose_in_vain(&lock, now, kinds)
        } else {
            memos::chose(&lock)
        }
        chosen
    }
}

impl<P: Machine> Observe<P> for Lock {
    fn hooks(tuning: &Tuning) -> u32 {
        if tuning.policy == 0 { 0 } else { P::hooks(tuning.policy) }
    }

    fn describe(lock: &View<'_, P>, note: &mut Note) -> Option<hooks::Node> {
        let lock = Asker(lock);
        if lock.hooks & TOLD != 0 {
            note.tells = lock.tuning.policy as u8; // 1 to 15
        }
        if lock.hooks & IN_LINE == 0 {
            return None;
        }
        let now = lock.clock();
        let own = lock.reads(THREADS).then(|| {
            let mut own = P::describe();
            (note.class, note.asked_ns) = (Class(own.core_class as u8), now);
            note.more = More::Description;
            if lock.reads(LENGTHS) {
                own.cs_ns = lock.cs_ns(note.class);
            }
            if lock.has(Hook::CmpNode) {
                memos::meets(&lock, &own);
            }
            own
        });
        if lock.has(Hook::ScheduleWaiter) {
            let context = Context { own: own.unwrap_or_default(), ..lock.context(now) };
            let how = lock.ask(Hook::ScheduleWaiter, &context);
            (note.own, note.parks) = (how as u32, how == PARK);
        }
        own
    }

    fn begins_to_wait(lock: &View<'_, P>, node: &Waiter<P>) {
        let lock = Asker(lock);
        if u64::from(node.note.own) == BOOST && lock.has(Hook::ScheduleWaiter) {
            lock.boost(node);
        }
    }

    fn measures(lock: &View<'_, P>) -> bool {
        let lock = Asker(lock);
        lock.reads(LENGTHS)
    }

    fn release(lock: &View<'_, P>) {
        let hooks = <Self as Observe<P>>::hooks(lock.tuning);
        if hooks & LENGTHS != 0 {
            memos::end_of_hold(lock);
        }
    }
}

/// A lock and its policy.
struct Asker<'l, 'a, P: Machine>(&'l View<'a, P>);

impl<'a, P: Machine> Deref for Asker<'_, 'a, P> {
    type Target = View<'a, P>;

    fn deref(&self) -> &View<'a, P> {
        self.0
    }
}

impl<P: Machine> Asker<'_, '_, P> {
    /// Does its policy have this hook?
    fn has(&self, hook: Hook) -> bool {
        self.hooks & hook.bit() != 0
    }

    /// Does one of its hooks read this, of [`hooks::READS`]?
    fn reads(&self, what: u32) -> bool {
        self.hooks & what != 0
    }

    /// The clock, for what its hooks read; else 0.
    fn clock(&self) -> u64 {
        if self.reads(CLOCK | THREADS) { P::now() } else { 0 }
    }

    /// The policy's answer; 0 if it is out of range.
    fn ask(&self, hook: Hook, context: &Context) -> u64 {
        let answer = P::ask(self.tuning.policy, hook, context);
        if answer <= hook.largest() { answer } else { 0 }
    }

    /// What a policy learns about the lock.
    fn context(&self, now_ns: u64) -> Context {
        Context {
            lock_id: self.parts.word.address().addr() as u64,
            lock_kind: self.parts.kind,
            nwaiters: if self.reads(WAITERS) { self.waiters() } else { 0 },
            now_ns,
            avg_cs_ns: if self.reads(LENGTHS) { memos::known_hold_ns(self).into() } else { 0 },
            ..Context::default()
        }
    }

    /// How long the caller's section usually lasts on a core of this class, ns; 0: not known.
    fn cs_ns(&self, class: Class) -> u64 {
        if memos::known_hold_ns(self) == 0 { 0 } else { memos::usual_hold_ns(self, class).into() }
    }

    /// What a policy learns about the caller, which waits with this node.
    fn own(&self, node: &Waiter<P>, now: u64) -> hooks::Node {
        let asked = node.note.asked_ns;
        let wait_ns = if asked == 0 { 0 } else { now.saturating_sub(asked) };
        hooks::Node { wait_ns, passed: node.passes(), ..self.own.copied().unwrap_or_default() }
    }

    /// The holder gets the caller's priority, until it releases the lock, or the caller's wait ends.
    fn boost(&self, node: &Waiter<P>) {
        let holder = match self.parts.holder() {
            0 => node.holder_among_predecessors(self.parts.word),
            known => known,
        };
        if holder != 0 {
            // Its unlock must come by the slow path, where it is told; see `posix`.
            self.parts.word.divert();
            P::boost(holder);
        }
    }
}
