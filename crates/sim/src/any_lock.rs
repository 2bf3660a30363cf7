//! A lock of any type, and the sections that it runs.

use crate::units::Tid;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Delegated, Platform, Word};

/// A lock whose type is not known.
pub(crate) trait AnyLock {
    /// Acquires for a thread.
    fn lock(&self, thread: Tid, window_ns: u32);
    /// Tries to acquire.
    fn try_lock(&self, thread: Tid) -> bool;
    /// Acquires by sleeping on the lock's own word, as glibc's code and timed lockers do, for at most the given ns;
    /// `None`: it can't.
    fn lock_on_word(&self, thread: Tid, ns: Option<u32>) -> Option<bool> {
        let _ = (thread, ns);
        None
    }
    /// Joins the lock's line, is torn out of its wait, awake or asleep (after the given ns, or already woken), and
    /// leaves; `false`: it can't.
    fn torn_wait(&self, asleep: bool, ns: Option<u32>) -> bool {
        let _ = (asleep, ns);
        false
    }
    /// Releases as glibc's own code does, and from then on may do so at any time; `false`: it can't, and nothing was
    /// done.
    fn unlock_as_glibc(&self, thread: Tid) -> bool {
        let _ = thread;
        false
    }
    /// Releases.
    fn unlock(&self, thread: Tid);
    /// Does it only run sections, on other threads? Then there is nothing to acquire or release.
    fn is_delegated(&self) -> bool {
        false
    }
    /// How many threads have to [`serve`](Self::serve).
    fn servers(&self) -> u32 {
        0
    }
    /// How many threads each of them is, on one CPU.
    fn pool(&self) -> u32 {
        1
    }
    /// Runs others' sections until [`stop`](Self::stop).
    fn serve(&self) {}
    /// From now on the server of `with`, a lock of the same kind, serves this one, too. `with` stays as long.
    fn share(&self, with: &dyn AnyLock) {
        let _ = with;
    }
    /// See [`Delegated::vary`].
    fn vary(&self, how: u32) {
        let _ = how;
    }
    /// Where the lock is, for `share`.
    fn at(&self) -> *const () {
        std::ptr::null()
    }
    /// Nobody will ask any more.
    fn stop(&self) {}
    /// Acquires for reading; `false`: this is a mutex, and nothing was done.
    fn read(&self, thread: Tid) -> bool {
        let _ = thread;
        false
    }
    /// Releases what was acquired for reading.
    fn leave_read(&self, thread: Tid) {
        let _ = thread;
    }
    /// Runs `section` under the lock for a thread, maybe on another thread.
    fn with(&self, thread: Tid, window_ns: u32, section: Carried<'_>) {
        self.lock(thread, window_ns);
        section.run();
        self.unlock(thread);
    }
}

/// A section that locks may carry to another thread of the machine.
pub(crate) struct Carried<'a>(pub(crate) &'a mut dyn FnMut());

// SAFETY: all threads of a machine run on the one operating-system thread that runs the machine.
unsafe impl Send for Carried<'_> {}

impl Carried<'_> {
    /// Runs it.
    pub(crate) fn run(self) {
        (self.0)();
    }
}

/// A delegated lock, on machine `P`, whose nodes `N` keeps.
pub(crate) struct Sent<P: Platform, L, N> {
    lock: Apart<L>,
    nodes: N,
    /// Not 0: servers end.
    stopped: Apart<P::Word>,
}

/// In lines of its own.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Whose node a section uses.
pub(crate) trait Nodes<N> {
    /// Runs `with` with the thread's node.
    fn with(&self, thread: Tid, with: impl FnOnce(*mut N));
}

impl<P: Platform, L: Delegated<P>, N: Nodes<L::Node>> Sent<P, L, N> {
    pub(crate) fn new(nodes: N) -> Self {
        Self { lock: Apart(L::new()), nodes, stopped: Apart(P::Word::new(0)) }
    }
}

impl<P: Platform, L: Delegated<P>, N: Nodes<L::Node>> AnyLock for Sent<P, L, N> {
    fn lock(&self, _: Tid, _: u32) {
        unreachable!("a delegated lock runs sections, and is never held");
    }

    fn try_lock(&self, _: Tid) -> bool {
        unreachable!("a delegated lock runs sections, and is never held");
    }

    fn unlock(&self, _: Tid) {
        unreachable!("a delegated lock runs sections, and is never held");
    }

    fn is_delegated(&self) -> bool {
        true
    }

    fn servers(&self) -> u32 {
        L::SERVERS
    }

    fn pool(&self) -> u32 {
        L::POOL
    }

    fn share(&self, with: &dyn AnyLock) {
        // SAFETY: of the same kind, so of this type; it stays as long.
        unsafe { self.lock.0.share(&*with.at().cast::<L>()) };
    }

    fn vary(&self, how: u32) {
        self.lock.0.vary(how);
    }

    fn at(&self) -> *const () {
        std::ptr::from_ref(&self.lock.0).cast()
    }

    fn serve(&self) {
        self.lock.0.serve(&self.stopped.0);
    }

    fn stop(&self) {
        self.stopped.0.store(1, Relaxed); // whatever was asked for is over
    }

    fn with(&self, thread: Tid, window_ns: u32, section: Carried<'_>) {
        self.nodes.with(thread, |node| {
            // SAFETY: the node is this thread's, for one section at a time.
            unsafe { self.lock.0.with_window(node, window_ns, || section.run()) };
        });
    }
}
