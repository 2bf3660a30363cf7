//! Locks that let readers in together.
//!
//! ```text
//! rwlock       one word for readers, one word for waiting writers: pthread_rwlock_t, all its preferences, and one more
//! phase_fair   tickets for writers, two counters for readers: read and write phases take turns
//! bravo        over any of them: readers show themselves in a table instead, until a writer comes
//! programmed_rw  rwlock, whose readers use that table, too, while a policy says so; biased.rs has its protocol
//! per_cpu      over any of them: readers count themselves on their CPU's cache line, writers look at all lines
//! ```
//!
//! [`ReadWrite`] is what they have in common. `catalog.rs` lists them separately from the locks of mutexes.
pub mod biased;
pub mod bravo;
pub mod per_cpu;
pub mod phase_fair;
pub mod programmed_rw;
pub mod rwlock;
mod waiting;

pub use rwlock::Single;

use crate::entry::OptionSpec;
use lockwright_platform::Platform;

/// Who goes first when both wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// Readers: they never wait for a waiting writer. A thread may read-lock again.
    Readers = 0,
    /// A writer that leaves prefers writers; readers still join readers. A thread may read-lock again.
    Writers,
    /// Readers wait for waiting writers. A thread that read-locks again may wait forever.
    WritersStrictly,
    /// Phases take turns: a reader that finds a waiting writer lets it go first, but waits for that no longer than
    /// [`PATIENCE_NS`](rwlock::PATIENCE_NS); a writer that leaves lets in the readers that came meanwhile. A thread may read-lock again, which
    /// then may take as long as that. Not one of glibc's.
    Patient,
}

impl Prefer {
    /// Their names, by their numbers: what options and variables may say instead.
    pub const NAMES: [&'static str; 4] = ["readers", "writers", "strict", "patient"];

    /// By glibc's number, or 3 for [`Patient`](Self::Patient).
    #[inline]
    pub fn of(number: u32) -> Self {
        match number {
            0 => Self::Readers,
            2 => Self::WritersStrictly,
            3 => Self::Patient,
            _ => Self::Writers,
        }
    }
}

/// A readers-writer lock without data: any number of readers, or one writer.
///
/// `me` is the calling thread's id: not 0, and no other thread's.
pub trait ReadWrite<P: Platform>: Sized + Send + Sync {
    /// What an acquisition for reading remembers until it is released.
    type Pass: Copy;
    /// Can threads wait for it with a deadline?
    const TIMED: bool = false;
    /// May the last thread that needs the lock destroy it as soon as its own release has returned, although other threads' releases
    /// may not have returned yet? POSIX programs do that.
    const LAST_MAY_END: bool = false;

    /// An unlocked lock.
    fn new(tuning: &Tuning) -> Self;

    /// May a reader lock for reading again, whoever waits? If not, it may wait for a writer that waits for it.
    fn nests(tuning: &Tuning) -> bool;

    /// Acquires for reading.
    fn read(&self, me: u32) -> Self::Pass;

    /// Acquires for reading if that needs no waiting.
    fn try_read(&self, me: u32) -> Option<Self::Pass>;

    /// Acquires for reading, or gives up at `deadline`. Called only if [`TIMED`](Self::TIMED).
    fn read_until(&self, me: u32, deadline: P::Deadline) -> Option<Self::Pass> {
        let _ = deadline;
        self.try_read(me)
    }

    /// Ends the acquisition for reading that returned `pass`.
    fn leave_read(&self, pass: Self::Pass);

    /// Acquires for writing.
    fn write(&self, me: u32);

    /// Acquires for writing if that needs no waiting; `true` if the lock is now held.
    fn try_write(&self, me: u32) -> bool;

    /// Acquires for writing, or gives up at `deadline`; `true` if the lock is now held. Called only if
    /// [`TIMED`](Self::TIMED).
    fn write_until(&self, me: u32, deadline: P::Deadline) -> bool {
        let _ = deadline;
        self.try_write(me)
    }

    /// Releases what is held for writing.
    fn leave_write(&self);

    /// Asks for the lock, and is torn out of the wait as soon as it is counted. `false`: waits for this lock can't be torn,
    /// and nothing was done. For explorations.
    fn torn_wait(&self, writes: bool) -> bool {
        let _ = writes;
        false
    }

    /// From now on, whoever asks for the lock goes by this preference; those who have it, or wait, by the one they had. `false`: it can't.
    fn switch(&self, prefer: Prefer) -> bool {
        let _ = prefer;
        false
    }
}

/// What the locks' behaviour depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Who goes first when readers and writers wait.
    pub prefer: Prefer,
    /// How long a waiter stays awake before it sleeps, ns.
    pub spin_ns: u32,
    /// After a revocation, readers go without bias for this many times its length.
    pub inhibit: u32,
    /// The slot of the policy that decides about the bias; 0: none.
    pub policy: u32,
}

/// The option `prefer`.
pub const PREFER: OptionSpec = OptionSpec {
    key: "prefer",
    meaning: "who goes first if both wait: 0 readers, 1 writers (but readers may join readers), 2 writers, strictly, 3 by turns: readers \
              let a waiting writer go first, for 10 ms at most; or readers, writers, strict, patient",
    min: 0,
    max: 3,
    default: Some(Prefer::Readers as u32),
};

/// The option `spin`.
pub const SPIN: OptionSpec = OptionSpec {
    key: "spin",
    meaning: "ns that a waiter spins before it sleeps",
    min: 0,
    max: 10_000_000,
    default: Some(crate::front::tuning::SPIN_NS),
};

/// The option `inhibit`.
pub const INHIBIT: OptionSpec = OptionSpec {
    key: "inhibit",
    meaning: "after a revocation, the bias stays off for this many times as long as the revocation took",
    min: 0,
    max: 1000,
    default: Some(9),
};

/// The option `slot`.
pub const SLOT: OptionSpec = OptionSpec {
    key: "slot",
    meaning: "the policy that decides whether readers use the table, by its number; 0: none",
    min: 0,
    max: 15,
    default: Some(0),
};

impl Default for Tuning {
    fn default() -> Self {
        let default = |option: OptionSpec| option.default.unwrap_or(option.min);
        Self {
            prefer: Prefer::Readers,
            spin_ns: default(SPIN),
            inhibit: default(INHIBIT),
            policy: 0,
        }
    }
}

impl Tuning {
    /// Sets the option called `key`; `false` if no such option exists.
    pub fn set(&mut self, key: &str, value: u32) -> bool {
        match key {
            "prefer" => self.prefer = Prefer::of(value),
            "spin" => self.spin_ns = value,
            "inhibit" => self.inhibit = value,
            "slot" => self.policy = value,
            _ => return false,
        }
        true
    }
}
