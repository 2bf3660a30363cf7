//! Epochs: pieces of the program's work that have a latency SLO, and the reorder window that the SLO affords.
//!
//! ```text
//!   start(5) ── start(7) ── lock ── end(7, slo) ── lock ── end(5, slo)
//!   window:        7's window: inner wins   │        5's          │     outside: 100 ms
//!                                           └► feedback ◄─────────┘     each thread has its own, for each epoch
//! ```
//!
//! 1. A thread's block belongs to that thread. Its signal handlers may interrupt any line here, run epochs of their
//!    own, and return. So the depth is raised before an entry is written, and lowered after the entry is read.
//! 2. Blocks are never unmapped: a block that an ended thread has given back serves another thread.
//! 3. `Thread::narrowed_ns` is 100 ms minus the window of the innermost epoch, so that a new thread's zero
//!    means 100 ms.
//!
//! Nian Liu et al., *Asymmetry-aware Scalable Locking*, PPoPP 2022, Algorithm 2. There, an epoch's metadata
//! contain its start time; we keep that on the stack, so that an epoch may be nested in itself.

mod blocks;

use crate::clock::Instant;
use crate::env::{say, variable};
pub use crate::shared::FUNCTIONS;
use crate::shared::{NUMBERED, common, lockwright_epochs, percentile, set_name};
use crate::{clock, programs, watch};
use blocks::{Block, DEPTH, Entry, attach, block, narrow, set};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicBool, compiler_fence};
use lockwright_contract::Execution;
use lockwright_locks::amp::feedback::{Feedback, Percentile, WINDOW_MAX_NS};
use lockwright_native::place;

/// Reads the variables, starts the clock.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load() {
    const ABOUT_EPOCHS: [&CStr; 4] =
        [c"LOCKWRIGHT_SLO", c"LOCKWRIGHT_PERCENTILE", c"LOCKWRIGHT_STATS", c"LOCKWRIGHT_EPOCHS"];
    if ABOUT_EPOCHS.iter().any(|name| variable(name).is_some()) {
        clock::prepare();
    }
    programs::knows_epochs(slo_now);
    if let Some(text) = variable(c"LOCKWRIGHT_SLO") {
        match core::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()) {
            // Read when an epoch ends. The largest number would mean "none".
            Some(slo) => common().iter().for_each(|epoch| {
                epoch.forced_inverted.store(!slo.min(u64::MAX - 1), Relaxed);
            }),
            None => {
                say(&[b"bad LOCKWRIGHT_SLO '", text, b"', it is in ns: each epoch keeps its own\n"])
            }
        }
    }
    if let Some(text) = variable(c"LOCKWRIGHT_PERCENTILE") {
        match Percentile::parse(text) {
            Some(percentile) => {
                lockwright_epochs.percentile.store(percentile.millionths(), Relaxed)
            }
            None => {
                let range = b"', it is from 90 to 99.9: it stays 99\n".as_slice();
                say(&[b"bad LOCKWRIGHT_PERCENTILE '", text, range]);
            }
        }
    }
}

/// Begins the epoch `id` (0 to 1023).
#[inline(always)]
pub fn start(id: c_int) {
    watch::boundary();
    match id as usize {
        0..NUMBERED => begin(id as u32, 0),
        _ => refuse(),
    }
}

/// Ends the epoch `id`; it should have taken at most `slo_ns`. Inner epochs that have not ended are
/// dropped. Does nothing if the epoch isn't running.
#[inline(always)]
pub fn end(id: c_int, slo_ns: u64) {
    watch::boundary();
    match id as usize {
        0..NUMBERED => finish(id as u32, 0, slo_ns),
        _ => refuse(),
    }
}

