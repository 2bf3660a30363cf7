//! Another table of locks while the program runs: `lockwright switch` writes it to a [`Mailbox`], and the next thread that
//! has to wait for a mutex puts it in force. A program in which nobody waits doesn't need it.
//!
//! That thread is on the lock path: it allocates from the kernel, takes no lock, and writes errors back to the mailbox.
//! Threads that already wait go on under the old lock, and later ones get the new one: both agree on word 0
//! (`locks::posix`).

use crate::access::{self, Access};
use crate::config::{self, Bad};
use crate::fork::{self, When};
use crate::policy::{self, TABLES, Table};
use crate::{leave, thread};
use core::cell::Cell;
use core::ptr::{self, null_mut};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_native::futex::{self, Clock};
use lockwright_record::mailbox::{DONE, Mailbox, POSTED, REFUSED, STATE, TAKEN, TEXT};

/// This process's.
#[unsafe(no_mangle)]
#[used]
pub static lockwright_mailbox: Mailbox = Mailbox::new();

/// Some thread makes a table. The command has no say in this one.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The tables so far, and whether each can be put in force. Only the thread that has set BUSY looks here.
struct Known([Cell<Option<(&'static Table, bool)>>; TABLES]);
// SAFETY: as above.
unsafe impl Sync for Known {}
static KNOWN: Known = Known([const { Cell::new(None) }; TABLES]);

/// Tells the command what is in force. Called by the constructor, and by the thread that has set
/// BUSY.
pub(crate) fn tell(table: &'static Table) {
    let words = table.words();
    let mailbox = &lockwright_mailbox;
    mailbox.now_len.store(words.len() as u32, Relaxed); // the command looks again afterwards, here and below
    mailbox.places.store(table.order.bytes().as_ptr().cast_mut(), Relaxed);
    mailbox.now.store(words.as_ptr().cast_mut(), Relaxed);
}

/// Puts in force what has been posted. Called by a thread that has to wait.
#[inline(always)]
pub(crate) fn look() {
    // A hint: `take` makes sure.
    if lockwright_mailbox.state.load(Relaxed) & STATE == POSTED {
        take();
    }
}

#[cold]
#[inline(never)]
fn take() {
    // A child that we are not told of must not wait for a thread that it doesn't have.
    fork::tell_child(When::Seen, in_child);
    // ORDERING: Acquire, pairs with the Release in `be_idle`.
    let claim = || !BUSY.swap(true, Acquire);
    leave::undisturbed(claim, be_idle, || {
        thread::leaving_errno(take_alone);
        be_idle();
    });
}

/// The next one may.
fn be_idle() {
    // ORDERING: Release, pairs with the Acquire in `take`: what was made has been made.
    BUSY.store(false, Release);
}

/// In a forked child, which has one thread.
fn in_child() {
    if BUSY.swap(false, Relaxed) {
        lockwright_mailbox.state.fetch_and(!STATE, Relaxed); // EMPTY: the thread that was at it does not exist
        policy::choose_anew(); // the table may have been set, and nothing after it
    }
}

/// As [`take`], by the one thread that does.
fn take_alone() {
    let mailbox = &lockwright_mailbox;
    // ORDERING: Acquire, pairs with the command's write, by the kernel: the text was there before.
    let posted = mailbox.state.load(Acquire);
    if posted & STATE != POSTED {
        return;
    }
    let fresh = map();
    if let Some(fresh) = fresh {
        let len = (mailbox.len.load(Relaxed) as usize).min(TEXT);
        // SAFETY: zeroes that nobody else has. If the command changes the text meanwhile, the copy is discarded: the
        // state has changed.
        unsafe { config::write_words(fresh, &(&*mailbox.text.get())[..len]) };
    }
    let taken = posted - POSTED + TAKEN;
    // ORDERING: AcqRel: the copy was made before. The command, which sees TAKEN, keeps out.
    if mailbox.state.compare_exchange(posted, taken, AcqRel, Relaxed).is_err() {
        fresh.inspect(|fresh| unmap(*fresh));
        return;
    }
    let mut why = Refusal { text: [0; 256], len: 0 };
    let table = match fresh {
        Some(fresh) => table(fresh, &mut why),
        None => {
            why.because(&[b"it may ask for no memory (it has confined itself), or there is none"])
        }
    };
    let end = match table {
        Some(table) => {
            policy::publish(table);
            mailbox.since_ns.store(futex::now(Clock::Monotonic), Relaxed); // before the state
            tell(table);
            DONE
        }
        None => {
            // SAFETY: with TAKEN set the command keeps out.
            unsafe {
                let text: *mut u8 = mailbox.text.get().cast();
                text.copy_from_nonoverlapping(why.text.as_ptr(), why.len);
            }
            mailbox.len.store(why.len as u32, Relaxed); // before the state
            REFUSED
        }
    };
    // ORDERING: Release, for the command: what it reads then has been written. It may have timed out, and posted
    // something else.
    let _ = mailbox.state.compare_exchange(taken, posted - POSTED + end, Release, Relaxed);
}

/// Zeroes for a table; `None`: there is no memory, or a filter may kill for asking.
fn map() -> Option<*mut Table> {
    if access::now() == Access::None {
        return None;
    }
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping overlaps nothing.
    let memory = unsafe { libc::mmap(null_mut(), size_of::<Table>(), protection, flags, -1, 0) };
    (memory != libc::MAP_FAILED).then_some(memory.cast())
}

/// Gives it back.
fn unmap(fresh: *mut Table) {
    // SAFETY: our own mapping, which nobody has seen.
    unsafe { libc::munmap(fresh.cast(), size_of::<Table>()) };
}

/// Why a table is not put in force.
struct Refusal {
    text: [u8; 256],
    len: usize,
}

impl Refusal {
    /// Says only this: there is no table.
    fn because<T>(&mut self, pieces: &[&[u8]]) -> Option<T> {
        self.len = 0;
        for byte in pieces.iter().copied().flatten() {
            if let Some(slot) = self.text.get_mut(self.len) {
                *slot = *byte;
                self.len += 1;
            }
        }
        None
    }
}

/// The table of the words in `fresh`: that memory, or one of those so far.
fn table(fresh: *mut Table, why: &mut Refusal) -> Option<&'static Table> {
    let known = || KNOWN.0.iter().map_while(Cell::get);
    if known().next().is_none() {
        KNOWN.0[0].set(policy::current().map(|first| (first, true)));
    }
    let old = {
        // SAFETY: nobody else has it, and nobody writes before this ends.
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
    // SAFETY: zeroes but for the words, that nobody else has; by BUSY no other thread makes a table.
    let table =
        unsafe { config::fill(fresh, |bad| why.because(&bad.pieces()).unwrap_or_default()) };
    // Kept even if refused: so the same is not tried again.
    let is_good = why.len == 0;
    slot.set(Some((table, is_good)));
    is_good.then_some(table)
}

/// Can a table in words be put in force?
fn is_legal(words: &[u8], why: &mut Refusal) -> bool {
    let known = || KNOWN.0.iter().map_while(Cell::get);
    let mut refuse = |bad: Bad<'_>| why.because::<()>(&bad.pieces()).is_some();
    if let Err(bad) = config::check(words) {
        return refuse(bad);
    }
    // A mutex's 8 bytes are one textbook lock forever, and mutexes may come from any place to any other.
    for new in config::textbooks(words) {
        let so_far = known().flat_map(|(table, _)| config::textbooks(table.words()));
        if let Some(old) = so_far.chain(config::textbooks(words)).find(|old| !ptr::eq(*old, new)) {
            return refuse(Bad::Textbook(new.id.as_bytes(), old.id.as_bytes()));
        }
    }
    true
}
