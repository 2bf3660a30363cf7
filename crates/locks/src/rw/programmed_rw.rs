//! programmed-rw: `rwlock`, whose readers show themselves in a table whenever a policy says so. The protocol is [`biased`](super::biased)'s,
//! here by itself, outside a `pthread_rwlock_t`.
//!
//! ```text
//!   ┌───────┬─────────┬───────┬──────┐           the table, of all locks
//!   │ state │ writers │ owner │ bias │ ◄──────── slots show this lock's address, while its readers may use the table
//!   └───────┴─────────┴───────┴──────┘
//!     rwlock's three words      biased's
//! ```
//!
//! 1. `rwlock`'s rules hold for the first three words, and `biased`'s for the fourth.
//! 2. The policy is asked by threads that have the lock. It can't let anybody in.

use super::biased::Biased;
use super::rwlock::{Outcome, Parts, Waiter};
use super::{PREFER, ReadWrite, SLOT, SPIN, Single, Tuning};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Programmable, ReaderTable, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "programmed-rw",
    kind: Kind::ReadWrite,
    preset_of: None,
    idea: "rwlock, whose readers show themselves in a table instead, as bravo's, whenever a policy says so",
    source: "S. Park et al., Contextual Concurrency Control, HotOS 2021; D. Dice, A. Kogan, BRAVO, USENIX ATC 2019; over rwlock",
    order: "as rwlock",
    promise: Promise::Nothing,
    stands_by: false,
    space: "4 B more per lock than rwlock; one table of 32 KB for all locks",
    wakes: "as rwlock; a reader that leaves the table wakes the writers that wait for it",
    delay: "as rwlock; and a writer, by a look at the whole table if readers have used it",
    advice: "to let a policy switch readers between one word and a table while the program runs. Without a policy it is rwlock",
    options: &[SLOT, PREFER, SPIN],
};

/// The name that the catalogue uses.
pub type Lock<P> = ProgrammedRw<P>;

/// A readers-writer lock of four words.
pub struct ProgrammedRw<P: Programmable + ReaderTable> {
    state: P::Word,
    writers: P::Word,
    owner: P::Word,
    bias: P::Word,
    tuning: Tuning,
}

impl<P: Programmable + ReaderTable> ProgrammedRw<P> {
    fn biased(&self, me: u32) -> Biased<'_, P> {
        let Self { state, writers, owner, bias, tuning } = self;
        let parts = Parts { state, writers, owner, prefer: tuning.prefer as u32 };
        Biased { parts, bias, policy: tuning.policy, row: me as usize }
    }

    fn waiter(&self, me: u32, deadline: Option<P::Deadline>) -> Waiter<'static, P> {
        Waiter { me, spin_ns: self.tuning.spin_ns, deadline, counted: None }
    }
}

/// The thread's id is its pass: a release looks at its thread's row.
impl<P: Programmable + ReaderTable> ReadWrite<P> for ProgrammedRw<P> {
    type Pass = u32;
    const TIMED: bool = true;
    const LAST_MAY_END: bool = true;

    fn new(tuning: &Tuning) -> Self {
        let [state, writers, owner, bias] = [(); 4].map(|()| P::Word::new(0));
        Self { state, writers, owner, bias, tuning: *tuning }
    }

    fn nests(tuning: &Tuning) -> bool {
        Single::<P>::nests(tuning)
    }

    #[inline]
    fn read(&self, me: u32) -> u32 {
        self.biased(me).read(|_| self.waiter(me, None));
        me
    }

    #[inline]
    fn try_read(&self, me: u32) -> Option<u32> {
        (self.biased(me).try_read() == Outcome::Acquired).then_some(me)
    }

    fn read_until(&self, me: u32, deadline: P::Deadline) -> Option<u32> {
        let outcome = self.biased(me).read(|_| self.waiter(me, Some(deadline)));
        (outcome == Outcome::Acquired).then_some(me)
    }

    #[inline]
    fn leave_read(&self, me: u32) {
        self.biased(me).unlock(me);
    }

    #[inline]
    fn write(&self, me: u32) {
        self.biased(me).write(me, |_| self.waiter(me, None));
    }

    #[inline]
    fn try_write(&self, me: u32) -> bool {
        self.biased(me).try_write(me) == Outcome::Acquired
    }

    fn write_until(&self, me: u32, deadline: P::Deadline) -> bool {
        self.biased(me).write(me, |_| self.waiter(me, Some(deadline))) == Outcome::Acquired
    }

    #[inline]
    fn leave_write(&self) {
        let me = self.owner.load(Relaxed); // the caller's own id
        self.biased(me).unlock(me);
    }

    fn torn_wait(&self, writes: bool) -> bool {
        self.biased(0).parts.torn_wait(writes);
        true
    }
}