/// A call of the function `index` begins; its frame lies at `frame`.
pub fn enter(index: u32, frame: usize) {
    watch::boundary();
    if index as usize >= FUNCTIONS {
        return;
    }
    // SAFETY: the calling thread's own block.
    if let Some(block) = unsafe { block().as_ref() } {
        // Frames that `longjmp` has left behind lie at or below our frame, since the stack grows downwards.
        let mut depth = block.depth.load(Relaxed); // own thread only, as is all of this
        while depth > 0 && {
            let left = block.stack[depth as usize - 1].frame.load(Relaxed);
            left != 0 && left <= frame as u64
        } {
            depth -= 1;
            block.depth.store(depth, Relaxed);
            block.beyond.store(0, Relaxed);
        }
    }
    begin(NUMBERED as u32 + index, frame as u64);
}

/// A call of the function `index`, with this frame, returns.
pub fn leave(index: u32, frame: usize) {
    watch::boundary();
    if let Some(common) = common().get(NUMBERED + index as usize) {
        let slo_ns = !common.slo_inverted.load(Relaxed); // set by `define`
        finish(NUMBERED as u32 + index, frame as u64, slo_ns);
    }
}

/// The innermost call ends by an exception: it isn't counted.
pub fn abort() {
    // SAFETY: the calling thread's own block.
    let Some(block) = (unsafe { block().as_ref() }) else { return };
    let beyond = block.beyond.load(Relaxed); // own thread only, as is all of this
    if beyond > 0 {
        return block.beyond.store(beyond - 1, Relaxed);
    }
    let depth = block.depth.load(Relaxed) as usize;
    let call = |entry: &Entry| entry.frame.load(Relaxed) != 0;
    if let Some(at) = block.stack[..depth].iter().rposition(call) {
        block.pop_to(at);
    }
}

/// Makes calls of the function `index` epochs with this name; `false` if that would be too many functions.
pub fn define(index: u32, name: &[u8], slo_ns: u64, percentile: Option<Percentile>) -> bool {
    let Some(common) = common().get(NUMBERED + index as usize) else { return false };
    common.slo_inverted.store(!slo_ns, Relaxed); // before any call is an epoch
    if let Some(percentile) = percentile {
        common.percentile.store(percentile.millionths(), Relaxed);
    }
    set_name(NUMBERED as u32 + index, name);
    true
}

/// Sets the percentile for which the SLO of epoch `id` holds, in per cent, 90 to 99.9.
pub fn set_percentile(id: c_int, percent: f64) {
    let millionths = percent * 10_000.0 + 0.5;
    // A negative or absurd number becomes 0 or the largest, and NaN becomes 0: all of them are refused.
    match Percentile::from_millionths(millionths as u32) {
        Some(percentile) if (id as usize) < NUMBERED => {
            common()[id as usize].percentile.store(percentile.millionths(), Relaxed); // guards no other data
            changed(id as u32);
        }
        _ => {
            once(&SAID_PERCENTILE, b"a percentile is from 90 to 99.9, of an epoch from 0 to 1023\n")
        }
    }
}

/// Names an epoch, for reports; longer names are truncated to 63 bytes.
///
/// # Safety
/// `name` is null or a C string.
pub unsafe fn set_name_of(id: c_int, name: *const c_char) {
    if name.is_null() || id as usize >= NUMBERED {
        return refuse();
    }
    // SAFETY: the caller's promise.
    set_name(id as u32, unsafe { CStr::from_ptr(name) }.to_bytes());
    changed(id as u32);
}

/// The SLO of the calling thread's innermost epoch, ns; 0: it isn't known. `None`: the thread is in no epoch.
fn slo_now() -> Option<u64> {
    // SAFETY: null, or the calling thread's own block.
    let block = unsafe { block().as_ref() }?;
    let top = (block.depth.load(Relaxed) as usize).min(DEPTH).checked_sub(1)?; // own thread only
    let id = block.stack[top].id.load(Relaxed) as usize; // as above
    let common = &common()[id];
    let inverted = [&common.forced_inverted, &common.slo_inverted].map(|slo| slo.load(Relaxed)); // hints
    Some(inverted.into_iter().find(|slo| *slo != 0).map_or(0, |slo| !slo))
}

