//! Lock policies in this process. `lockwright policy` writes one to a mailbox ([`lockwright_programs`]), and the next thread that has to
//! wait for a mutex maps it. The command has verified and compiled it; here it is code without relocations, and memory for its maps.
//!
//! ```text
//!   lock ─► Native::ask ─► ask ─► cell: I am inside ─► the slot's entry ─► the hook's code ─► helpers (world)
//!   before_wait ─► take ─► load │ unload: entries ─► reclaim, if nobody is inside (grace, cells)
//! ```
//!
//! Invariants:
//! 1. Memory is never writable and executable at once.
//! 2. A policy's memory goes only when no thread is in it, or will be: see `grace`.
//! 3. A hook under a hook isn't asked. So a lock that a signal handler takes meanwhile does what it does without a policy.
//! 4. A policy that takes longer than its budget is taken off, and stays so until the command loads one again.
//! 5. A forked child has its own copy of the maps, and waits for none of the parent's threads.
//! 6. Once the lease is over, a slot on lease is empty, or the table of locks asks it (`lockwright_contract::mailbox`).

mod ask;
mod boost;
mod cells;
mod entries;
mod grace;
mod mailbox;
mod readers;
mod scheduling;
mod world;

use crate::fork::{self, When};
use crate::leave::Turn;
use crate::posts::{self, LATE, NO_MEMORY, Refusal, lockwright_mailbox};
use crate::{policy, thread};
use core::mem::{offset_of, transmute};
use core::ptr::null;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_contract::mailbox::{SLOTS as LEASED_SLOTS, TABLE};
use lockwright_contract::post::{Post, PostState};
use lockwright_contract::programs::env::{Code, Env};
use lockwright_contract::programs::image::{
    Architecture, ImageHeader, LARGEST, LARGEST_DATA, MAGIC,
};
use lockwright_contract::programs::mailbox::{
    CHANGING, FREE, LOAD, LOADED, Piece, Request, SLOTS, SlotState, TURN, UNLOAD, VOID,
};
use lockwright_contract::programs::maps::View;
use lockwright_locks::rw::biased::forget_all_but;
use lockwright_native::Native;
use lockwright_native::futex::{self, Clock};
use lockwright_native::policies::{self, Answers};
use lockwright_platform::hooks::{Hook, READS};
use mailbox::{CHANGES, hooks_word, learn_pid};

pub(crate) use boost::has_waited;
pub(crate) use cells::is_inside;
pub use mailbox::lockwright_programs;
pub(crate) use readers::{choose_for_readers, for_readers};

/// Some thread is loading or unloading. Unlike the mailbox's state, the command doesn't write this.
static BUSY: Turn = Turn::new();
static ANSWERS: Answers = Answers {
    ask: ask::ask,
    describe: world::describe,
    boost: boost::boost,
    unboost: boost::unboost,
};

/// From now on policies know of epochs. `slo_now`: the SLO of the calling thread's innermost epoch, ns; 0: not known.
pub(crate) fn knows_epochs(slo_now: fn() -> Option<u64>) {
    world::knows_epochs(slo_now);
}

/// The calling thread tags itself, for policies; 0: not any more. `false`: too many threads have tags.
pub fn tag(tag: u64) -> bool {
    world::set_tag(tag)
}

/// The calling thread has left a wait, since a signal handler doesn't return there. `was_inside`: it began to wait in a hook, which a signal
/// handler had interrupted.
#[cold]
pub(crate) fn has_left(was_inside: bool) {
    if !was_inside {
        cells::is_outside();
    }
    boost::has_left();
}

/// Takes up what the command has posted. Called by a thread that has to wait.
#[cold]
#[inline(never)]
pub(crate) fn take() {
    // A child must not wait for a thread that it doesn't have, even if no fork handler tells us about the fork.
    fork::tell_child(When::Seen, in_child);
    BUSY.take(give_up, take_alone);
}

