//! What policies keep about each thread that asks one: a cell, in static memory, so that others may look at it at any time.
//!
//! A thread takes a cell near the place that its id gives, and keeps it until it ends. Nothing tells us when that is: a cell is free
//! again when somebody needs it and the kernel knows no thread of that id. A thread that finds no cell is not asked about.

use super::mailbox::{lockwright_programs, pid};
use super::scheduling::Scheduling;
use crate::access::{self, Access};
use crate::thread;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use lockwright_contract::file::decimal;
use lockwright_native::{futex, system_call};

/// How many threads may have one.
const CELLS: usize = 4096;
/// How many places after its own a thread's cell may lie. Their owners are in one or two cache lines.
const WAYS: usize = 16;

/// In [`ThreadCell::inside`]: about to ask the policy in this slot.
pub(super) const ASKING: u32 = 0x100;
/// In [`ThreadCell::inside`]: in a hook of the policy with this number.
pub(super) const INSIDE: u32 = 0x200;

/// In [`ThreadCell::boost`]: there is a [`Scheduling`] below.
pub(super) const KNOWN: u64 = 1 << 33;

/// A thread's cell. Only the thread writes it, except for `boost`, and its priority, which a waiter may have read.
#[repr(C, align(128))]
pub(super) struct ThreadCell {
    /// 0, or [`ASKING`], or [`INSIDE`].
    pub(super) inside: AtomicU32,
    /// Questions until the next one is measured.
    pub(super) until_sample: AtomicU32,
    /// Its own priority, see `hooks::Node::prio`.
    pub(super) prio: AtomicI32,
    /// Descriptions until somebody looks whether that is old.
    pub(super) until_prio: AtomicU32,
    /// When that was read, in seconds, + 1.
    pub(super) prio_read: AtomicU32,
    /// Locks that it holds whose policies have `lock_acquired` and `lock_release`.
    pub(super) held: AtomicU32,
    /// `held` counts since this many policies had been loaded or unloaded.
    pub(super) held_turn: AtomicU32,
    /// How often it has begun to hold such locks.
    pub(super) sections: AtomicU32,
    /// The thread that has got this one's priority; 0: none.
    pub(super) boosting: AtomicU32,
    /// Since when it holds such locks, ns; 0: it doesn't, or this time isn't measured.
    pub(super) held_since: AtomicU64,
    /// How long it has held such locks, ns.
    pub(super) held_ns: AtomicU64,
    /// What its own priority is while it has another's, see `boost`; 0: it has its own.
    pub(super) boost: AtomicU64,
}

impl ThreadCell {
    const fn new() -> Self {
        Self {
            inside: AtomicU32::new(0),
            until_sample: AtomicU32::new(0),
            prio: AtomicI32::new(0),
            until_prio: AtomicU32::new(0),
            prio_read: AtomicU32::new(0),
            held: AtomicU32::new(0),
            held_turn: AtomicU32::new(0),
            sections: AtomicU32::new(0),
            boosting: AtomicU32::new(0),
            held_since: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
            boost: AtomicU64::new(0),
        }
    }

    /// Zeroes, all but [`inside`](Self::inside) and [`boost`](Self::boost). Relaxed: the cell's thread alone uses it, and others take
    /// hints from it.
    fn clear(&self) {
        for word in [&self.until_sample, &self.until_prio, &self.prio_read] {
            word.store(0, Relaxed);
        }
        self.held.store(0, Relaxed); // as above, here and below
        self.held_turn.store(0, Relaxed);
        self.sections.store(0, Relaxed);
        self.boosting.store(0, Relaxed);
        self.prio.store(0, Relaxed);
        self.held_since.store(0, Relaxed);
        self.held_ns.store(0, Relaxed);
    }

    /// Gives the thread its own priority back: for the one thread that sees to the word.
    pub(super) fn finish(&self, tid: u32) {
        // ORDERING: Acquire, pairs with the Release in `boost::give`.
        let word = self.boost.load(Acquire);
        if word & KNOWN != 0 {
            Scheduling::unpack(word as u32).set(tid);
        }
        self.end();
    }

    /// The thread has its own priority.
    pub(super) fn end(&self) {
        // ORDERING: Release, pairs with the Acquire in `boost::boost`: the system calls are over.
        if self.boost.swap(0, Release) != 0 {
            lockwright_programs.boosted.fetch_sub(1, Relaxed); // a hint
        }
    }

    /// In a forked child, whose only thread had this cell: it has the parent's priorities. (Those which are worth a privilege the kernel
    /// has reset: SCHED_RESET_ON_FORK.)
    fn in_child(&self) {
        self.finish(thread::id());
        self.boosting.store(0, Relaxed); // one thread
    }
}

/// In OWNERS: this thread is about to give the cell to somebody. No thread's id is so large.
const SOON: u32 = 1 << 31;

/// Whose the cells are; 0: nobody's.
static OWNERS: [AtomicU32; CELLS] = [const { AtomicU32::new(0) }; CELLS];
static ALL: [ThreadCell; CELLS] = [const { ThreadCell::new() }; CELLS];
/// When a thread last found no cell, in seconds, + 1.
static FULL_AT: AtomicU32 = AtomicU32::new(0);

