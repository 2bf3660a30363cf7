//! Another table of locks while the program runs. `lockwright switch` writes it to a [`Mailbox`], and the next thread that
//! has to wait for a mutex puts it in force. A program in which nobody waits doesn't need it.
//!
//! Threads that already wait go on under the old lock, and later ones use the new one: both agree on word 0
//! (`locks::posix`).
//!
//! A table may come on lease. Once the lease is over, the next thread that has to wait puts the last table in force that came for good.

use crate::config::{self, Bad};
use crate::fork::{self, When};
use crate::leave::Turn;
use crate::policy::{self, TABLES, Table};
use crate::posts::{self, LATE, NO_MEMORY, Refusal, lockwright_mailbox};
use crate::programs;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release};
use lockwright_contract::mailbox::{DROPS, ON_LEASE, TABLE, TEXT};
use lockwright_native::futex::{self, Clock};

/// Some thread is making a table. Unlike the mailbox's state, the command doesn't write this.
static BUSY: Turn = Turn::new();

/// The tables so far, and whether each can be put in force. Only the thread whose turn BUSY is looks here.
struct Known([Cell<Option<(&'static Table, bool)>>; TABLES]);
// SAFETY: as above.
unsafe impl Sync for Known {}
static KNOWN: Known = Known([const { Cell::new(None) }; TABLES]);

/// If the table in force is on lease: the last one that came for good. Only the thread whose turn BUSY is looks here.
struct Back(Cell<Option<&'static Table>>);
// SAFETY: as above.
unsafe impl Sync for Back {}
static BACK: Back = Back(Cell::new(None));

/// Tells the command what is in force. Called by the constructor, and by the thread whose turn BUSY is.
pub(crate) fn tell(table: &'static Table) {
    let words = table.words();
    let mailbox = &lockwright_mailbox;
    mailbox.now_len.store(words.len() as u32, Relaxed); // the command looks again afterwards, here and below
    mailbox.places.store(table.order.bytes().as_ptr().cast_mut(), Relaxed);
    mailbox.now.store(words.as_ptr().cast_mut(), Relaxed);
}

/// Puts a posted table in force. Called by a thread that has to wait.
#[cold]
#[inline(never)]
pub(crate) fn take() {
    // A child must not wait for a thread that it doesn't have, even if no fork handler tells us about the fork.
    fork::tell_child(When::Seen, in_child);
    BUSY.take(give_up, take_alone);
}

/// The thread that was making a table doesn't go on. It may have put it in force: then the next one does that again.
fn give_up() {
    lockwright_mailbox.posts.put_back();
    programs::choose_for_readers();
}

/// In a forked child, which has one thread.
fn in_child() {
    if BUSY.is_taken() {
        BUSY.end();
        lockwright_mailbox.posts.forget(); // the thread that was making it does not exist
        // That thread may have put the table in force, and done nothing after that.
        policy::choose_anew();
        programs::choose_for_readers();
    }
}

/// As [`take`], for the one thread whose turn BUSY is.
fn take_alone() {
    take_posted();
    if posts::has_run_out(TABLE)
        && let Some(back) = BACK.0.get()
    {
        put_in_force(back);
        is_for_good();
    }
}

/// The table is what this says. The one before may be needed again.
fn put_in_force(table: &'static Table) {
    policy::publish(table);
    programs::choose_for_readers();
    lockwright_mailbox.since_ns.store(futex::now(Clock::Monotonic), Relaxed); // before it is done
    tell(table);
}

/// The table that comes now is on lease.
fn comes_on_lease() {
    let mailbox = &lockwright_mailbox;
    let Some(now) = policy::current() else { return };
    if mailbox.leased.load(Relaxed) & TABLE != 0 {
        return; // by BUSY nobody else writes it; the one in force is on lease itself
    }
    BACK.0.set(Some(now));
    let words = now.words();
    mailbox.back_len.store(words.len() as u32, Relaxed); // before the bit, here and below
    mailbox.back_places.store(now.order.bytes().as_ptr().cast_mut(), Relaxed);
    mailbox.back.store(words.as_ptr().cast_mut(), Relaxed);
    // ORDERING: Release, for the command: it reads what will be back.
    mailbox.leased.fetch_or(TABLE, Release);
}

/// The table in force stays.
fn is_for_good() {
    // ORDERING: Release, for the command: it reads which table that is.
    lockwright_mailbox.leased.fetch_and(!TABLE, Release);
}

fn take_posted() {
    let mailbox = &lockwright_mailbox;
    let Some(posted) = mailbox.posts.posted() else { return };
    let terms = mailbox.terms.load(Relaxed); // counts only if the post is taken below
    let fresh = posts::map(size_of::<Table>()).map(<*mut u8>::cast);
    if let Some(fresh) = fresh {
        let len = (mailbox.len.load(Relaxed) as usize).min(TEXT);
        // SAFETY: zeroes to which nobody else has a pointer. If the command changes the text meanwhile, the post isn't taken below,
        // and the copy is discarded.
        unsafe { config::write_words(fresh, &(&*mailbox.text.get())[..len]) };
    }
    let Some(taken) = mailbox.posts.take(posted) else {
        fresh.inspect(|fresh| unmap(*fresh));
        return;
    };
    let mut why = Refusal::new();
    let on_lease = terms & ON_LEASE != 0;
    let table = match fresh {
        Some(fresh) if on_lease && posts::is_over() => {
            unmap(fresh);
            why.because(&[LATE])
        }
        Some(fresh) => table(fresh, &mut why),
        None => why.because(&[NO_MEMORY]),
    };
    match table {
        Some(table) => {
            if on_lease {
                comes_on_lease();
            }
            put_in_force(table);
            if !on_lease {
                is_for_good();
            }
            programs::lease(terms >> DROPS);
            mailbox.posts.done(taken);
        }
        None => mailbox.posts.refused(taken, why.text()),
    }
}

/// Gives it back.
fn unmap(fresh: *mut Table) {
    // SAFETY: our own mapping, which nobody has seen.
    unsafe { posts::unmap(fresh.cast(), size_of::<Table>()) };
}

/// The table for the text in `fresh`: in that memory, or an earlier table.
fn table(fresh: *mut Table, why: &mut Refusal) -> Option<&'static Table> {
    let known = || KNOWN.0.iter().map_while(Cell::get);
    if known().next().is_none() {
        KNOWN.0[0].set(policy::current().map(|first| (first, true)));
    }
    let old = {
        // SAFETY: nobody else has a pointer to it, and nobody writes to it before this block ends.
        let words = unsafe { &(&(*fresh).text)[..(*fresh).len] };
        let old = known().find(|(table, is_good)| *is_good && table.words() == words);
        old.map_or_else(|| is_legal(words, why).then_some(None), |(table, _)| Some(Some(table)))
    };
    let slot = KNOWN.0.iter().find(|slot| slot.get().is_none());
    let (Some(None), Some(slot)) = (old, slot) else {
        unmap(fresh);
        return old?.or_else(|| {
            why.because(&[b"it has had 512 different settings, and can go back to those only"])
        });
    };
    // SAFETY: zeroes except for the text, to which nobody else has a pointer; by BUSY no other thread makes a table.
    let table =
        unsafe { config::fill(fresh, |bad| why.because(&bad.pieces()).unwrap_or_default()) };
    // Kept even if refused, so that the same table is not tried again.
    let is_good = why.text().is_empty();
    slot.set(Some((table, is_good)));
    is_good.then_some(table)
}

/// Can a table with this text be put in force?
fn is_legal(words: &[u8], why: &mut Refusal) -> bool {
    let known = || KNOWN.0.iter().map_while(Cell::get);
    let mut refuse = |bad: Bad<'_>| why.because::<()>(&bad.pieces()).is_some();
    if let Err(bad) = config::check(words) {
        return refuse(bad);
    }
    // A mutex's 8 bytes are one textbook lock forever, and mutexes may move from any place to any other.
    for new in config::textbooks(words) {
        let so_far = known().flat_map(|(table, _)| config::textbooks(table.words()));
        if let Some(old) = so_far.chain(config::textbooks(words)).find(|old| !ptr::eq(*old, new)) {
            return refuse(Bad::Textbook(new.id.as_bytes(), old.id.as_bytes()));
        }
    }
    true
}

#[cfg(test)]
mod tests;
