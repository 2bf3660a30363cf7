//! What the mutexes of this process depend on.

use crate::fast::{self, fast_give, fast_take, is_single_threaded, threads};
use crate::layout::{Here, Mutex, Room};
use crate::{
    fork, leave, machine, observe, policy, posts, programs, queued, rules, switch, thread, watch,
};
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::mailbox::{SLOTS, TABLE};
use lockwright_locks::front::{Parts, Seat, Tuning};
use lockwright_locks::posix::{Environment, Held, Me, Policy, Releasing};
use lockwright_native::Native;
use lockwright_platform::{Programmable, Word};

impl Environment for Here {
    type Platform = Native;
    type Room = Room;

    #[inline(always)]
    fn thread() -> u32 {
        thread::id()
    }

    #[inline(always)]
    fn with_held<R>(run: impl FnOnce(&Held<Native>) -> R) -> R {
        // SAFETY: the calling thread's own memory, always of this type.
        run(unsafe { (*thread::this()).held.account() })
    }

    fn grants() {
        fast::grants();
    }

    fn era() -> usize {
        fork::era()
    }

    fn choose(mutex: &Mutex, caller: usize) -> u32 {
        let (address, kind) = (core::ptr::from_ref(mutex).addr(), mutex.kind.load(Relaxed));
        let caller = observe::beyond_wrappers(caller);
        policy::choose(|order| rules::rule_for(order, address, kind, caller))
    }

    #[inline(always)]
    fn policy(place: u32) -> (Me, Policy<Self>) {
        let tells = observe::is_on() || is_anybody_boosted();
        // SAFETY: the calling thread's own memory.
        let this = unsafe { &*thread::this() };
        // SAFETY: as above, always of this type.
        let by = unsafe { this.held.account::<Held<Native>>() }.by();
        let (id, window_ns, era) = (thread::id(), this.window_ns(), fork::era());
        let mut policy = *policy::at(place);
        policy.tuning.adapt_to(era, machine::cpus(), window_ns);
        (Me { id, by, tells }, policy)
    }

    fn generation() -> u32 {
        policy::generation()
    }

    fn keeps_marks() -> bool {
        watch::is_on() || observe::is_on()
    }

    #[inline(always)]
    fn counts() -> bool {
        observe::is_on()
    }

    fn before_wait() {
        take_up_posts();
        // SAFETY: the calling thread's own memory.
        let waits = unsafe { &(*thread::this()).waits };
        let count = waits.load(Relaxed); // own thread only
        waits.store(count.wrapping_add(1), Relaxed);
        if count.is_multiple_of(machine::WAITS_PER_LOOK) {
            machine::look_now_and_then();
        }
    }

    fn waits(mutex: &Mutex, caller: usize) -> bool {
        observe::is_on() && observe::waits(mutex, caller)
    }

    fn has_waited(mutex: &Mutex, acquired: bool) {
        observe::has_waited(mutex, acquired);
    }

    fn releases(mutex: &Mutex) -> Releasing {
        Native::unboost();
        if observe::is_on() { observe::releases(mutex) } else { Releasing::default() }
    }

    #[inline(always)]
    fn released(address: usize, release: Releasing) {
        if observe::is_on() {
            observe::released(address, release);
        }
    }

    #[inline(always)]
    fn guarded<R>(
        mutex: &Mutex,
        parts: Parts<'_, Native>,
        tuning: &Tuning,
        wait: impl FnOnce(&Parts<'_, Native>) -> R,
    ) -> R {
        let is_in_hook = programs::is_inside();
        let undo = || programs::has_left(is_in_hook);
        leave::in_line(mutex, parts, tuning, undo, |parts| {
            let result = wait(parts);
            programs::has_waited();
            result
        })
    }

    #[inline(always)]
    fn in_queue(
        mutex: &Mutex,
        tuning: &Tuning,
        wait: impl FnOnce(&Seat<Native>),
        has_it: impl FnOnce(),
    ) -> bool {
        queued::wait(mutex, tuning, wait, has_it)
    }

    #[inline(always)]
    fn take(m: &Mutex) -> bool {
        fast_take(m, threads)
    }

    #[inline(always)]
    fn try_take(m: &Mutex) -> bool {
        if !is_single_threaded() {
            return m.word.try_take();
        }
        // Ignores the line, which may date from before a fork.
        let free = m.word.is_free();
        if free {
            m.word.take_alone();
        }
        free
    }

    #[inline(always)]
    fn give(m: &Mutex) -> bool {
        fast_give(m, threads())
    }
}

/// Takes up what commands have posted, and goes back to what was before where they are gone. Called by a thread that has to wait.
#[inline(always)]
pub(crate) fn take_up_posts() {
    // The table first: it says which policies are asked.
    if posts::lockwright_mailbox.posts.is_posted() || posts::has_run_out(TABLE) {
        switch::take();
    }
    if programs::lockwright_programs.posts.is_posted() || posts::has_run_out(SLOTS) {
        programs::take();
    }
}

/// Has any thread got another's priority, by a policy? A hint, but what the calling thread gave is in it.
#[inline(always)]
fn is_anybody_boosted() -> bool {
    programs::lockwright_programs.boosted.load(Relaxed) != 0
}
