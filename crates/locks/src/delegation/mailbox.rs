//! Mailboxes: where clients leave their requests for whoever runs the sections.
//!
//! ```text
//!     Mailboxes ─► Rank ─► 7 desks and 7 mailboxes, each in a cache line of its own; and the row's answers, for `ffwd`
//!
//!     desk      taken: a client uses desk and mailbox. Only clients touch it
//!     mailbox   state, job. The client writes them, then the server
//! ```
//!
//! A client takes a desk for the time of one request, first the one with the number of its CPU: so that desk and mailbox
//! stay in that CPU's cache, and a server looks at about as many mailboxes as there are CPUs. If another thread of that CPU was
//! preempted with a request of its own, the next free desk does, and stays.
//!
//! 1. A row, desk or mailbox stays where it is from its first use until the mailboxes end.
//! 2. A desk and its mailbox belong to the client that took the desk, until it leaves.
//! 3. The server writes to a mailbox only while a request of its client waits in it.

use super::{Job, give, lay};
use core::cell::Cell;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Word};

/// Mailboxes in a row: what fits into its cache line.
pub(super) const ROW: usize = 7;
/// Rows at most. With more clients at once, some wait for a desk.
const ROWS: usize = 32;

/// A client's request.
pub(super) struct Mailbox<P: Platform> {
    /// What it says is the locks' own; 0 at first.
    pub(super) state: P::Word,
    /// Written by the client before `state`.
    pub(super) job: Cell<Job>,
    /// Which lock the section is for, if a server has several. As `job`.
    pub(super) lock: P::Ptr<()>,
}

/// A client's place.
struct Desk<P: Platform> {
    /// Does a client use it?
    taken: P::Word,
}

/// The answers of a row at once, one bit each.
pub(super) struct Answers<P: Platform> {
    /// Written by the server.
    pub(super) bits: P::Word,
}

/// Places, made when they are first needed.
pub(super) struct Rank<P: Platform> {
    desks: [P::Ptr<Desk<P>>; ROW],
    mailboxes: [P::Ptr<Mailbox<P>>; ROW],
    answers: P::Ptr<Answers<P>>,
}

/// A desk that the calling thread has taken.
pub(super) struct Taken<'a, P: Platform> {
    desk: &'a Desk<P>,
    pub(super) mailbox: &'a Mailbox<P>,
    row: &'a Rank<P>,
    /// Which bit of the row's answers is ours.
    pub(super) bit: u32,
}

impl<'a, P: Platform> Taken<'a, P> {
    /// Where the row's answers are, for locks that answer in batches.
    pub(super) fn answers(&self) -> &'a Answers<P> {
        made::<P, _>(&self.row.answers, || Answers { bits: P::Word::new(0) })
    }

    /// Leaves the desk: no request waits.
    pub(super) fn leave(self) {
        // ORDERING: Release [leave]: our use of the mailbox is over before the next client's. SURVIVES: explorations don't watch a
        // mailbox's plain fields. SURVIVES no-store: another desk is free.
        self.desk.taken.store(0, Release);
    }
}

/// All mailboxes of a lock or server.
pub(super) struct Mailboxes<P: Platform> {
    rows: [P::Ptr<Rank<P>>; ROWS],
    /// Which rows there are, one bit each: servers look at no others.
    there: P::Word,
}

/// What `at` points to; made, if nobody has made it yet.
fn made<P: Platform, T>(at: &P::Ptr<T>, make: impl FnOnce() -> T) -> &T {
    // ORDERING: Acquire, pairs with [make].
    let mut there = at.load(Acquire);
    if there.is_null() {
        let mine = lay::<P, T>(make());
        // ORDERING: Release [make]: it was made before it is found. Acquire on failure: as above.
        there = match at.compare_exchange(null_mut(), mine, Release, Acquire) {
            Ok(_) => mine,
            Err(other) => {
                // SAFETY: nobody has seen it.
                unsafe { give::<P, T>(mine) };
                other
            }
        };
    }
    // SAFETY: it stays (invariant 1), and others, too, only share it.
    unsafe { &*there }
}

