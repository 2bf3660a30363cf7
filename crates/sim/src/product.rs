//! The locks as programs run them. A front lock is a `pthread_mutex_t`, served by the runtime's own code
//! (`lockwright_locks::posix`), so that kind and owner, which share the lock's line, cost what they cost in programs.
//! glibc's mutex does what glibc's own code does.

use crate::any_lock::AnyLock;
use crate::engine::{Tid, current, engine};
use crate::memory::{Product, Sim};
use lockwright_locks::front::{HELD, Rule, Tuning, WAITED};
use lockwright_locks::posix::{self, Environment, Front, Held, How, Me, Policy};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Woken, Word};

impl Environment for Product {
    type Platform = Sim;
    type Room = u64;

    fn thread() -> u32 {
        engine().me() + 1
    }

    /// Callers say which place they would choose.
    fn choose(_: &posix::Mutex<Self>, caller: usize) -> u32 {
        u32::try_from(caller).expect("a place")
    }

    fn with_held<R>(run: impl FnOnce(&Held<Sim>) -> R) -> R {
        let e = engine();
        run(&e.threads[e.me() as usize].held)
    }

    fn policy(place: u32) -> (Me, Policy<Self>) {
        let e = engine();
        // An undecided mutex gets the first lock; that makes no difference, because all locks of a run are alike.
        let Policy { how, tuning } = e.table[(place.max(1) - 1) as usize];
        let tuning = tuning.within(e.threads[e.me() as usize].window_ns);
        (Me::of::<Self>(), Policy { how, tuning })
    }
}

/// The memory of a mutex, on a line of its own.
#[repr(align(128))]
struct Mutex {
    mutex: posix::Mutex<Product>,
    place: usize,
}

const _: () = assert!(size_of::<posix::Mutex<Product>>() == 40);

impl Mutex {
    fn new(place: usize) -> Self {
        Self { mutex: posix::Mutex::of_kind(0, 0), place }
    }
}

/// An unlocked front lock of rule `R`.
pub(crate) fn front<R: Rule<Sim>>(tuning: Tuning) -> Box<dyn AnyLock> {
    let table = &mut current().expect("locks live on a machine").table;
    // All of a run's locks are alike.
    if table.is_empty() {
        table.push(Policy { how: How::Front(Front::of::<R>(R::defaults)), tuning });
    }
    Box::new(Mutex::new(1))
}

impl AnyLock for Mutex {
    fn lock(&self, thread: Tid, window_ns: u32) {
        engine().threads[thread as usize].window_ns = window_ns;
        posix::lock(&self.mutex, self.place).expect("a plain mutex");
    }

    fn try_lock(&self, _: Tid) -> bool {
        posix::try_lock(&self.mutex).is_ok()
    }

    fn unlock(&self, _: Tid) {
        posix::unlock(&self.mutex).expect("a plain mutex");
    }
}

/// glibc's own mutex.
pub(crate) fn glibc() -> Box<dyn AnyLock> {
    Box::new(Glibc(Mutex::new(0)))
}

struct Glibc(Mutex);

impl AnyLock for Glibc {
    fn lock(&self, _: Tid, _: u32) {
        lock_as_glibc(&self.0.mutex, None, count);
    }

    fn try_lock(&self, _: Tid) -> bool {
        let m = &self.0.mutex;
        m.kind.load(Relaxed);
        let got = m.word.take(false);
        if got {
            note_holder(m, count);
        }
        got
    }

    fn unlock(&self, _: Tid) {
        unlock_as_glibc(&self.0.mutex, count);
    }
}

/// As a plain instruction adds.
fn count(m: &posix::Mutex<Product>, by: u32) {
    m.users.store(m.users.load(Relaxed).wrapping_add(by), Relaxed);
}

/// glibc's own `pthread_mutex_lock` (of a mutex that its caller doesn't hold) or `pthread_mutex_timedlock`. It neither
/// looks at the line nor announces itself. By `count` it counts holders, in the word of our hints.
pub(crate) fn lock_as_glibc<E: Environment>(
    m: &posix::Mutex<E>,
    deadline: Option<<E::Platform as Platform>::Deadline>,
    count: impl FnOnce(&posix::Mutex<E>, u32),
) -> bool {
    m.kind.load(Relaxed);
    if !m.word.take(false) {
        // `__lll_lock_wait` looks before it swaps; with a deadline it does not.
        let mut sleeps = deadline.is_none() && m.word.now() == WAITED;
        while sleeps || !m.word.mark() {
            sleeps = false;
            if m.word.sleep(deadline) == Woken::TimedOut {
                return false;
            }
        }
    }
    note_holder(m, count);
    true
}

fn note_holder<E: Environment>(m: &posix::Mutex<E>, count: impl FnOnce(&posix::Mutex<E>, u32)) {
    m.owner.store(E::thread(), Relaxed);
    count(m, 1); // `++__nusers`
    if m.kind.load(Relaxed) & posix::TYPE == posix::RECURSIVE {
        m.count.store(1, Relaxed);
    }
}

/// glibc's own `pthread_mutex_unlock`, by the holder.
pub(crate) fn unlock_as_glibc<E: Environment>(
    m: &posix::Mutex<E>,
    count: impl FnOnce(&posix::Mutex<E>, u32),
) {
    if m.kind.load(Relaxed) & posix::TYPE == posix::RECURSIVE {
        m.count.store(m.count.load(Relaxed) - 1, Relaxed);
    }
    m.owner.store(0, Relaxed);
    count(m, u32::MAX); // `--__nusers`
    let word = m.word.address();
    if m.word.release_as_glibc() > HELD {
        E::Platform::unpark(word, 1);
    }
}
