//! This process, as far as its mutexes depend on it.

use crate::layout::{Mutex, Room};
use crate::{config, epoch, fork, machine, mutex, policy, thread};
use core::cell::UnsafeCell;
use lockwright_locks::front::{Tuning, Window, try_take};
use lockwright_locks::posix::{self, Environment, Policy, Static};
use lockwright_native::{Atomic32, AtomicAddress, Native};

/// It.
#[derive(Debug)]
pub enum Here {}

impl Static for Here {
    const UNLOCKED: Mutex = posix::Mutex {
        word: Atomic32::of(0),
        count: Atomic32::of(0),
        owner: Atomic32::of(0),
        users: Atomic32::of(0),
        kind: Atomic32::of(0),
        side: Atomic32::of(0),
        tail: AtomicAddress::null(),
        room: Room(UnsafeCell::new([0; 8])),
    };
}

impl Environment for Here {
    type Platform = Native;
    type Room = Room;

    #[inline(always)]
    fn thread() -> u32 {
        thread::id()
    }

    fn choose(mutex: &Mutex, caller: usize) -> u32 {
        policy::choose(|| config::rule_for(core::ptr::from_ref(mutex).addr(), caller))
    }

    fn policy(place: u32) -> Policy<Self> {
        *policy::at(place)
    }

    fn tuning(tuning: Tuning) -> Tuning {
        let window_ns = match tuning.window {
            Window::Epoch => epoch::window_ns(),
            Window::Fixed => tuning.window_ns,
        };
        Tuning { era: fork::era(), window_ns, ..tuning.on(machine::cpus()) }
    }

    fn before_wait() {
        machine::look_now_and_then();
    }

    #[inline(always)]
    fn take(m: &Mutex) -> bool {
        mutex::fast_take(m, mutex::threads)
    }

    #[inline(always)]
    fn try_take(m: &Mutex) -> bool {
        if mutex::is_single_threaded() { Self::take(m) } else { try_take::<Native>(&m.word) }
    }

    #[inline(always)]
    fn give(m: &Mutex) -> bool {
        mutex::fast_give(m, mutex::threads())
    }
}