#[inline(always)]
fn begin(id: u32, frame: u64) {
    // Relaxed, all of it: own thread only. Fences keep the order that a signal handler sees.
    let mut block = block();
    if block.is_null() {
        block = attach();
    }
    // SAFETY: null, or the calling thread's own block.
    let Some(block) = (unsafe { block.as_ref() }) else { return };
    let depth = block.depth.load(Relaxed);
    let Some(entry) = block.stack.get(depth as usize) else { return block.overflow() };
    block.depth.store(depth + 1, Relaxed);
    compiler_fence(AcqRel); // ORDERING: AcqRel, for the compiler alone: pairs with a signal handler, see 1
    entry.id.store(id, Relaxed);
    entry.frame.store(frame, Relaxed);
    narrow(block.window_of(id));
    let now = Instant::now();
    entry.in_ticks.store(now.in_ticks.into(), Relaxed);
    entry.started.store(now.at, Relaxed);
}

#[inline(always)]
fn finish(id: u32, frame: u64, slo_ns: u64) {
    // SAFETY: null, or the calling thread's own block.
    let Some(block) = (unsafe { block().as_ref() }) else { return };
    // Relaxed: as in `begin`.
    let mut at = (block.depth.load(Relaxed) as usize).min(DEPTH);
    let is_it = |entry: &Entry| entry.id.load(Relaxed) == id && entry.frame.load(Relaxed) == frame;
    let is_top = at > 0 && is_it(&block.stack[at - 1]) && block.beyond.load(Relaxed) == 0;
    at = if is_top {
        at - 1
    } else {
        match block.find(at, id, frame) {
            Some(at) => at,
            None => return,
        }
    };
    let entry = &block.stack[at];
    let started =
        Instant { at: entry.started.load(Relaxed), in_ticks: entry.in_ticks.load(Relaxed) != 0 };
    let latency_ns = started.elapsed_ns();
    let forced = common()[id as usize].forced_inverted.load(Relaxed); // guards no other data
    let slo_ns = if forced != 0 { !forced } else { slo_ns };
    block.learn(id, latency_ns, slo_ns);
    compiler_fence(AcqRel); // ORDERING: AcqRel, for the compiler alone: as in `begin`
    block.pop_to(at);
}

impl Block {
    /// The window of an epoch; sets it up when the thread first runs that epoch.
    #[inline(always)]
    fn window_of(&self, id: u32) -> u32 {
        let own = &self.windows.own[id as usize];
        let window_ns = own.window_ns.load(Relaxed); // own thread only
        if window_ns == 0 && own.unit_ns.load(Relaxed) == 0 {
            self.first_window(id)
        } else {
            window_ns
        }
    }

    /// The window of a thread's first execution: as long as the SLO, or less if an earlier thread needed less; none while the
    /// SLO is unknown, since it may be tight.
    #[cold]
    fn first_window(&self, id: u32) -> u32 {
        // Relaxed: hints, and the thread's own words.
        let (own, common) = (&self.windows.own[id as usize], &common()[id as usize]);
        self.used[id as usize / 64].fetch_or(1 << (id % 64), Relaxed);
        let forced = common.forced_inverted.load(Relaxed);
        let slo_ns = match (forced, common.slo_inverted.load(Relaxed)) {
            (0, 0) => return 0,
            (0, known) => !known,
            (forced, _) => !forced,
        };
        let seed = common.seed.load(Relaxed).checked_sub(1).unwrap_or(WINDOW_MAX_NS);
        let first = Feedback::first(slo_ns, percentile(id)).at_most(seed, slo_ns, percentile(id));
        set(own, first);
        first.window_ns
    }