/// The thread that was taking something up doesn't go on. What it has mapped goes with the next post.
fn give_up() {
    lockwright_programs.posts.put_back(); // others' requests wait there, too
    lockwright_mailbox.leased.fetch_or(LEASED_SLOTS, Relaxed); // perhaps it looked at the slots: the next one looks at all of them
}

/// These slots, one bit each, are on lease from now on: the table that comes doesn't ask them.
pub(crate) fn lease(slots: u32) {
    for (slot, info) in lockwright_programs.slots.iter().enumerate() {
        if slots & 1 << slot != 0 {
            info.leased.store(1, Relaxed); // before the bit
        }
    }
    if slots != 0 {
        // ORDERING: Release, pairs with the Acquire in `settle`.
        lockwright_mailbox.leased.fetch_or(LEASED_SLOTS, Release);
    }
}

/// A table is about to come, or to go: a moment later it is known which policies are asked.
fn is_table_coming() -> bool {
    let post = lockwright_mailbox.posts.seen();
    post.is(PostState::Posted) || post.is(PostState::Taken) || posts::has_run_out(TABLE)
}

/// Empties the slots on lease that nobody asks, once the lease is over. The others are no longer on lease.
fn settle() {
    if !posts::has_run_out(LEASED_SLOTS) || lockwright_mailbox.leased.load(Relaxed) & TABLE != 0 {
        return; // while a table is on lease it isn't known yet who is asked
    }
    // ORDERING: Acquire, pairs with the Release in `lease`: slots that come on lease later set the bit anew.
    lockwright_mailbox.leased.fetch_and(!LEASED_SLOTS, Acquire);
    for (slot, info) in (0..).zip(&lockwright_programs.slots) {
        if info.leased.swap(0, Relaxed) != 0 && !policy::asks(slot) {
            unload(slot, info);
        }
    }
    entries::reclaim();
}

/// In a forked child, which has one thread.
fn in_child() {
    if BUSY.is_taken() {
        give_up();
        BUSY.end();
    }
    learn_pid(); // one thread
    // The parent's other threads no longer read. (What they held by the locks themselves stays held, as with glibc: nobody can tell who
    // holds that.)
    forget_all_but::<Native>(thread::row());
    if cells::in_child() {
        entries::forget_writers();
    }
    lockwright_programs.boosted.store(0, Relaxed); // as above
}

/// As [`take`], for the one thread whose turn BUSY is.
fn take_alone() {
    if is_table_coming() {
        return; // the next one that waits takes this up
    }
    take_posted();
    settle();
}

fn take_posted() {
    let mailbox = &lockwright_programs;
    let posted = mailbox.posts.posted();
    let Some(taken) = posted.and_then(|posted| mailbox.posts.take(posted)) else { return };
    let len = mailbox.len.load(Relaxed) as usize; // the post was taken before, and is looked at again
    // SAFETY: while the post is taken, the command keeps out. If it doesn't, we read a mixture, and notice that.
    let room: &[u8] = unsafe { &*mailbox.room.0.get() };
    let mut posted = room.get(..len).unwrap_or(&[]);
    let (mut why, mut done) = (Refusal::new(), None);
    while let Some((request, code, pieces, rest)) = Request::first(posted) {
        why = Refusal::new();
        done = obey(&request, code, pieces, taken, &mut why);
        posted = rest;
    }
    if len == 0 || !posted.is_empty() {
        done = why.because(&[UNKNOWN]);
    }
    entries::reclaim();
    match done {
        Some(()) => mailbox.posts.done(taken),
        None => mailbox.posts.refused(taken, why.text()),
    }
}

/// The refusal of a request that we don't know.
const UNKNOWN: &[u8] = b"it knows no such request";

/// Does what a request says, if the post that was taken is still the last.
fn obey(
    request: &Request,
    code: &[u8],
    pieces: &[u8],
    taken: Post,
    why: &mut Refusal,
) -> Option<()> {
    let slot = request.slot;
    match (request.what, lockwright_programs.slots.get(slot as usize)) {
        (VOID, _) => Some(()),
        (LOAD, _) if request.leased != 0 && posts::is_over() && !policy::asks(slot) => {
            why.because(&[LATE])
        }
        (LOAD, Some(info)) if slot != 0 => load(request, code, pieces, info, taken, why),
        (UNLOAD, Some(info)) if slot != 0 => {
            lockwright_programs.posts.is_still(taken).then(|| unload(slot, info))
        }
        _ => why.because(&[UNKNOWN]),
    }
}

