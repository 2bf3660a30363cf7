//! A lock asks a policy. This is on the path of every lock that has one.

use super::cells::{self, ASKING, ThreadCell};
use super::entries::{self, Mapped};
use super::grace;
use super::mailbox::{CHANGES, hooks_word, lockwright_programs};
use super::readers::{before, choose_for_readers};
use crate::env::say;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_contract::file::decimal;
use lockwright_contract::programs::mailbox::{
    HOOKS, LOADED, SAMPLE, SLOTS, SlotState, TOO_SLOW, TURN,
};
use lockwright_contract::text::unpadded;
use lockwright_native::futex::{self, Clock};
use lockwright_native::policies;
use lockwright_platform::hooks::{Context, Hook};

/// Measured questions that are judged together.
const JUDGED: u64 = 32;
/// A question counts as this many budgets at most: a thread that loses its CPU in a hook isn't the policy's fault.
const AT_MOST: u64 = 8;

/// Asks the policy in this slot. If it says that it isn't for this readers-writer lock, asks those that were loaded before it.
pub(super) fn ask(slot: u32, hook: Hook, context: &Context) -> u64 {
    let answer = ask_one(slot, hook, context);
    if answer == Hook::NOT_FOR_IT && hook == Hook::RwBias {
        return ask_before(slot, context);
    }
    answer
}

#[cold]
#[inline(never)]
fn ask_before(slot: u32, context: &Context) -> u64 {
    let mut answers = before(slot).map(|slot| ask_one(slot, Hook::RwBias, context));
    answers.find(|answer| *answer != Hook::NOT_FOR_IT).unwrap_or(0)
}

#[inline(always)]
fn ask_one(slot: u32, hook: Hook, context: &Context) -> u64 {
    // Cold calls are at ends, so that no register is saved for them.
    let Some(cell) = cells::known() else { return ask_first(slot, hook, context) };
    // A hook under a hook: a signal handler that locks.
    if cell.inside.load(Relaxed) != 0 {
        return not_asked(slot); // own thread only
    }
    cell.inside.store(ASKING | slot, Relaxed); // the barrier publishes it
    grace::enter();
    // SAFETY: null, or an entry, which are static.
    let answer = match unsafe { entries::current(slot).as_ref() } {
        Some(entry) => {
            cell.inside.store(entry.mark(), Relaxed); // either mark keeps it mapped
            match hook {
                Hook::LockAcquired | Hook::LockRelease => in_section(cell, entry, hook, context),
                _ => run(cell, entry, hook, context),
            }
        }
        None => 0,
    };
    // ORDERING: Release, pairs with the Acquire in `is_anybody_in`: the hook is over.
    cell.inside.store(0, Release);
    answer
}

#[cold]
#[inline(never)]
fn ask_first(slot: u32, hook: Hook, context: &Context) -> u64 {
    if cells::own().is_some() { ask(slot, hook, context) } else { not_asked(slot) }
}

#[cold]
#[inline(never)]
fn not_asked(slot: u32) -> u64 {
    if let Some(info) = lockwright_programs.slots.get(slot as usize) {
        info.unasked.fetch_add(1, Relaxed); // a counter
    }
    0
}

/// Runs a hook.
#[inline(always)]
pub(super) fn run(cell: &ThreadCell, entry: &Mapped, hook: Hook, context: &Context) -> u64 {
    let Some(code) = entry.code(hook as usize) else { return 0 };
    let until = cell.until_sample.load(Relaxed); // own thread only
    if until == 0 {
        return measure(cell, entry, hook, context);
    }
    cell.until_sample.store(until - 1, Relaxed);
    // SAFETY: the command has verified and compiled it; it stays mapped while our mark is set.
    unsafe { code(context, entry.env()) }
}

/// Runs a hook between readings of the clock.
#[inline(never)]
fn measure(cell: &ThreadCell, entry: &Mapped, hook: Hook, context: &Context) -> u64 {
    let now = || futex::now(Clock::Monotonic);
    let times = [now(), now()];
    cell.until_sample.store(others(times[0]), Relaxed); // own thread only
    let Some(code) = entry.code(hook as usize) else { return 0 };
    // SAFETY: as in `run`.
    let answer = unsafe { code(context, entry.env()) };
    let clock_ns = times[1] - times[0];
    let took_ns = (now() - times[1]).saturating_sub(clock_ns);
    let number = entry.slot.get() as usize;
    let Some(info) = lockwright_programs.slots.get(number) else { return answer };
    if !ptr::eq(entries::current(number as u32), entry) {
        return answer; // the slot's account is another policy's by now
    }
    // Counters.
    let hook_number = hook as usize;
    info.asked[hook_number].fetch_add(SAMPLE, Relaxed);
    info.samples[hook_number].fetch_add(1, Relaxed);
    info.sampled_ns[hook_number].fetch_add(took_ns, Relaxed);
    let budget_ns = u64::from(info.budget_ns.load(Relaxed));
    let judged = &JUDGEMENTS[number][hook_number];
    let took = took_ns.min(AT_MOST * budget_ns) << 8 | 1;
    let sum = judged.fetch_add(took, Relaxed) + took;
    if sum & 0xff >= JUDGED {
        judged.store(0, Relaxed); // another thread's sample may be lost
        let mean_ns = (sum >> 8) / (sum & 0xff);
        if mean_ns > budget_ns {
            take_off(entry, info, hook, mean_ns);
        }
    }
    answer
}