    /// Adjusts the window after one more execution.
    #[inline(always)]
    fn learn(&self, id: u32, latency_ns: u64, slo_ns: u64) {
        // Relaxed: as in `first_window`.
        let (own, common) = (&self.windows.own[id as usize], &common()[id as usize]);
        if common.slo_inverted.load(Relaxed) != !slo_ns {
            common.slo_inverted.store(!slo_ns, Relaxed);
        }
        let percentile = percentile(id);
        own.ended.store(own.ended.load(Relaxed).wrapping_add(1), Relaxed);
        let missed = u32::from(latency_ns > slo_ns);
        own.missed.store(own.missed.load(Relaxed).wrapping_add(missed), Relaxed);
        let before =
            Feedback { window_ns: own.window_ns.load(Relaxed), unit_ns: own.unit_ns.load(Relaxed) };
        let next = if before.unit_ns != 0 {
            before.after(latency_ns, slo_ns, percentile)
        } else {
            // The window did not depend on the SLO yet, so the latency says nothing.
            Feedback::first(slo_ns, percentile)
        };
        set(own, next);
        if watch::epochs().is_some() {
            tell(id, latency_ns, slo_ns, before.window_ns, next.window_ns);
        }
    }

    /// Ends the epochs from place `at` of the stack upwards.
    #[inline(always)]
    fn pop_to(&self, at: usize) {
        // Relaxed: own thread only.
        self.depth.store(at as u32, Relaxed);
        match at.checked_sub(1) {
            Some(outer) => narrow(self.window_of(self.stack[outer].id.load(Relaxed))),
            None => narrow(WINDOW_MAX_NS),
        }
    }

    /// Where in the stack is this epoch, which ends but isn't the innermost one?
    #[cold]
    fn find(&self, depth: usize, id: u32, frame: u64) -> Option<usize> {
        // Relaxed, throughout: own thread only.
        let beyond = self.beyond.load(Relaxed);
        if beyond > 0 && frame == 0 {
            // We have no record of epochs beyond the stack: assume that this is the innermost.
            self.beyond.store(beyond - 1, Relaxed);
            return None;
        }
        let is_it =
            |entry: &Entry| entry.id.load(Relaxed) == id && entry.frame.load(Relaxed) == frame;
        let at = self.stack[..depth].iter().rposition(is_it);
        match at {
            Some(_) => self.beyond.store(0, Relaxed),
            None if beyond > 0 => self.beyond.store(beyond - 1, Relaxed),
            None => {}
        }
        at
    }

    #[cold]
    fn overflow(&self) {
        self.beyond.store(self.beyond.load(Relaxed) + 1, Relaxed); // own thread only
        once(
            &SAID_DEPTH,
            b"more than 64 epochs inside of each other: the innermost ones are not told apart\n",
        );
    }
}

/// Records one execution. Out of line, so that programs that don't record don't pay for it.
#[cold]
#[inline(never)]
fn tell(id: u32, latency_ns: u64, slo_ns: u64, window_ns: u32, next_window_ns: u32) {
    let class = place::here().class.0;
    if let Some(watcher) = watch::epochs() {
        (watcher.ended)(id, &Execution { latency_ns, slo_ns, window_ns, next_window_ns, class });
    }
}

/// The name or the percentile of the epoch `id` has changed.
fn changed(id: u32) {
    if let Some(watcher) = watch::epochs() {
        (watcher.changed)(id);
    }
}

static SAID_ID: AtomicBool = AtomicBool::new(false);
static SAID_DEPTH: AtomicBool = AtomicBool::new(false);
static SAID_PERCENTILE: AtomicBool = AtomicBool::new(false);

#[cold]
#[inline(never)]
fn refuse() {
    once(&SAID_ID, b"an epoch's id is from 0 to 1023: others are ignored\n");
}

#[cold]
fn once(said: &AtomicBool, what: &[u8]) {
    if !said.swap(true, Relaxed) {
        say(&[what]);
    }
}

#[cfg(test)]
mod tests;
