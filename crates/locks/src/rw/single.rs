//! `rwlock` by itself, outside a `pthread_rwlock_t`: three words in a row.

use super::rwlock::{Outcome, Parts, Waiter};
use super::{ReadWrite, Tuning};
use lockwright_platform::{Platform, Word};

/// A readers-writer lock of three words.
pub struct Single<P: Platform> {
    state: P::Word,
    writers: P::Word,
    owner: P::Word,
    tuning: Tuning,
}

impl<P: Platform> Single<P> {
    fn parts(&self) -> Parts<'_, P> {
        let Self { state, writers, owner, tuning } = self;
        Parts { state, writers, owner, prefer: tuning.prefer }
    }

    fn waiter(&self, me: u32, deadline: Option<P::Deadline>) -> Waiter<'static, P> {
        Waiter { me, spin_ns: self.tuning.spin_ns, deadline, counted: None }
    }
}

/// Is the lock held now?
///
/// Callers must not ask for a lock that they hold for writing, and there are fewer of them than can be counted.
fn acquired(outcome: Outcome) -> bool {
    debug_assert!(!matches!(outcome, Outcome::Deadlock | Outcome::TooMany), "{outcome:?}");
    outcome == Outcome::Acquired
}

impl<P: Platform> ReadWrite<P> for Single<P> {
    type Pass = ();
    const TIMED: bool = true;
    const LAST_MAY_END: bool = true;

    fn new(tuning: &Tuning) -> Self {
        let [state, writers, owner] = [(); 3].map(|()| P::Word::new(0));
        Self { state, writers, owner, tuning: *tuning }
    }

    fn nests(tuning: &Tuning) -> bool {
        tuning.prefer != super::rwlock::Prefer::WritersStrictly
    }

    #[inline]
    fn read(&self, me: u32) {
        acquired(self.parts().read(|_| self.waiter(me, None)));
    }

    #[inline]
    fn try_read(&self, _: u32) -> Option<()> {
        acquired(self.parts().try_read()).then_some(())
    }

    fn read_until(&self, me: u32, deadline: P::Deadline) -> Option<()> {
        acquired(self.parts().read(|_| self.waiter(me, Some(deadline)))).then_some(())
    }

    #[inline]
    fn leave_read(&self, (): ()) {
        self.parts().unlock();
    }

    #[inline]
    fn write(&self, me: u32) {
        acquired(self.parts().write(me, |_| self.waiter(me, None)));
    }

    #[inline]
    fn try_write(&self, me: u32) -> bool {
        acquired(self.parts().try_write(me))
    }

    fn write_until(&self, me: u32, deadline: P::Deadline) -> bool {
        acquired(self.parts().write(me, |_| self.waiter(me, Some(deadline))))
    }

    #[inline]
    fn leave_write(&self) {
        self.parts().unlock();
    }

    fn torn_wait(&self, writes: bool) -> bool {
        self.parts().torn_wait(writes);
        true
    }
}
