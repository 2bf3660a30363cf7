//! A lock of any type, and the sections that it runs.

use crate::units::Tid;

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
