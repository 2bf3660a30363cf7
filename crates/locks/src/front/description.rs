//! What a waiter's node tells policies about its thread, for rules that describe their waiters.
//!
//! ```text
//!   a waiter's line of 128 bytes:   Waiter (64 bytes) │ Description (56 bytes) │ 8 bytes of the pool's
//! ```
//!
//! Other rules never touch the second part. It is written before the waiter joins, as its note is. Afterwards its own thread writes
//! nothing but the *beat*: the time, now and then, while it waits awake. A beat that stays behind shows a thread that has lost its CPU.

use super::waiter::{WAITING, Waiter, state};
use core::cmp::min;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::hooks::{self, ASLEEP, OFF_CPU};
use lockwright_platform::{Machine, Word};

/// A beat counts these units of the clock, ns.
const BEAT_NS: u64 = 4_096;

/// A thread whose beat is this many units old seems to have lost its CPU. (It looks once in 4 us, and its clock read may be late.)
const LOST: u32 = 16;

/// The second part of a waiter's line.
#[repr(C)]
struct Description<P: Machine> {
    slo_ns: u64,
    tag: u64,
    cs_total_ns: u64,
    tid: u32,
    cpu: u32,
    window_ns: u32,
    cs_ns: u32,
    numa: u16,
    held_locks: u16,
    speed: u16,
    prio: i8,
    flags: u8,
    /// The clock's [`BEAT_NS`]; 0: it has not waited awake yet.
    beat: P::Word,
}

/// Where it is.
fn of<P: Machine>(node: *mut Waiter<P>) -> *mut Description<P> {
    const { assert!(size_of::<Waiter<P>>() + size_of::<Description<P>>() <= P::LINE) }
    const { assert!(align_of::<Waiter<P>>() >= align_of::<Description<P>>()) }
    node.wrapping_add(1).cast()
}

/// Describes a waiter that has not joined yet.
///
/// # Safety
/// `node` is the start of a line that is the caller's alone.
pub(super) unsafe fn write<P: Machine>(node: *mut Waiter<P>, own: &hooks::Node) {
    let small = |value: u32| min(value, u16::MAX.into()) as u16;
    let description = Description {
        slo_ns: own.slo_ns,
        tag: own.tag,
        cs_total_ns: own.cs_total_ns,
        tid: own.tid,
        cpu: own.cpu,
        window_ns: own.window_ns,
        cs_ns: min(own.cs_ns, u32::MAX.into()) as u32,
        numa: small(own.numa),
        held_locks: small(own.held_locks),
        speed: small(own.speed),
        prio: own.prio.clamp(i8::MIN.into(), i8::MAX.into()) as i8,
        flags: own.flags as u8,
        beat: P::Word::new(0),
    };
    // SAFETY: the line has room behind the waiter, and is the caller's.
    unsafe { of(node).write(description) };
}

/// The calling thread waits awake, at `now`, with this node, which describes it.
pub(super) fn beat<P: Machine>(node: &Waiter<P>, now: u64) {
    // SAFETY: in the line behind the waiter, written before it joined.
    let word = unsafe { &(*of(core::ptr::from_ref(node).cast_mut())).beat };
    let beat = ((now / BEAT_NS) as u32).max(1);
    if word.load(Relaxed) != beat {
        word.store(beat, Relaxed); // a hint; only its own thread writes it
    }
}

/// What policies learn about a waiter, at `now`.
///
/// # Safety
/// It is linked, or readable.
pub(super) unsafe fn seen<P: Machine>(node: *mut Waiter<P>, now: u64) -> hooks::Node {
    // SAFETY: the caller's promise.
    let waiter = unsafe { &*node };
    let note = waiter.note;
    let wait_ns = if note.asked_ns == 0 { 0 } else { now.saturating_sub(note.asked_ns) };
    let asleep = state(waiter.gate.load(Relaxed)) == super::waiter::ASLEEP; // a hint
    let speed = P::speed(note.class);
    let known = hooks::Node {
        core_class: note.class.0.into(),
        flags: if asleep { ASLEEP } else { 0 },
        speed,
        passed: waiter.passes(),
        wait_ns,
        ..hooks::Node::default()
    };
    if !note.described {
        return known; // it joined under another rule
    }
    // SAFETY: as above; written before it was linked.
    let its = unsafe { &*of(node) };
    let lost = is_lost(waiter, its.beat.load(Relaxed), now);
    hooks::Node {
        tid: its.tid,
        cpu: its.cpu,
        numa: its.numa.into(),
        prio: its.prio.into(),
        flags: known.flags | u32::from(its.flags) | if lost { OFF_CPU } else { 0 },
        speed: its.speed.into(),
        cs_ns: its.cs_ns.into(),
        cs_total_ns: its.cs_total_ns,
        held_locks: its.held_locks.into(),
        window_ns: its.window_ns,
        slo_ns: its.slo_ns,
        tag: its.tag,
        ..known
    }
}

/// Does a waiter with this beat wait awake, and seem to have lost its CPU?
fn is_lost<P: Machine>(waiter: &Waiter<P>, beat: u32, now: u64) -> bool {
    let late = ((now / BEAT_NS) as u32).wrapping_sub(beat);
    // The highest ages are beats from just after `now`.
    beat != 0 && state(waiter.gate.load(Relaxed)) == WAITING && (LOST..u32::MAX / 2).contains(&late)
}
