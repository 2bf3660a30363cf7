//! Semaphores: those that serve as locks have holders, who can be blamed.
//!
//! glibc's functions do the work, so we write nothing into a semaphore. The segment knows who took it last
//! ([`lockwright_contract::counters::Segment::took`]). Each wait is timed: it begins where glibc's fast path has failed, and ends after a sleep.
//! A wait is counted when it ends, while the semaphore is held. A release is counted when nobody waits for it any more.
//!
//! `sem_post` may be called in signal handlers, so it uses only atomics, and the thread's id.

use super::{alone, begun, is_full, looks, open, opened, seen_fork, stack, wrappers};
use crate::caller::Call;
use crate::layout::Semaphore;
use crate::thread;
use lockwright_contract::counters::{Blame, Taken, Wait};
use lockwright_native::futex::{self, Clock};
use lockwright_native::place;

fn address(s: &Semaphore) -> u64 {
    core::ptr::from_ref(s).addr() as u64
}

/// Who releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The thread that took it last, as with locks.
    Taker,
    /// Another thread; or nobody has it.
    Other,
    /// We haven't seen who took it.
    Unknown,
}

/// A release that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    whose: Whose,
    /// When, ns; 0: nobody needs to know.
    now_ns: u64,
    /// Since when the releasing thread has had it, ns; 0: not known.
    since_ns: u64,
    /// Since when somebody has been waiting, according to the segment; 0: nobody waits.
    blocked_since: u64,
}

/// A semaphore is about to be used: the segment should know who takes it before anybody waits for it.
pub(crate) fn begins() {
    let _ = seen_fork();
}

/// The calling thread asks for it. Returns since when it has to wait, ns; 0: it is free, or the wait isn't counted.
pub(crate) fn waits(s: &Semaphore) -> u64 {
    let segment = seen_fork();
    if s.value() != 0 {
        return 0;
    }
    let Some(segment) = segment.or_else(open::opening) else { return 0 };
    let (lock, now) = (address(s), futex::now(Clock::Monotonic));
    looks(&segment, now);
    let tid = thread::id();
    segment.semaphore_waits(lock, now, tid);
    if segment.taker(lock).is_some_and(|taken| taken.tid == tid) {
        segment.signals(lock); // no lock: its holder would wait for itself, forever
    }
    segment.blocks(lock, now, 1, begun());
    now
}

/// The wait that began at `since` has ended; or, with 0, it didn't wait.
pub(crate) fn has_waited(s: &Semaphore, since: u64, acquired: bool, call: Call) {
    if since == 0 {
        if acquired {
            took(s);
        }
        return;
    }
    let Some(segment) = opened() else { return };
    let (lock, now, tid) = (address(s), futex::now(Clock::Monotonic), thread::id());
    if acquired {
        segment.took(lock, tid, now);
        if s.value() != 0 {
            segment.signals(lock);
        }
        segment.answers(lock, now, s.waiters() != 0);
    } else {
        segment.gives_up(lock, since);
    }
    let here = place::among_usable();
    if is_full() && acquired {
        segment.follow(lock, tid, here.cpu, true);
    }
    let call = wrappers::beyond(call);
    let (site, ns) = (call.from as u64, now.saturating_sub(since));
    alone(since, ns);
    let wants = is_full() && segment.wants_stack(lock, site, ns);
    segment.waited(&Wait {
        lock,
        site,
        stack: if wants { stack(&segment, call) } else { 0 },
        tid,
        ended_ns: now,
        ns,
        weight: 1,
        class: here.class.0,
        asleep: true,
        acquired,
        by_thread: is_full(),
    });
}

/// The calling thread has taken it, without waiting.
pub(crate) fn took(s: &Semaphore) {
    let Some(segment) = opened() else { return };
    let lock = address(s);
    segment.took(lock, thread::id(), 0);
    if s.value() != 0 {
        segment.signals(lock); // others may take it, too
    }
    if s.waiters() != 0 {
        segment.answers(lock, futex::now(Clock::Monotonic), true); // this thread overtook the waiters
    }
}

/// The calling thread is about to release it. `None`: the release isn't counted.
pub(crate) fn posts(s: &Semaphore) -> Option<Post> {
    let segment = opened()?;
    let (lock, taken) = (address(s), segment.taker(address(s)));
    let whose = match taken {
        Some(Taken { tid, .. }) if tid == thread::id() && s.value() == 0 => Whose::Taker,
        Some(Taken { tid: 1.., .. }) => Whose::Other,
        _ if s.value() != 0 => Whose::Other,
        _ => Whose::Unknown,
    };
    segment.gives(lock);
    let since_ns = taken.filter(|_| whose == Whose::Taker).map_or(0, |taken| taken.since_ns);
    // This forgets what was noted for a waiter that has left in another way.
    let noted = segment.blocked_since(lock);
    let blocked_since = if s.waiters() != 0 && whose == Whose::Taker { noted } else { 0 };
    let is_timed = since_ns > begun() || blocked_since != 0;
    let now_ns = if is_timed { futex::now(Clock::Monotonic) } else { 0 };
    Some(Post { whose, now_ns, since_ns, blocked_since })
}

/// It has been released.
pub(crate) fn posted(address: usize, post: Post, call: Call) {
    let Some(segment) = opened() else { return };
    let lock = address as u64;
    match post.whose {
        Whose::Taker => segment.released_by_taker(lock),
        Whose::Other => segment.signals(lock),
        Whose::Unknown => {}
    }
    if post.now_ns == 0 {
        return;
    }
    let call = wrappers::beyond(call);
    let blame = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
    if post.since_ns > begun() {
        segment.held(lock, post.now_ns.saturating_sub(post.since_ns), 1, blame);
    }
    let stack = || stack(&segment, call);
    segment.blocked_from(lock, post.blocked_since, post.now_ns, begun(), blame, stack);
}

/// The semaphore at this address is destroyed.
pub(crate) fn retire(address: usize) {
    if let Some(segment) = opened() {
        segment.retire_semaphore(address as u64);
    }
}
