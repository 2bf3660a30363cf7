//! Lock policies of this process: which slots have which hooks, and the runtime's functions that ask them. A program without a runtime
//! (the command's own benchmarks) has none.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use lockwright_platform::hooks::{Context, Hook, Node};

/// Slots; the first is never used.
pub const SLOTS: usize = 16;

/// What answers.
#[derive(Debug)]
pub struct Answers {
    /// Asks the policy in this slot, which has this hook.
    pub ask: fn(u32, Hook, &Context) -> u64,
    /// Completes what policies are told about the calling thread.
    pub describe: fn(&mut Node),
    /// See `Programmable::boost`.
    pub boost: fn(u32),
    /// See `Programmable::unboost`.
    pub unboost: fn(),
}

/// The bits of hooks in a slot's word; the upper ones are the runtime's.
const BITS: u32 = 0xffff;

static HOOKS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
static ANSWERS: AtomicPtr<Answers> = AtomicPtr::new(core::ptr::null_mut());

/// From now on this answers.
pub fn answer_by(answers: &'static Answers) {
    // ORDERING: Release, pairs with the Acquire in `answers`: it is complete.
    ANSWERS.store(core::ptr::from_ref(answers).cast_mut(), Release);
}

fn answers() -> Option<&'static Answers> {
    // ORDERING: Acquire, pairs with the Release in `answer_by`.
    let answers = ANSWERS.load(Acquire);
    // SAFETY: null, or a static.
    unsafe { answers.as_ref() }
}

/// The word of a slot: its hooks, and what the runtime keeps above them. A hint: the runtime decides when it is asked.
pub fn word(slot: u32) -> Option<&'static AtomicU32> {
    HOOKS.get(slot as usize)
}

/// The hooks of a slot.
#[inline]
pub(crate) fn hooks(slot: u32) -> u32 {
    word(slot).map_or(0, |word| word.load(Relaxed) & BITS) // a hint
}

/// Asks.
#[inline]
pub(crate) fn ask(slot: u32, hook: Hook, context: &Context) -> u64 {
    match answers() {
        Some(answers) if hooks(slot) & hook.bit() != 0 => (answers.ask)(slot, hook, context),
        _ => 0,
    }
}

/// Describes the calling thread.
pub(crate) fn describe(node: &mut Node) {
    if let Some(answers) = answers() {
        (answers.describe)(node);
    }
}

/// See `Programmable::boost`.
pub(crate) fn boost(holder: u32) {
    if let Some(answers) = answers() {
        (answers.boost)(holder);
    }
}

/// See `Programmable::unboost`.
pub(crate) fn unboost() {
    if let Some(answers) = answers() {
        (answers.unboost)();
    }
}
