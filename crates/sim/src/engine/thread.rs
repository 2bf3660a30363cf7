//! A simulated thread: what it waits for, and what the machine knows about it.

use crate::memory::Sim;
use crate::policies::Person;
use crate::units::Ps;
use corosensei::Yielder;
use lockwright_locks::posix::Held;

/// What a thread does first when it gets the core that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Finishes what it was doing, which takes this long.
    Finish(Ps),
    /// Looks again at the line that it spins on.
    Look(u32),
}

/// What a thread that isn't running waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its operation to end; on a core.
    Busy,
    /// Its request for a line to be served; on a core.
    Asking(u32),
    /// A change of the line; on a core.
    Spinning(u32),
    /// A bucket of the kernel's futexes; on a core.
    InKernel(usize),
    /// A core.
    Ready(Then),
    /// A wake; on no core.
    Sleeping(usize),
    /// It was woken, and is on its way to a core.
    Woken,
    /// Nothing: it has ended.
    Ended,
}

/// A simulated thread. What every operation needs comes first, in one or two lines of the real machine.
#[repr(C, align(64))]
pub(crate) struct Thread {
    pub(super) yielder: *const Yielder<(), ()>,
    pub(crate) state: State,
    pub(crate) cpu: u32,
    pub(crate) turn: u32,
    /// When its operation ends, in [`State::Busy`].
    pub(crate) busy_until: Ps,
    /// When its stores will be in its cache; an atomic read-modify-write waits for that.
    pub(crate) drained_at: Ps,
    /// Time lost to interrupts, which it still has to make up for.
    pub(crate) debt: Ps,
    /// When its last operation on memory took effect, before it took its time.
    pub(crate) acted: Ps,
    /// It loses its core at the end of its operation.
    pub(crate) evict: bool,
    /// It holds a kernel lock, or spins for one: it keeps its core.
    pub(crate) unpreempted: bool,
    pub(crate) timed_out: bool,
    /// The word that it looks at, or sleeps on.
    pub(crate) word: usize,
    /// Since when it has visibly waited for a lock.
    pub(crate) seen_waiting: Option<Ps>,
    /// Since when it has been in a front lock's line.
    pub(crate) joined: Option<Ps>,
    /// When its joining took effect. So these times are in the order of the line, as it was before any choice.
    pub(crate) in_line: Option<Ps>,
    /// Since when it has been the head of that line, and not napping.
    pub(crate) head: Option<Ps>,
    /// It took its lock while the line's head was not awake to take it.
    pub(crate) passed: bool,
    /// The number of the lock that it waits for.
    pub(crate) asks: Option<u32>,
    /// The reorder window with which it last asked for a lock, ns.
    pub(crate) window_ns: u32,
    /// What policies see of it.
    pub(crate) person: Person,
    /// Which critical section it asks for, as its workload numbers them.
    pub(crate) site: u32,
    /// The locks that it holds by nodes.
    pub(crate) held: Box<Held<Sim>>,
    /// It spends time as its workload says, outside of any lock's code. That ends by itself.
    pub(super) on_its_own: bool,
    /// How many locks it has or is next to get, of those whose kernel is told: see `Monitored`.
    pub(crate) critical: u32,
    /// It lost its CPU while that wasn't 0.
    pub(crate) counts_as_preempted: bool,
    /// It runs on this CPU only.
    pub(crate) pinned: Option<u32>,
    pub(crate) name: String,
}
