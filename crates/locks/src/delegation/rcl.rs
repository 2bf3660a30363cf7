//! rcl: a server, which does nothing else, runs the sections; each client has a mailbox of one cache line.
//!
//! J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, *Remote Core Locking*, USENIX ATC 2012, section 3 (R01, R02). Our
//! deviation: a mailbox is a CPU's, not a client's; a client takes it for one request.
//!
//! ```text
//!     client                           mailbox                        server
//!     job; state = ASKED     ──────►   [ASKED, job]   ──────►    runs the job, on its own core, where the data is
//!     goes on                ◄──────   [IDLE,  job]   ◄──────    state = IDLE; on to the next mailbox
//! ```
//!
//! State: the mailboxes. ask: IDLE -> ASKED, then wait for IDLE. serve: ASKED -> run -> IDLE, mailbox by mailbox.
//!
//! 1. Only the server runs requests.
//! 2. A mailbox that is ASKED keeps its client, which waits, and its job.
//!
//! Facts: no order; each client is overtaken once by each other client in a round of the server; 256 B per lock, 256 B per CPU
//! that asks and 128 B per 7 of them, from a pool; nobody sleeps, and the server takes a CPU of its own.

use super::carried;
use super::mailbox::Mailboxes;
use super::waiting::{Patience, Spins, Yields};
use crate::entry::{Entry, Kind, Promise};
use core::marker::PhantomData;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "rcl",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "a server, which does nothing else, runs the sections; each client has a mailbox of one cache line",
    source: "J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, Remote Core Locking: Migrating Critical-Section Execution to Improve the Performance of Multithreaded Applications, USENIX ATC 2012, section 3",
    order: "none; in each round of the server by the mailboxes",
    promise: Promise::Nothing,
    stands_by: false,
    space: "256 B per lock, 256 B per CPU that asks and 128 B per 7 of them, from a pool; one CPU for the server",
    wakes: "none: clients and server spin and never sleep",
    delay: "each client, by the sections of the others; all, by a server that doesn't run",
    advice: "many cores, a lock that is busy all the time, and a core to spare for it",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Rcl<P, Spins>;
/// Its variant that yields.
pub type Yielding<P> = Rcl<P, Yields>;

const IDLE: u32 = 0;
const ASKED: u32 = 1;

/// A lock with a server, whose clients wait as `W` says.
pub struct Rcl<P: Platform, W> {
    mailboxes: Mailboxes<P>,
    waiting: PhantomData<fn(W)>,
}

impl<P: Platform, W: Patience<P>> Sections<P> for Rcl<P, W> {
    type Node = ();

    fn new() -> Self {
        Self { mailboxes: Mailboxes::new(), waiting: PhantomData }
    }

    unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
        let ask = |job| {
            let taken = self.mailboxes.take();
            taken.mailbox.job.set(job);
            // STATE: IDLE -> ASKED.
            // ORDERING: Release [ask]: the job is there before it is found.
            taken.mailbox.state.store(ASKED, Release);
            W::wait(&taken.mailbox.state, ASKED);
            taken.leave();
        };
        // SAFETY: `ask` returns after the server has run it, and answered [answer].
        unsafe { carried::<P, R>(section, ask) }
    }
}

impl<P: Platform, W: Patience<P>> Delegated<P> for Rcl<P, W> {
    const SERVERS: u32 = 1;

    fn serve(&self, stop: &P::Word) {
        // Relaxed: whoever stops us waits for our end before it ends the lock.
        while stop.load(Relaxed) == 0 {
            let mut ran = false;
            self.mailboxes.each(|mailbox| {
                // ORDERING: Acquire, pairs with [ask]: the job is there.
                if mailbox.state.load(Acquire) == ASKED {
                    // SAFETY: its client waits (invariant 2); it is answered once.
                    unsafe { mailbox.job.get().run() };
                    // STATE: ASKED -> IDLE.
                    // SAFETY: the client waits, or will look before it waits.
                    unsafe { W::answer(&raw const mailbox.state, IDLE) };
                    ran = true;
                }
            });
            if !ran {
                P::pause(0);
            }
        }
    }
}