/// Puts a slot's policy out of force. Returns the number of the slot's next one.
fn retire(slot: u32, info: &SlotState) -> u32 {
    info.leased.store(0, Relaxed); // by BUSY; who puts it on lease at this moment means the policy that goes
    let turn = info.state.load(Relaxed) / TURN + 1; // only `take_off` writes it meanwhile, and not the number
    // ORDERING: Release, for the command: what it reads of the slot may be newer than this.
    info.state.store((turn * TURN) | CHANGING, Release);
    if let Some(word) = policies::word(slot) {
        word.store(0, Relaxed); // a hint
    }
    choose_for_readers();
    entries::set(slot, null());
    // ORDERING: Release, pairs with the Acquire in `in_section`.
    CHANGES.fetch_add(1, Release);
    turn
}

fn unload(slot: u32, info: &SlotState) {
    let turn = retire(slot, info);
    // ORDERING: Release, as above.
    info.state.store((turn * TURN) | FREE, Release);
}

/// Loads a policy: its image, and the pieces of its maps.
fn load(
    request: &Request,
    code: &[u8],
    pieces: &[u8],
    info: &SlotState,
    taken: Post,
    why: &mut Refusal,
) -> Option<()> {
    let (slot, code_len) = (request.slot, code.len());
    if !(size_of::<ImageHeader>()..=LARGEST).contains(&code_len) {
        return why.because(&[b"the policy is too large"]);
    }
    let data_len = read_once(&code[offset_of!(ImageHeader, data_len)..])?;
    let data_len = u64::from_ne_bytes(data_len) as usize;
    if data_len > LARGEST_DATA {
        return why.because(&[b"the policy's maps are too large"]);
    }
    entries::reclaim();
    let Some(entry) = entries::unused() else {
        return why.because(&[b"threads may still be in too many earlier policies: try again"]);
    };
    let Some((at, data)) = entry.map(code_len, data_len) else {
        return why.because(&[NO_MEMORY]);
    };
    // SAFETY: fresh memory of that length.
    let header = unsafe {
        at.copy_from_nonoverlapping(code.as_ptr(), code_len);
        &*at.cast::<ImageHeader>()
    };
    if header.magic != MAGIC
        || header.len as usize != code_len
        || header.data_len as usize != data_len
    {
        return why.because(&[b"it runs with another version of lockwright than the command"]);
    }
    if header.machine != machine() as u32 {
        return why.because(&[b"the policy was compiled for another kind of processor"]);
    }
    let hooks = read_hooks(at, header);
    let data_bytes: &mut [u8] = match data_len {
        0 => &mut [],
        // SAFETY: fresh memory of that length.
        len => unsafe { core::slice::from_raw_parts_mut(data, len) },
    };
    let is_whole = hooks.is_some()
        && fill(data_bytes, pieces).is_some()
        && View::all(data_bytes).count() == header.maps as usize;
    // Before the code may run. Who posts something else meanwhile wants no answer.
    let hooks = hooks.filter(|_| is_whole && lockwright_programs.posts.is_still(taken));
    let Some(hooks) = hooks else {
        return why.because(&[b"the policy is damaged"]);
    };
    if !entry.seal() {
        return why.because(&[
            b"it may make no memory executable (SELinux, or systemd's MemoryDenyWriteExecute)",
        ]);
    }
    grace::prepare();
    fork::tell_child(When::Seen, in_child);
    fork::around(|| boost::forks(thread::id()), || boost::has_forked(thread::id()));
    learn_pid(); // published with the entry
    let turn = retire(slot, info);
    entry.slot.set(slot);
    entry.turn.set(turn);
    entry.code.set(hooks);
    entry.env.set(Some(Env { data, data_len: data_len as u64, helpers: world::HELPERS }));
    show(info, header, request.budget_ns, entry.env(), at);
    ask::forget(slot as usize);
    policies::answer_by(&ANSWERS);
    if let Some(word) = policies::word(slot) {
        word.store(hooks_word(info.hooks.load(Relaxed), turn), Relaxed); // a hint
    }
    lease(u32::from(request.leased != 0) << slot);
    // Before threads ask it: they may find it too slow at once, and then these two change. ORDERING: Release, for the command.
    info.state.store((turn * TURN) | LOADED, Release);
    entries::set(slot, entry);
    choose_for_readers();
    Some(())
}

