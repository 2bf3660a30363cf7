//! rcl: a server, which does nothing else, runs the sections; each CPU has a mailbox of one cache line.
//!
//! J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, *Remote Core Locking*, USENIX ATC 2012, section 3 (R01, R02). The server and its
//! mailboxes are in server.rs; the lock is a gate, and says which server has it.
//!
//! ```text
//!     lock ─► server ─► mailboxes           several locks may have one server (R03: false serialization, if they wait for each other);
//!     lock ─┘                               a lock may move to another one while it runs
//! ```
//!
//! State: busy. enter: FREE -> BUSY. leave: BUSY -> FREE.
//!
//! 1. Whoever runs a section has made the lock BUSY. A server stays inside
//!    while it has requests for the lock, up to 32: an exchange for each section would wait until the last answer has left its core.
//!
//! Facts: no order; the server goes round the mailboxes; 1.6 KiB per lock and 256 B per CPU that asks,
//! and 128 B per 7 of them, from a pool; nobody sleeps, and the server takes a CPU of its own. `rcl-pool`: a second thread takes over
//! while the first is blocked in a section.

use super::server::SectionServer;
use super::waiting::{Patience, Spins, Yields};
use super::{Gate, carried};
use crate::entry::{Entry, Kind, Promise};
use core::marker::PhantomData;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Ptr, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "rcl",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "a server, which does nothing else, runs the sections; each CPU has a mailbox of one cache line",
    source: "J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, Remote Core Locking: Migrating Critical-Section Execution to Improve the Performance of Multithreaded Applications, USENIX ATC 2012, section 3",
    order: "none; the server goes round the mailboxes",
    promise: Promise::Nothing,
    stands_by: false,
    space: "1.6 KiB per lock, 256 B per CPU that asks and 128 B per 7 of them, from a pool; one CPU for the server",
    wakes: "none: clients and server spin and never sleep",
    delay: "each client, by the sections of the others; all, by a server that doesn't run: for 40 µs, or 1 ms if it moves but doesn't answer; then they run their own",
    advice: "many cores, a lock that is busy all the time, and a core to spare for it",
    options: &[],
};

/// As [`ENTRY`], with two threads a server.
pub const POOL_ENTRY: Entry = Entry {
    id: "rcl-pool",
    preset_of: Some(ENTRY.id),
    idea: "rcl, with a second thread that takes over while the first is blocked in a section",
    wakes: "clients and the active thread spin and never sleep; the second thread looks every ms",
    advice: "several locks on one server, and sections that block",
    ..ENTRY
};

/// The name that the catalogue uses.
pub type Lock<P> = Rcl<P, Spins>;
/// Its variant that yields.
pub type Yielding<P> = Rcl<P, Yields>;
/// Its variant with two threads.
pub type Pool<P> = Rcl<P, Spins, 2>;

/// `busy`: no section runs.
const FREE: u32 = 0;
/// One runs.
const BUSY: u32 = 1;

/// A lock with a server, whose clients wait as `W` says; `POOL` threads serve it.
pub struct Rcl<P: Platform, W, const POOL: u32 = 1> {
    /// Whoever runs a section has made it BUSY.
    busy: P::Word,
    /// The server; that of another lock, after [`Delegated::share`].
    server: P::Ptr<SectionServer<P, Self>>,
    own: SectionServer<P, Self>,
    waiting: PhantomData<fn(W)>,
}

// SAFETY: all that changes is in words; the server outlives those who ask.
unsafe impl<P: Platform, W, const POOL: u32> Sync for Rcl<P, W, POOL> {}
// SAFETY: as for Sync; lines belong to no thread.
unsafe impl<P: Platform, W, const POOL: u32> Send for Rcl<P, W, POOL> {}

impl<P: Platform, W: Patience<P>, const POOL: u32> Gate for Rcl<P, W, POOL> {
    type Key = ();

    fn enter(&self, (): &mut ()) {
        while !self.try_enter(&mut ()) {
            P::spin_until(&self.busy, Relaxed, |busy| busy == FREE);
        }
    }

    fn try_enter(&self, (): &mut ()) -> bool {
        // STATE: FREE -> BUSY.
        // ORDERING: Acquire, pairs with [leave].
        // SURVIVES: in explorations of rcl-yield nobody goes home, since clients yield until the server answers; rcl's find it.
        self.busy.load(Relaxed) == FREE
            && self.busy.compare_exchange(FREE, BUSY, Acquire, Relaxed).is_ok()
    }

    fn leave(&self, (): &mut (), _: u32) {
        // STATE: BUSY -> FREE.
        // ORDERING: Release [leave]: the section comes before the next one.
        // SURVIVES: as for its partner, in `try_enter`.
        self.busy.store(FREE, Release);
    }

    fn move_to(&self, server: *const ()) {
        // ORDERING: Release [share]: the server was made before.
        self.server.store(server.cast::<SectionServer<P, Self>>().cast_mut(), Release);
    }
}

impl<P: Platform, W: Patience<P>, const POOL: u32> Rcl<P, W, POOL> {
    fn server(&self) -> &SectionServer<P, Self> {
        // ORDERING: Acquire, pairs with [share].
        // SURVIVES: in explorations a lock keeps its server.
        // SAFETY: its own, or that of a lock that stays as long.
        unsafe { self.server.load(Acquire).as_ref() }.unwrap_or(&self.own)
    }
}

impl<P: Platform, W: Patience<P>, const POOL: u32> Sections<P> for Rcl<P, W, POOL> {
    type Node = ();

    fn new() -> Self {
        Self {
            busy: P::Word::new(FREE),
            server: P::Ptr::new(null_mut()),
            own: SectionServer::expected(),
            waiting: PhantomData,
        }
    }

    unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
        // SAFETY: `ask` returns after the job has run, and was answered [answer], or has run here.
        unsafe { carried::<P, R>(section, |job| self.server().ask::<W>(self, job)) }
    }
}

impl<P: Platform, W: Patience<P>, const POOL: u32> Delegated<P> for Rcl<P, W, POOL> {
    const SERVERS: u32 = 1;
    const POOL: u32 = POOL;

    fn serve(&self, stop: &P::Word) {
        self.own.serve::<W>(stop, false);
    }

    unsafe fn share(&self, with: &Self) {
        // Its own server may take over some of the other's locks.
        // SAFETY: they all stay as long as any of these locks.
        unsafe { with.own.beside(&raw const self.own) };
        // ORDERING: Release [share]: the server was made before.
        self.server.store(core::ptr::from_ref(with.server()).cast_mut(), Release);
    }
}
