//! What the mutexes of this process depend on.

use crate::layout::{Here, Mutex, Room};
use crate::mode::{GRANTING, SEVERAL, SINGLE, is_single_threaded};
use crate::{fork, leave, machine, mode, observe, policy, programs, rules, switch, thread, watch};
use core::sync::atomic::Ordering::Relaxed;
use lockwright_locks::front::{FREE, HELD, Seat, Tuning, Window};
use lockwright_locks::posix::{Environment, Held, Policy};
use lockwright_native::Native;
use lockwright_platform::{Ptr, Word};

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
        mode::grants();
    }

    fn era() -> usize {
        fork::era()
    }

    fn choose(mutex: &Mutex, caller: usize) -> u32 {
        let (address, kind) = (core::ptr::from_ref(mutex).addr(), mutex.kind.load(Relaxed));
        policy::choose(|order| rules::rule_for(order, address, kind, caller))
    }

    fn policy(place: u32) -> Policy<Self> {
        *policy::at(place)
    }

    fn generation() -> u32 {
        policy::generation()
    }

    fn tuning(tuning: Tuning) -> Tuning {
        let window_ns = match tuning.window {
            Window::Epoch => thread::window_ns(),
            Window::Fixed => tuning.window_ns,
        };
        Tuning { era: fork::era(), window_ns, ..tuning.on(machine::cpus()) }
    }

    fn keeps_marks() -> bool {
        watch::is_on()
    }

    fn before_wait() {
        switch::look();
        programs::look();
        machine::look_now_and_then();
    }

    #[inline(always)]
    fn waits(mutex: &Mutex, caller: usize) -> u64 {
        if observe::is_on() { observe::waits(mutex, caller) } else { 0 }
    }

    #[inline(always)]
    fn has_waited(mutex: &Mutex, wait: u64, acquired: bool) {
        if wait != 0 {
            observe::has_waited(mutex, acquired);
        }
    }

    #[inline(always)]
    fn releases(_: &Mutex) -> u64 {
        if observe::is_on() { observe::releases() } else { 0 }
    }

    #[inline(always)]
    fn released(address: usize, release: u64) {
        if observe::is_on() {
            observe::released(address, release);
        }
    }

    #[inline(always)]
    fn in_line(mutex: &Mutex, tuning: &Tuning, wait: impl FnOnce(Option<&dyn Seat<Native>>)) {
        let is_in_hook = programs::is_inside();
        let undo = || programs::has_left(is_in_hook);
        leave::in_line(mutex, tuning, undo, |seat| wait(Some(seat)));
        programs::has_waited();
    }

    #[inline(always)]
    fn on_word<R>(mutex: &Mutex, wait: impl FnOnce() -> R) -> R {
        leave::on_word(mutex, wait)
    }

    #[inline(always)]
    fn in_queue(mutex: &Mutex, tuning: &Tuning, wait: impl FnOnce()) {
        leave::held_back(mutex, tuning, wait);
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

/// Takes word 0 if it is free and nobody queues; never if this mode says that operations are watched.
#[inline(always)]
pub(crate) fn fast_take(mutex: &Mutex, mode: impl Fn() -> u32) -> bool {
    // An arrival must not overtake a line without noticing.
    mutex.tail.load(Relaxed).is_null() && take_word(mutex, mode())
}

/// The same, for a mutex at which nobody queues.
#[inline(always)]
pub(crate) fn take_word(mutex: &Mutex, mode: u32) -> bool {
    if mode & !GRANTING == SEVERAL {
        return mutex.word.take(false);
    }
    let free = mutex.word.now() + mode == FREE + SINGLE;
    if free {
        mutex.word.take_alone();
    }
    free
}

/// The mode, ignoring watchers.
#[inline(always)]
pub(crate) fn threads() -> u32 {
    u32::from(is_single_threaded())
}

/// Releases word 0 if nobody needs a wake; never if this mode says that operations are watched. After the write that releases, the
/// mutex may be gone.
#[inline(always)]
pub(crate) fn fast_give(mutex: &Mutex, mode: u32) -> bool {
    if mode == SEVERAL {
        return mutex.word.give();
    }
    let held = mutex.word.now() + mode == HELD + SINGLE;
    if held {
        mutex.word.give_alone();
    }
    held
}