/// The coarse monotonic clock, s.
pub(super) fn seconds() -> u32 {
    futex::read(libc::CLOCK_MONOTONIC_COARSE).tv_sec as u32
}

fn places(tid: u32) -> impl Iterator<Item = usize> {
    let first = (tid.wrapping_mul(0x9e37_79b9) >> 20) as usize;
    (0..WAYS).map(move |way| (first + way) % CELLS)
}

/// The calling thread's cell, if it has one already.
#[inline(always)]
pub(super) fn known() -> Option<&'static ThreadCell> {
    // SAFETY: the calling thread's own memory.
    let cell = unsafe { (*thread::this()).cell.load(Relaxed) }; // own thread only
    // SAFETY: null, or one of ALL.
    unsafe { cell.cast::<ThreadCell>().as_ref() }
}

/// The calling thread's cell. `None`: there are too many threads.
#[inline(always)]
pub(super) fn own() -> Option<&'static ThreadCell> {
    known().or_else(claim)
}

#[cold]
#[inline(never)]
fn claim() -> Option<&'static ThreadCell> {
    let cell = claim_for(thread::id())?;
    cell.inside.store(0, Relaxed); // who looks meanwhile keeps what it would have unmapped
    cell.clear();
    set_own(cell);
    Some(cell)
}

/// The cell of this thread, which gets one if it has none.
pub(super) fn claim_for(tid: u32) -> Option<&'static ThreadCell> {
    if let Some(known) = of(tid) {
        return Some(known);
    }
    if FULL_AT.load(Relaxed) == seconds() + 1 {
        return None; // a hint
    }
    let soon = thread::id() | SOON;
    // ORDERING: AcqRel: it comes before the marks that we set in the cell, see `grace`.
    let take = |at: usize, from| OWNERS[at].compare_exchange(from, soon, AcqRel, Relaxed).is_ok();
    let is_left = |at: usize| {
        let owner = OWNERS[at].load(Relaxed); // the exchange decides
        owner != 0 && is_gone(owner & !SOON) && take(at, owner)
    };
    let found = places(tid).find(|&at| take(at, 0)).or_else(|| places(tid).find(|&at| is_left(at)));
    let Some(at) = found else {
        FULL_AT.store(seconds() + 1, Relaxed); // a hint
        return None;
    };
    // What the one before has left. (A waiter that still has its id may write `boost`, and finds that the word isn't its own.)
    ALL[at].inside.store(0, Relaxed);
    ALL[at].end();
    // ORDERING: Release, pairs with the Acquire in `of`: who finds the cell by its owner finds it so.
    OWNERS[at].store(tid, Release);
    of(tid) // another thread may have made one meanwhile, which others find first
}

/// Is the calling thread in a hook, or about to be?
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    known().is_some_and(|cell| cell.inside.load(Relaxed) != 0) // own thread only
}

/// The calling thread has left the hook that it may have been in.
pub(super) fn is_outside() {
    if let Some(cell) = known() {
        // ORDERING: Release, pairs with the Acquire in `is_anybody_in`: the hook is over.
        cell.inside.store(0, Release);
    }
}

pub(super) fn set_own(cell: *const ThreadCell) {
    // SAFETY: the calling thread's own memory.
    unsafe { (*thread::this()).cell.store(cell.cast_mut().cast(), Relaxed) }; // own thread only
}

/// The cell of this thread, if it has one.
pub(super) fn of(tid: u32) -> Option<&'static ThreadCell> {
    all_of(tid).next()
}

/// The cells of this thread: one, or none. Two, if two threads made one for it at the same moment.
pub(super) fn all_of(tid: u32) -> impl Iterator<Item = &'static ThreadCell> {
    // A hint: the cell may change hands at any moment. ORDERING: Acquire, pairs with the Release in `claim_for`.
    places(tid).filter(move |&at| OWNERS[at].load(Acquire) == tid).map(|at| &ALL[at])
}

/// Has this process no thread with this id? If we may not ask, it may have one. (Another process may: ids are used again.)
pub(super) fn is_gone(tid: u32) -> bool {
    access::asking(|access| match access {
        Access::All => {
            // SAFETY: sends no signal.
            let said = unsafe { system_call!(libc::SYS_tgkill, pid(), tid, 0) };
            said == -libc::c_long::from(libc::ESRCH)
        }
        Access::Files => is_listed(tid) == Some(false) && is_listed(thread::id()) == Some(true),
        Access::None => false,
    })
}