/// Tells the command what is in a slot.
fn show(info: &SlotState, header: &ImageHeader, budget_ns: u32, env: &Env, code: *const u8) {
    let bits = Hook::ALL.into_iter().filter(|hook| header.hooks[*hook as usize] != 0);
    // Relaxed, all of it: the state changes afterwards.
    info.hooks.store(bits.map(Hook::bit).sum::<u32>() | header.reads & READS, Relaxed);
    info.version.store(header.version, Relaxed);
    info.budget_ns.store(budget_ns.max(1), Relaxed);
    info.since_ns.store(futex::now(Clock::Monotonic), Relaxed);
    info.code.store(code.addr() as u64, Relaxed);
    info.code_len.store(header.len.into(), Relaxed);
    info.data.store(env.data.addr() as u64, Relaxed);
    info.data_len.store(env.data_len, Relaxed);
    for counters in [&info.asked, &info.sampled_ns, &info.samples] {
        counters.iter().for_each(|counter| counter.store(0, Relaxed));
    }
    info.unasked.store(0, Relaxed);
    for (to, from) in info.name.iter().zip(header.name.chunks_exact(8)) {
        to.store(
            from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)).to_le(),
            Relaxed,
        );
    }
}

/// What this is compiled for.
const fn machine() -> Architecture {
    if cfg!(target_arch = "x86_64") { Architecture::X86_64 } else { Architecture::Aarch64 }
}

/// The hooks' code; `None`: it doesn't lie in the image.
fn read_hooks(code: *mut u8, header: &ImageHeader) -> Option<[Option<Code>; Hook::ALL.len()]> {
    let mut hooks = [None; Hook::ALL.len()];
    for (hook, offset) in hooks.iter_mut().zip(header.hooks) {
        match offset {
            0 => {}
            offset
                if (size_of::<ImageHeader>()..header.len as usize).contains(&(offset as usize)) =>
            {
                // SAFETY: within the image, where the command says that a hook begins.
                *hook = Some(unsafe { transmute::<*mut u8, Code>(code.add(offset as usize)) });
            }
            _ => return None,
        }
    }
    Some(hooks)
}

/// The first bytes, in memory that the command may be changing: they are read once.
fn read_once<const N: usize>(from: &[u8]) -> Option<[u8; N]> {
    // SAFETY: there are N bytes.
    (from.len() >= N).then(|| unsafe { from.as_ptr().cast::<[u8; N]>().read_volatile() })
}

/// Fills the maps' memory; `None`: a piece isn't whole, or lies outside.
fn fill(data: &mut [u8], mut pieces: &[u8]) -> Option<()> {
    while !pieces.is_empty() {
        let (piece, rest) = pieces.split_at_checked(size_of::<Piece>())?;
        let word = |at: usize| Some(u32::from_ne_bytes(read_once(&piece[at..])?) as usize);
        let (at, len) = (word(offset_of!(Piece, at))?, word(offset_of!(Piece, len))?);
        data.get_mut(at..)?.get_mut(..len)?.copy_from_slice(rest.get(..len)?);
        pieces = rest.get(len.next_multiple_of(8)..)?;
    }
    Some(())
}

const _: () = assert!(SLOTS == policies::SLOTS);

#[cfg(test)]
pub(crate) mod tests;
