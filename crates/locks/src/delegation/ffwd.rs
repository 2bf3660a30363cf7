//! ffwd: a server runs the sections, and answers its clients in batches.
//!
//! S. Roghanchi, J. Eriksson, N. Basu, *ffwd: delegation is (much) faster than you think*, SOSP 2017, section 4. Our deviations:
//! a batch is seven clients, where the paper's is fifteen; and results lie on the clients' stacks, not beside the answers.
//!
//! ```text
//!     mailboxes of a row                       the row's answers
//!     [toggle, job] [toggle, job] ... × 7      one bit for each mailbox: equal to its toggle: answered
//!        clients write, the server reads          the server writes once a batch, seven clients read
//! ```
//!
//! State: (toggle, bit) of each mailbox. ask: (b, b) -> (!b, b), then wait for (!b, !b). serve: run, for each mailbox of a row
//! that asks; then flip the bits of all of them at once.
//!
//! 1. A toggle differs from its bit exactly while a request waits.
//! 2. Only the server writes the answers.
//!
//! Facts: no order; each client is overtaken once by each other client in a round of the server; 264 B per lock, 256 B per CPU
//! that asks and 256 B per 7 of them, from a pool; nobody sleeps, and the server takes a CPU of its own.

use super::carried;
use super::mailbox::Mailboxes;
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Ptr, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "ffwd",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "a server runs the sections, and answers its clients in batches",
    source: "S. Roghanchi, J. Eriksson, N. Basu, ffwd: delegation is (much) faster than you think, SOSP 2017, section 4",
    order: "none; in each round of the server by the mailboxes",
    promise: Promise::Nothing,
    stands_by: false,
    space: "264 B per lock, 256 B per CPU that asks, 256 B per 7 of them, from a pool; one CPU for the server",
    wakes: "none: clients and server spin and never sleep",
    delay: "each client, by the sections of the others; all, by a server that doesn't run",
    advice: "to compare with rcl",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Ffwd<P>;

/// A lock whose server answers in batches.
pub struct Ffwd<P: Platform> {
    mailboxes: Mailboxes<P>,
}

impl<P: Platform> Sections<P> for Ffwd<P> {
    type Node = ();

    fn new() -> Self {
        Self { mailboxes: Mailboxes::new() }
    }

    unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
        let ask = |job| {
            let taken = self.mailboxes.take();
            let (mailbox, answers, bit) = (taken.mailbox, taken.answers(), taken.bit);
            mailbox.job.set(job);
            // Relaxed: only clients at this desk write it, and we know what the last one wrote.
            let toggle = mailbox.state.load(Relaxed) ^ bit;
            // STATE: (b, b) -> (!b, b).
            // ORDERING: Release [ask]: the job is there before it is found.
            mailbox.state.store(toggle, Release);
            // ORDERING: Acquire, pairs with [answer].
            P::spin_until(&answers.bits, Acquire, |bits| bits & bit == toggle);
            taken.leave();
        };
        // SAFETY: `ask` returns after the server has run it, and answered [answer].
        unsafe { carried::<P, R>(section, ask) }
    }
}

impl<P: Platform> Delegated<P> for Ffwd<P> {
    const SERVERS: u32 = 1;

    fn serve(&self, stop: &P::Word) {
        // Relaxed: whoever stops us waits for our end before it ends the lock.
        while stop.load(Relaxed) == 0 {
            let mut ran = false;
            self.mailboxes.each_row(|mailboxes, answers| {
                // ORDERING: Acquire, pairs with [make].
                let answers = answers.load(Acquire);
                if answers.is_null() {
                    return;
                }
                // SAFETY: it stays as long as the mailboxes.
                let answers = unsafe { &*answers };
                // Relaxed: only we write it (invariant 2).
                let before = answers.bits.load(Relaxed);
                let mut bits = before;
                for (n, mailbox) in mailboxes.iter().enumerate() {
                    // ORDERING: Acquire, pairs with [make].
                    let mailbox = mailbox.load(Acquire);
                    if mailbox.is_null() {
                        continue;
                    }
                    // SAFETY: as above.
                    let mailbox = unsafe { &*mailbox };
                    let bit = 1 << n;
                    // ORDERING: Acquire, pairs with [ask]: the job is there.
                    if (mailbox.state.load(Acquire) ^ bits) & bit != 0 {
                        // SAFETY: its client waits (invariant 1); it is answered once.
                        unsafe { mailbox.job.get().run() };
                        bits ^= bit;
                    }
                }
                if bits != before {
                    // STATE: (!b, b) -> (!b, !b), for all that were run.
                    // ORDERING: Release [answer]: the sections, and their results, come before the clients go on.
                    answers.bits.store(bits, Release);
                    ran = true;
                }
            });
            if !ran {
                P::pause(0);
            }
        }
    }
}
