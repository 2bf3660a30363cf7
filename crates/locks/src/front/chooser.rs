//! When a waiter that is not head chooses who follows it, and lets those behind it choose (choice.rs).

use super::choice::{MOST_CHOOSERS, choose_and_sit, chooses};
use super::line::LOOK_NS;
use super::{Rule, View, Waiter, description};
use lockwright_platform::Machine;

/// How often they check whether they may, ns.
const FIRST_NS: u32 = 50;

/// Where many may choose: how often a waiter that nobody has let choose asks the one before it whether it is first, ns. That moves the
/// cache line on which that one waits to be granted the lock.
const ASK_NS: u64 = 400;

/// What a waiter that is not head has done about those behind it.
pub(super) struct Chooser {
    /// 0: it has not chosen yet. N: it has chosen, and has let N - 1 waiters behind it choose.
    chose: u32,
    /// Until when it stays awake. Looking takes longer than the looks' nominal time, so the clock says how long it has waited.
    end: u64,
    /// When it looks at the mutex.
    due: u64,
    /// What the clock said last.
    now: u64,
    /// When it asks the one before it whether it is first, or tries again to choose.
    ask: u64,
}

impl Chooser {
    /// It stays awake for `left` ns. None: the rule does not choose.
    pub(super) fn of<P: Machine, R: Rule<P>>(lock: &View<'_, P>, left: u32) -> Option<Self> {
        let mut new = Self { chose: 0, end: 0, due: 0, now: 0, ask: 0 };
        chooses::<P, R>(lock).then(|| new.begin::<P>(left)).map(|()| new)
    }

    /// It stays awake for `left` ns from now on.
    pub(super) fn begin<P: Machine>(&mut self, left: u32) {
        self.now = P::now();
        (self.end, self.due) = (self.now + u64::from(left), self.now + u64::from(LOOK_NS));
    }

    /// Chooses if it may, and then lets the next one choose; returns how long it may look at its gate alone, ns.
    pub(super) fn step<P: Machine, R: Rule<P>>(
        &mut self,
        lock: &View<'_, P>,
        node: &Waiter<P>,
    ) -> u32 {
        if self.chose > 1 {
            return LOOK_NS;
        }
        let is_due = self.now >= self.ask;
        if is_due && self.chose == 0 && !chooses::<P, R>(lock) {
            return LOOK_NS; // the lock has begun to rest
        }
        let mut may = node.may_choose();
        if may <= self.chose && (is_due || self.chose == 1) && node.is_first() {
            may = R::CHOOSERS.min(MOST_CHOOSERS);
        }
        if is_due {
            self.ask = self.now + if R::CHOOSERS > 2 { ASK_NS } else { 0 };
        }
        if may > 0 && self.chose == 0 && !R::is_worth(lock, node) {
            self.chose = MOST_CHOOSERS; // it doesn't let others choose either
            return LOOK_NS;
        }
        if may > 0 && self.chose == 0 {
            match choose_and_sit::<P, R>(lock, node) {
                None => {}
                Some(true) => self.chose = 1,
                // All looks were for nothing. The next choice comes when somebody finds that it is first.
                Some(false) => self.chose = MOST_CHOOSERS,
            }
        }
        if self.chose > 0 && may > self.chose && node.pass_the_choice(may - 1) {
            self.chose = may;
        }
        FIRST_NS
    }

    /// How long it stays awake now, ns; and is a look at the mutex due?
    pub(super) fn left<P: Machine>(&mut self, lock: &View<'_, P>, node: &Waiter<P>) -> (u32, bool) {
        let now = P::now();
        self.now = now;
        if lock.own.is_some() {
            description::beat(node, now);
        }
        let is_due = now >= self.due;
        if is_due {
            self.due = now + u64::from(LOOK_NS);
        }
        (self.end.saturating_sub(now) as u32, is_due)
    }
}