/// Does this process's folder list the thread? `None`: the kernel doesn't say.
fn is_listed(tid: u32) -> Option<bool> {
    let (mut path, mut len, mut digits) = ([0_u8; 48], 0, [0; 10]);
    for piece in [&b"/proc/self/task/"[..], decimal(tid, &mut digits), b"/comm"] {
        path[len..len + piece.len()].copy_from_slice(piece);
        len += piece.len();
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with zeroes. Raw, since libc's `open` is a cancellation point.
    let fd = unsafe { system_call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    match fd {
        0.. => {
            // SAFETY: ours.
            unsafe { system_call!(libc::SYS_close, fd) };
            Some(true)
        }
        error => (error == -libc::c_long::from(libc::ENOENT)).then_some(false),
    }
}

/// Is a thread in the policy with this mark, or may it be about to ask it in this slot? Called after the barrier, see `grace`.
pub(super) fn is_anybody_in(slot: u32, mark: u32) -> bool {
    OWNERS.iter().zip(&ALL).any(|(owner, cell)| {
        let owner = owner.load(Relaxed); // as old as the cell's mark, by the barrier
        // ORDERING: Acquire, pairs with the Release in `ask`: what the hook did came before.
        let inside = if owner != 0 { cell.inside.load(Acquire) } else { 0 };
        (inside == ASKING | slot || inside == mark) && !is_gone(owner & !SOON)
    })
}

/// In a forked child, which has one thread. Returns whether another one was in a hook.
pub(super) fn in_child() -> bool {
    // SAFETY: the calling thread's own memory.
    let own = unsafe { (*thread::this()).cell.load(Relaxed) }.cast::<ThreadCell>().cast_const(); // one thread, as below
    let id = thread::id_in_parent();
    let mut was_inside = false;
    for (owner, cell) in OWNERS.iter().zip(&ALL) {
        let tid = owner.load(Relaxed);
        if tid == 0 {
            continue;
        }
        let is_own = ptr::eq(own, cell);
        if is_own && cell.inside.load(Relaxed) != 0 {
            // A signal handler forked, in a hook. It returns there.
            cell.in_child();
            owner.store(thread::id(), Relaxed);
            continue;
        }
        was_inside |= cell.inside.swap(0, Relaxed) != 0;
        // A waiter may have made it for the thread that forked.
        if is_own || tid == id {
            cell.in_child();
        }
        if is_own {
            set_own(ptr::null());
        }
        cell.end();
        cell.clear();
        owner.store(0, Relaxed);
    }
    was_inside
}

/// Gives the calling thread, which has a cell, another one, before it or behind it. Returns both.
#[cfg(test)]
pub(super) fn two() -> [&'static ThreadCell; 2] {
    let tid = thread::id();
    let is_free = |at: &usize| {
        let owner = OWNERS[*at].load(Relaxed); // the exchange decides
        (owner == 0 || is_gone(owner))
            && OWNERS[*at].compare_exchange(owner, tid, AcqRel, Relaxed).is_ok()
    };
    places(tid).find(is_free).expect("a free place");
    let mut all = all_of(tid);
    [all.next(), all.next()].map(|cell| cell.expect("two cells"))
}

/// This thread has this cell now.
#[cfg(test)]
pub(super) fn lend(cell: &ThreadCell, tid: u32) {
    let at = ALL.iter().position(|known| ptr::eq(known, cell)).expect("one of all");
    OWNERS[at].store(tid, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_cell_and_ended_threads_leave_theirs() {
        thread::learn();
        let mine = own().unwrap();
        assert!(ptr::eq(own().unwrap(), mine) && ptr::eq(of(thread::id()).unwrap(), mine));
        let mut last = 0;
        // More than there are cells.
        for _ in 0..CELLS / 64 {
            let round: std::vec::Vec<_> = (0..80)
                .map(|_| {
                    std::thread::spawn(|| {
                        (thread::id(), own().map(ptr::from_ref).map(|cell| cell.addr()))
                    })
                })
                .collect();
            let cells = round.into_iter().map(|thread| thread.join().unwrap());
            for (tid, cell) in cells {
                last = tid;
                assert_ne!(cell, None);
                assert_ne!(cell, Some(ptr::from_ref(mine).addr()));
            }
        }
        // The kernel says that a thread has ended a moment before it forgets the thread.
        while !is_gone(last) {
            std::thread::yield_now();
        }
        assert!(!is_gone(thread::id()));
        assert_eq!((is_listed(last), is_listed(thread::id())), (Some(false), Some(true)));
    }

    #[test]
    fn another_processs_thread_is_gone() {
        let _alone = super::super::tests::alone();
        // SAFETY: the child makes system calls, and ends when it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no preconditions.
            unsafe {
                libc::alarm(60);
                libc::pause();
                libc::_exit(0)
            }
        }
        let is_gone = [child as u32, thread::id()].map(is_gone);
        // SAFETY: our child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &mut 0, 0);
        }
        assert_eq!(is_gone, [true, false]);
    }

    #[test]
    fn a_mark_is_seen_while_its_thread_lives() {
        thread::learn();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let (said, heard) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            own().unwrap().inside.store(INSIDE | 31, Relaxed);
            said.send(()).unwrap();
            let _ = receive.recv();
        });
        heard.recv().unwrap();
        assert!(is_anybody_in(15, INSIDE | 31) && !is_anybody_in(15, INSIDE | 30));
        drop(send);
        thread.join().unwrap();
        while is_anybody_in(15, INSIDE | 31) {
            std::thread::yield_now(); // the kernel may still know it
        }
    }
}