/// How many questions of the thread are not measured from now on: [`SAMPLE`] - 1 on average, drawn, so that no hook can tell which one is
/// measured next, and be quick in that one alone.
fn others(now_ns: u64) -> u32 {
    let drawn = now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (SAMPLE / 2 + drawn % SAMPLE) as u32 // below 2 * SAMPLE
}

/// The latest measured questions of each slot's hooks: their ns, and in the lowest 8 bits how many.
static JUDGEMENTS: [[AtomicU64; HOOKS]; SLOTS] =
    [const { [const { AtomicU64::new(0) }; HOOKS] }; SLOTS];

/// A slot has another policy.
pub(super) fn forget(slot: usize) {
    for judged in JUDGEMENTS.get(slot).into_iter().flatten() {
        judged.store(0, Relaxed); // hints
    }
}

/// The policy takes too long.
#[cold]
#[inline(never)]
fn take_off(entry: &Mapped, info: &SlotState, hook: Hook, mean_ns: u64) {
    if !entries::remove(entry) {
        return; // somebody else has
    }
    info.slow_hook.store(hook as u32, Relaxed); // before the state
    info.slow_ns.store(mean_ns, Relaxed);
    let turn = entry.turn.get() * TURN;
    // ORDERING: AcqRel, for the command: why was written before. Fails if the slot already has another policy.
    if info.state.compare_exchange(turn | LOADED, turn | TOO_SLOW, AcqRel, Relaxed).is_err() {
        return;
    }
    if let Some(word) = policies::word(entry.slot.get()) {
        let own = hooks_word(info.hooks.load(Relaxed), entry.turn.get());
        let _ = word.compare_exchange(own, 0, Relaxed, Relaxed); // a hint
    }
    choose_for_readers();
    CHANGES.fetch_add(1, Relaxed); // a hint
    tell(info, hook, mean_ns);
}

/// Says so, on one line.
fn tell(info: &SlotState, hook: Hook, mean_ns: u64) {
    let mut name = [0; 64];
    for (to, from) in name.chunks_exact_mut(8).zip(&info.name) {
        to.copy_from_slice(&from.load(Relaxed).to_ne_bytes()); // written before it was loaded
    }
    let mut digits = [[0; 10]; 2];
    let [took, budget] = &mut digits;
    say(&[
        b"policy '",
        unpadded(&name),
        b"' is off: ",
        hook.name().as_bytes(),
        b" takes ",
        decimal(u32::try_from(mean_ns).unwrap_or(u32::MAX), took),
        b" ns, and may take ",
        decimal(info.budget_ns.load(Relaxed), budget),
        b" ns\n",
    ]);
}

/// Time in which a thread holds locks is measured once in this many sections, since the clock takes longer than a hook.
const MEASURED: u32 = 8;

/// Asks when a lock has been acquired, or is about to be released, and keeps account of the locks held. Out of line: it needs many
/// registers.
#[inline(never)]
fn in_section(cell: &ThreadCell, entry: &Mapped, hook: Hook, context: &Context) -> u64 {
    let has_both = entry.code(Hook::LockAcquired as usize).is_some()
        && entry.code(Hook::LockRelease as usize).is_some();
    // ORDERING: Acquire, pairs with the Release where policies change: then nobody knows who holds which locks.
    let turn = CHANGES.load(Acquire);
    // Own thread only, as is all of this.
    if cell.held_turn.load(Relaxed) != turn {
        cell.held_turn.store(turn, Relaxed);
        cell.held.store(0, Relaxed);
        cell.held_since.store(0, Relaxed);
    }
    let held = cell.held.load(Relaxed);
    let is_first = hook == Hook::LockAcquired && held == 0;
    if has_both && hook == Hook::LockAcquired {
        cell.held.store(held + 1, Relaxed);
    }
    if has_both && is_first {
        let sections = cell.sections.load(Relaxed).wrapping_add(1);
        cell.sections.store(sections, Relaxed);
        if sections.is_multiple_of(MEASURED) {
            cell.held_since.store(futex::now(Clock::Monotonic), Relaxed);
        }
    }
    let answer = run(cell, entry, hook, context);
    if has_both && hook == Hook::LockRelease {
        cell.held.store(held.saturating_sub(1), Relaxed);
        let since = cell.held_since.load(Relaxed);
        if held <= 1 && since != 0 {
            cell.held_since.store(0, Relaxed);
            let took = futex::now(Clock::Monotonic).saturating_sub(since) * u64::from(MEASURED);
            cell.held_ns.store(cell.held_ns.load(Relaxed) + took, Relaxed);
        }
    }
    answer
}

const _: () = assert!(SLOTS == policies::SLOTS && JUDGED < 0x80);
