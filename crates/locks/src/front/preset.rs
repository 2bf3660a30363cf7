//! Presets: rules of the catalogue with other defaults, under names of their own.

use super::{Arrived, Note, Rule, Tuning, View, Waiter, Waiters};
use core::marker::PhantomData;
use lockwright_platform::{Machine, hooks};

/// A rule with other defaults, so that the catalogue can have several locks with one rule.
#[derive(Debug)]
pub struct Preset<R, T>(PhantomData<fn(R, T)>);

/// A preset's defaults, on top of its rule's.
pub trait Tune: 'static {
    /// Changes the rule's defaults.
    fn tune(tuning: Tuning) -> Tuning;
}

impl<P: Machine, R: Rule<P>, T: Tune> Rule<P> for Preset<R, T> {
    const AHEAD: usize = R::AHEAD;
    const CHOOSERS: u32 = R::CHOOSERS;
    const HOLDS_BACK: bool = R::HOLDS_BACK;
    fn grants(tuning: &Tuning) -> bool {
        R::grants(tuning)
    }
    fn defaults(tuning: Tuning) -> Tuning {
        T::tune(R::defaults(tuning))
    }
    fn hooks(tuning: &Tuning) -> u32 {
        R::hooks(tuning)
    }
    fn arrive(lock: &View<'_, P>) -> Arrived {
        R::arrive(lock)
    }
    fn describe(lock: &View<'_, P>, note: &mut Note) -> Option<hooks::Node> {
        R::describe(lock, note)
    }
    fn begins_to_wait(lock: &View<'_, P>, node: &Waiter<P>) {
        R::begins_to_wait(lock, node);
    }
    fn awake_ns(lock: &View<'_, P>, note: &Note) -> u32 {
        R::awake_ns(lock, note)
    }
    fn measures(lock: &View<'_, P>) -> bool {
        R::measures(lock)
    }
    fn hold_back(lock: &View<'_, P>, note: &Note) {
        R::hold_back(lock, note);
    }
    fn spin(lock: &View<'_, P>, slept: bool, take: impl FnMut() -> bool) -> bool {
        R::spin(lock, slept, take)
    }
    fn acquired(lock: &View<'_, P>, note: &Note, slept: bool) {
        R::acquired(lock, note, slept);
    }
    fn release(lock: &View<'_, P>) {
        R::release(lock);
    }
    fn chooses(lock: &View<'_, P>) -> bool {
        R::chooses(lock)
    }
    fn is_worth(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
        R::is_worth(lock, node)
    }
    fn is_enough(waiters: &[Note]) -> bool {
        R::is_enough(waiters)
    }
    fn next(lock: &View<'_, P>, waiters: &mut Waiters<'_, P>) -> u32 {
        R::next(lock, waiters)
    }
}