/// Ends what `at` points to, if anything.
///
/// # Safety
/// Nobody uses it any more.
unsafe fn end<P: Platform, T>(at: &P::Ptr<T>) {
    // Relaxed: whoever ends it has synchronized with all clients and servers.
    let at = at.load(Relaxed);
    if !at.is_null() {
        // SAFETY: the caller's promise; [`made`] has laid it there.
        unsafe { give::<P, T>(at) };
    }
}

impl<P: Platform> Mailboxes<P> {
    pub(super) fn new() -> Self {
        Self { rows: core::array::from_fn(|_| P::Ptr::new(null_mut())), there: P::Word::new(0) }
    }

    /// Takes a desk.
    pub(super) fn take(&self) -> Taken<'_, P> {
        let home = P::place().cpu as usize;
        loop {
            for n in home..home + ROW * ROWS {
                let row = self.row(n / ROW % ROWS);
                let desk = made::<P, _>(&row.desks[n % ROW], || Desk { taken: P::Word::new(0) });
                // ORDERING: Acquire, pairs with [leave]: the last client's use of the mailbox is over.
                // SURVIVES: explorations don't watch a mailbox's plain fields.
                if desk.taken.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
                    continue;
                }
                let mailbox = made::<P, _>(&row.mailboxes[n % ROW], || Mailbox {
                    state: P::Word::new(0),
                    job: Cell::new(Job::NONE),
                    lock: P::Ptr::new(null_mut()),
                });
                return Taken { desk, mailbox, row, bit: 1 << (n % ROW) };
            }
            P::give_way();
            P::pause(0);
        }
    }

    fn row(&self, number: usize) -> &Rank<P> {
        let row = made::<P, _>(&self.rows[number], || Rank {
            desks: core::array::from_fn(|_| P::Ptr::new(null_mut())),
            mailboxes: core::array::from_fn(|_| P::Ptr::new(null_mut())),
            answers: P::Ptr::new(null_mut()),
        });
        // Relaxed, both: whoever looks finds the row by its pointer.
        if self.there.load(Relaxed) & 1 << number == 0 {
            self.there.fetch_or(1 << number, Relaxed);
        }
        row
    }

    /// Shows the rows' mailboxes that were made so far, and the rows' answers.
    pub(super) fn each_row(
        &self,
        mut look: impl FnMut(&[P::Ptr<Mailbox<P>>; ROW], &P::Ptr<Answers<P>>),
    ) {
        let mut there = self.there.load(Relaxed); // a hint: a row that is missed now is seen in the next round
        while there != 0 {
            let row = &self.rows[there.trailing_zeros() as usize];
            there &= there - 1;
            // ORDERING: Acquire, pairs with [make].
            // SURVIVES: explorations have one row, which a flat combiner has seen as a client.
            let row = row.load(Acquire);
            if !row.is_null() {
                // SAFETY: it stays (invariant 1).
                let Rank { mailboxes, answers, .. } = unsafe { &*row };
                look(mailboxes, answers);
            }
        }
    }

    /// Shows each mailbox that was made so far.
    pub(super) fn each(&self, mut look: impl FnMut(&Mailbox<P>)) {
        self.each_row(|mailboxes, _| {
            for mailbox in mailboxes {
                // ORDERING: Acquire, pairs with [make].
                let mailbox = mailbox.load(Acquire);
                if !mailbox.is_null() {
                    // SAFETY: it stays (invariant 1).
                    look(unsafe { &*mailbox });
                }
            }
        });
    }
}

// SAFETY: a client writes the job, then whoever runs it reads it: `state` is between them.
unsafe impl<P: Platform> Sync for Mailboxes<P> {}
// SAFETY: as for Sync; lines belong to no thread.
unsafe impl<P: Platform> Send for Mailboxes<P> {}

impl<P: Platform> Drop for Mailboxes<P> {
    fn drop(&mut self) {
        for at in &self.rows {
            let row = at.load(Relaxed); // as in `end`
            if row.is_null() {
                continue;
            }
            // SAFETY: nobody uses the mailboxes any more.
            unsafe {
                for n in 0..ROW {
                    end::<P, _>(&(*row).desks[n]);
                    end::<P, _>(&(*row).mailboxes[n]);
                }
                end::<P, _>(&(*row).answers);
                end::<P, _>(at);
            }
        }
    }
}
