//! A server: threads that run the sections of any number of locks, on one core.
//!
//! J.-P. Lozi, F. David, G. Thomas, J. Lawall, G. Muller, *Remote Core Locking*, USENIX ATC 2012, sections 3.1 to 3.3 (R01 to R04).
//!
//! ```text
//!     client                           mailbox                            server: one active thread, others stand by
//!     lock, job; state = ASKED  ───►   [ASKED 7, lock, job]   ───►   enters the lock's gate; runs the job, where the data is
//!     goes on                   ◄───   [IDLE 7]               ◄───   state = IDLE; next mailbox; leaves the gate after 32 at most
//! ```
//!
//! Our deviations. A mailbox is a CPU's, not a client's; a client takes it for one request. The paper's server needs real-time
//! priorities, and a client waits for as long as it takes. Here each lock has a gate, itself a lock, and whoever runs a section
//! is inside. So nothing depends on the server:
//! - *Several servers, and moves* (R03). A lock may change its server at any time, while requests wait at both.
//! - *A section that blocks* (R04) blocks only its own lock. A thread of the server that stands by looks each ms whether the active one is
//!   still in the same section; then it takes over. The paper's manager and backup thread are that look.
//! - *A server that doesn't move* for 20 µs: it is preempted, or in a long section. A client whose request waits goes home: it enters the
//!   gate itself, and runs its own section. Until the server is back, so do the others, at once. A server that sleeps is known at once.
//!
//! State: of a mailbox. ask: IDLE n -> ASKED n + 1. serve, or go home, inside the gate: ASKED n -> IDLE n.
//!
//! 1. A request leaves ASKED n only inside of its lock's gate. So it runs once, whoever meets there: a server, another one, or its client.
//!    A section that waits for a condition lets go of the gate. Whoever comes then finds that it has begun, and answers nothing.
//! 2. While a mailbox is ASKED, its client waits, and its lock and job stay.
//! 3. A thread of a server shows a lock before it touches that lock, and looks at the request again in between; it shows the lock until
//!    it has left the gate. So a lock that no thread shows, and for which nobody asks, is nobody's.

mod watch;

use super::mailbox::{Mailbox, Mailboxes};
use super::waiting::Patience;
use super::{Gate, Job, give, lay};
use core::mem;
use core::ptr::{self, null_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Word};

/// Threads of one server at most.
pub const POOL: usize = 8;

/// The lowest bit of a mailbox's state; the others count requests. Nobody asks.
const IDLE: u32 = 0;
/// A request waits.
const ASKED: u32 = 1;
/// This bit.
const WHAT: u32 = 1;

/// `awake`: the server looks at its mailboxes, or is in a section.
const AWAKE: u32 = 1;
/// It sleeps, since nobody asked.
const ASLEEP: u32 = 0;
/// It has no threads.
const GONE: u32 = 2;
/// It isn't running, or is in a long section: a client has waited in vain, and gone home. It says AWAKE when it looks again.
const AWAY: u32 = 3;

/// How long a client waits before it looks whether the server moves, ns.
const PATIENCE_NS: u32 = 20_000;
/// How many times it looks before it goes home anyway.
const LOOKS: u32 = 50;
/// How long a client sleeps at a time whose section waits for a condition, ns.
const NAP_NS: u32 = 1_000_000;
/// After how long without a request a server sleeps, ns.
const AWAKE_NS: u64 = 1_000_000;
/// For how long at a time, ns: whoever ends a server wakes it.
const SLEEP_NS: u32 = 4_000_000_000;
/// How many sections of one lock a server runs before it leaves the lock's gate: whoever waits there gets it.
const BATCH: u32 = 32;
/// How many rounds without a request between two looks at the clock.
const ROUNDS: u32 = 64;

/// What a thread of a server shows.
struct Shown<P: Platform, L> {
    /// Does a thread use it?
    taken: P::Word,
    /// The lock that it may touch; null: none.
    shows: P::Ptr<L>,
}

/// What the threads of a server share. The active one writes it all the time.
struct Role<P: Platform> {
    /// The active thread's slot + 1; 0: none.
    active: P::Word,
    /// Changes before and after each section: odd while one runs.
    beat: P::Word,
}

/// As [`Role`], in a line of its own: clients read it.
struct Rest<P: Platform> {
    /// AWAKE. ASLEEP, AWAY, GONE: clients run their own sections, and wake it if it sleeps.
    awake: P::Word,
    /// How many threads there are.
    threads: P::Word,
    /// Is there a thread that looks after the active one?
    watched: P::Word,
    /// In how many of the last [`SAMPLES`] looks the active thread was busy.
    load: P::Word,
    /// A server that has more time. The active thread moves the lock `moves` there when it is next inside of its gate.
    to: P::Ptr<()>,
    /// Null: none.
    moves: P::Ptr<()>,
}

/// Where a thread of a server is.
struct Inside<L: Gate> {
    /// The lock whose gate it is in; null: none.
    lock: *const L,
    key: L::Key,
    /// Sections since it entered.
    ran: u32,
    /// Whose turn is next, so that no lock has to wait for ever; null: anybody's.
    next: *mut L,
}

impl<L: Gate> Inside<L> {
    fn leave(&mut self) {
        // SAFETY: the lock stays while it is shown, and its thread shows it (invariant 3).
        if let Some(lock) = unsafe { self.lock.as_ref() } {
            lock.leave(&mut self.key, self.ran);
        }
        (self.lock, self.ran) = (ptr::null(), 0);
    }
}

/// A server of locks of type `L`. It may have up to [`POOL`] threads.
pub struct SectionServer<P: Platform, L> {
    mailboxes: Mailboxes<P>,
    slots: [P::Ptr<Shown<P, L>>; POOL],
    role: *mut Role<P>,
    rest: *mut Rest<P>,
    /// Another server to which locks may move; null: none.
    next: P::Ptr<Self>,
}

// SAFETY: all that changes is in words; it only shares the locks.
unsafe impl<P: Platform, L: Sync> Sync for SectionServer<P, L> {}
// SAFETY: as for Sync; lines belong to no thread.
unsafe impl<P: Platform, L: Sync> Send for SectionServer<P, L> {}

impl<P: Platform, L: Gate> Default for SectionServer<P, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, L: Gate> SectionServer<P, L> {
    /// A server without threads. Clients run their own sections.
    pub fn new() -> Self {
        let word = P::Word::new;
        let slot = |_| Shown { taken: P::Word::new(0), shows: P::Ptr::new(null_mut()) };
        Self {
            mailboxes: Mailboxes::new(),
            slots: core::array::from_fn(|n| P::Ptr::new(lay::<P, _>(slot(n)))),
            role: lay::<P, _>(Role { active: word(0), beat: word(0) }),
            rest: lay::<P, _>(Rest {
                awake: word(GONE),
                threads: word(0),
                watched: word(0),
                load: word(0),
                to: P::Ptr::new(null_mut()),
                moves: P::Ptr::new(null_mut()),
            }),
            next: P::Ptr::new(null_mut()),
        }
    }

    /// As [`new`](Self::new), whose threads are about to start: clients wait for them.
    pub fn expected() -> Self {
        let new = Self::new();
        new.be_awake();
        new
    }

    fn role(&self) -> &Role<P> {
        // SAFETY: it stays as long as the server.
        unsafe { &*self.role }
    }

    fn rest(&self) -> &Rest<P> {
        // SAFETY: it stays as long as the server, as does the role.
        unsafe { &*self.rest }
    }

    fn slot(&self, number: usize) -> &Shown<P, L> {
        // SAFETY: it stays as long as the server. Relaxed: it never changes.
        unsafe { &*self.slots[number].load(Relaxed) }
    }

    /// Has the job run inside of `lock`, by the server, or by the caller if the server doesn't.
    pub(crate) fn ask<W: Patience<P>>(&self, lock: &L, job: Job) {
        if self.sleeps() {
            let mut key = L::Key::default();
            lock.enter(&mut key);
            // SAFETY: nobody else has seen it.
            unsafe { job.run() };
            return lock.leave(&mut key, 1);
        }
        let taken = self.mailboxes.take();
        let mailbox = taken.mailbox;
        mailbox.job.set(job);
        // Relaxed: [ask] publishes it.
        mailbox.lock.store(ptr::from_ref(lock).cast_mut().cast(), Relaxed);
        // Relaxed: ours, while the desk is. The count tells this request from earlier ones.
        let asked = mailbox.state.load(Relaxed).wrapping_add(2) | ASKED;
        // STATE: IDLE n -> ASKED n + 1.
        // ORDERING: Release [ask]: lock and job are there before they are found.
        mailbox.state.store(asked, Release);
        if W::wait_for(&mailbox.state, asked, PATIENCE_NS) == asked {
            self.wait_or_go_home::<W>(lock, mailbox, asked, job);
        }
        taken.leave();
    }

    /// Is the server asleep? Wakes it: more will come.
    fn sleeps(&self) -> bool {
        let awake = &self.rest().awake;
        // Relaxed, all: it only says who runs the section.
        if awake.load(Relaxed) == AWAKE {
            return false;
        }
        if awake.compare_exchange(ASLEEP, AWAKE, Relaxed, Relaxed).is_ok() {
            P::unpark(awake, u32::MAX); // the thread that stands by, too
        }
        true
    }

    /// Waits for the answer while the server moves.
    #[cold]
    fn wait_or_go_home<W: Patience<P>>(
        &self,
        lock: &L,
        mailbox: &Mailbox<P>,
        asked: u32,
        job: Job,
    ) {
        let beat = &self.role().beat;
        let mut key = L::Key::default();
        let mut is_inside = false;
        for _ in 0..LOOKS {
            let before = beat.load(Relaxed); // a hint
            if W::wait_for(&mailbox.state, asked, PATIENCE_NS) != asked {
                return;
            }
            // It doesn't run, or it is in a long section of another lock. If the gate is shut, somebody is in a section of this one, and may
            // have lost its CPU: to wait there would be no quicker.
            is_inside = beat.load(Relaxed) == before && lock.try_enter(&mut key);
            if is_inside {
                let awake = &self.rest().awake;
                let _ = awake.compare_exchange(AWAKE, AWAY, Relaxed, Relaxed); // as in `sleeps`
                break;
            }
        }
        if !is_inside {
            lock.enter(&mut key);
        }
        // Relaxed: if the section has run, then inside of the gate, which its runner has left.
        let mut waits = mailbox.state.load(Relaxed) == asked;
        if waits {
            // SAFETY: it waits, inside of its gate (invariant 1).
            waits = unsafe { job.run() };
        }
        if waits {
            // STATE: ASKED n -> IDLE n.
            // Relaxed: servers look inside of the gate.
            // SURVIVES no-store: a server that still sees the request finds no job.
            mailbox.state.store(asked & !WHAT, Relaxed);
            mailbox.job.set(Job::NONE);
        }
        lock.leave(&mut key, u32::from(waits));
        // A server runs it, and waits for a condition: nobody wakes us.
        // ORDERING: Acquire, pairs with [answer].
        // SURVIVES: in explorations no section waits.
        while mailbox.state.load(Acquire) == asked {
            // SURVIVES: as above.
            P::park(&mailbox.state, asked, Some(P::after(NAP_NS)));
        }
    }

    /// Runs sections until `stop` is not 0, as one of the server's threads. `sleeps`: also sleeps while nobody asks; then whoever stops it
    /// [`wake`](Self::wake)s it. With more than [`POOL`] threads, the others return at once.
    pub fn serve<W: Patience<P>>(&self, stop: &P::Word, sleeps: bool) {
        let free = |number: &usize| {
            // ORDERING: Acquire, pairs with [slot]: the last thread's use is over.
            // SURVIVES: in explorations no other thread takes the slot.
            self.slot(*number).taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        };
        let Some(number) = (0..POOL).find(free) else { return };
        let (slot, role, rest) = (self.slot(number), self.role(), self.rest());
        let me = number as u32 + 1;
        rest.threads.fetch_add(1, Relaxed); // it orders nothing
        self.be_awake();
        // Relaxed, all: who is active is a hint, as the gates exclude.
        while stop.load(Relaxed) == 0 {
            let is_mine = role.active.load(Relaxed) == me
                || role.active.compare_exchange(0, me, Relaxed, Relaxed).is_ok();
            if is_mine {
                self.be_active::<W>(slot, me, stop, sleeps);
            } else {
                self.stand_by(me, stop);
            }
        }
        let _ = role.active.compare_exchange(me, 0, Relaxed, Relaxed);
        // ORDERING: AcqRel, pairs with itself: GONE comes after each other thread's AWAKE.
        // SURVIVES: in explorations nobody asks when a server's last thread ends.
        // SURVIVES no-store: in explorations nobody asks when a server's last thread ends.
        if rest.threads.fetch_sub(1, AcqRel) == 1 {
            rest.awake.store(GONE, Relaxed);
        }
        // ORDERING: Release [slot]: our use is over.
        // SURVIVES: in explorations no other thread takes the slot.
        // SURVIVES no-store: as above.
        slot.taken.store(0, Release);
    }

    /// Says AWAKE, and wakes those who sleep until somebody does.
    fn be_awake(&self) {
        let awake = &self.rest().awake;
        if awake.swap(AWAKE, Relaxed) == ASLEEP {
            P::unpark(awake, u32::MAX);
        }
    }

    /// Wakes the server's threads, so that they see that they are stopped.
    pub fn wake(&self) {
        let rest = self.rest();
        let _ = rest.awake.compare_exchange(ASLEEP, AWAKE, Relaxed, Relaxed);
        P::unpark(&raw const rest.awake, u32::MAX);
        P::unpark(&raw const rest.watched, u32::MAX);
    }

    /// The server's threads are gone (a forked child has none): clients run their own sections.
    pub fn forget_threads(&self) {
        for number in 0..POOL {
            self.slot(number).taken.store(0, Relaxed);
            self.slot(number).shows.store(null_mut(), Relaxed);
        }
        let (role, rest) = (self.role(), self.rest());
        role.active.store(0, Relaxed);
        rest.watched.store(0, Relaxed);
        rest.threads.store(0, Relaxed);
        rest.awake.store(GONE, Relaxed);
    }

    /// Looks at the mailboxes, until another thread of the server is the active one.
    fn be_active<W: Patience<P>>(&self, slot: &Shown<P, L>, me: u32, stop: &P::Word, sleeps: bool) {
        let (role, rest) = (self.role(), self.rest());
        let mut inside =
            Inside { lock: ptr::null(), key: L::Key::default(), ran: 0, next: null_mut() };
        let (mut idle, mut since) = (0_u32, None);
        // The last one may be in a section for long.
        self.beats(me, false);
        while stop.load(Relaxed) == 0 && role.active.load(Relaxed) == me {
            if rest.awake.load(Relaxed) == AWAY {
                rest.awake.store(AWAKE, Relaxed);
            }
            if self.round::<W>(slot, me, &mut inside) {
                (idle, since) = (0, None);
                continue;
            }
            W::between();
            P::pause(0);
            idle += 1;
            if !sleeps || idle % ROUNDS != 0 {
                continue;
            }
            let now = P::now();
            if now - *since.get_or_insert(now) >= AWAKE_NS {
                // Requests that come now wait in vain, and then go home.
                rest.awake.store(ASLEEP, Relaxed);
                if !self.round::<W>(slot, me, &mut inside) {
                    // ORDERING: Release, pairs with [unseen]: our use of the lock is over. Whoever ends it needn't wait until we wake.
                    // SURVIVES: explorations end no lock while its server runs; a test of `lw_execute` does.
                    // SURVIVES no-store: explorations end no lock while its server runs; a test of `lw_execute` does.
                    slot.shows.store(null_mut(), Release);
                    P::park(&rest.awake, ASLEEP, Some(P::after(SLEEP_NS)));
                }
                self.be_awake();
                (idle, since) = (0, None);
            }
        }
        inside.leave();
        // ORDERING: Release, pairs with [unseen]: our use of the lock is over.
        // SURVIVES: explorations end no lock while its server runs; a model does.
        // SURVIVES no-store: explorations end no lock while its server runs; a model does.
        slot.shows.store(null_mut(), Release);
    }

    /// Shows that a section begins or ends, unless another thread has taken over since.
    fn beats(&self, me: u32, begins: bool) {
        let Role { active, beat } = self.role();
        // Relaxed, all: a hint, which others only compare.
        if active.load(Relaxed) == me {
            let last = beat.load(Relaxed);
            let next = if begins { last.wrapping_add(1) | 1 } else { (last | 1).wrapping_add(1) };
            beat.store(next, Relaxed);
        }
    }

    /// One look at each mailbox, for one lock: the one whose gate the thread is in, or that of the first request. `true`: somebody asked.
    fn round<W: Patience<P>>(&self, slot: &Shown<P, L>, me: u32, inside: &mut Inside<L>) -> bool {
        let (mut ran, mut in_vain, mut other) = (false, false, null_mut());
        let next = mem::replace(&mut inside.next, null_mut());
        self.mailboxes.each(|mailbox| {
            // ORDERING: Acquire, pairs with [ask]: lock and job are there.
            let asked = mailbox.state.load(Acquire);
            // Another thread may have taken over while a section blocked.
            if asked & WHAT == IDLE || self.role().active.load(Relaxed) != me {
                return;
            }
            let lock = mailbox.lock.load(Relaxed).cast::<L>();
            // On a machine with a fault, a request may be seen before its lock.
            if lock.is_null() {
                return;
            }
            let is_turn = inside.lock.is_null() && (next.is_null() || next == lock);
            if is_turn && !self.enter(slot, mailbox, (asked, lock), inside) {
                in_vain = true;
                return;
            }
            if !ptr::eq(lock, inside.lock) {
                other = lock;
                return;
            }
            self.beats(me, true);
            // SAFETY: it waits, inside of its gate (invariant 1): we have looked since we entered.
            let has_run = unsafe { mailbox.job.get().run() };
            if has_run {
                // STATE: ASKED n -> IDLE n.
                // SAFETY: the client waits, or will look before it waits. It is answered once, by whoever ran its section.
                unsafe { W::answer(&raw const mailbox.state, asked & !WHAT) };
            }
            self.beats(me, false);
            if !has_run {
                in_vain = true;
                return;
            }
            ran = true;
            inside.ran += 1;
            if inside.ran == BATCH {
                inside.leave();
            }
        });
        if !ran || !other.is_null() {
            inside.leave();
            inside.next = other;
        }
        if !in_vain && inside.lock.is_null() && !slot.shows.load(Relaxed).is_null() {
            // ORDERING: Release, pairs with [unseen]: our use of the lock is over.
            // SURVIVES: explorations end no lock while its server runs; a model does.
            // SURVIVES no-store: as above.
            slot.shows.store(null_mut(), Release);
        }
        ran || !other.is_null()
    }

    /// Enters the gate of `lock`, for which `mailbox` asked. `false`: others are inside, or the request is gone.
    fn enter(
        &self,
        slot: &Shown<P, L>,
        mailbox: &Mailbox<P>,
        (asked, lock): (u32, *mut L),
        inside: &mut Inside<L>,
    ) -> bool {
        // Relaxed: ours.
        if slot.shows.load(Relaxed) != lock {
            // ORDERING: AcqRel [show], pairs with [unseen]: either whoever ends the lock sees it here, or we see that the request is gone.
            // SURVIVES: explorations end no lock while its server runs; a model does.
            // SURVIVES no-store: as above.
            slot.shows.swap(lock, AcqRel);
            // Relaxed: we have read the request before.
            if mailbox.state.load(Relaxed) != asked {
                return false;
            }
        }
        // SAFETY: its client waits, or whoever ends the lock waits until we show another one (invariant 3).
        if !unsafe { &*lock }.try_enter(&mut inside.key) {
            return false;
        }
        (inside.lock, inside.ran) = (lock, 0);
        self.pass_on(lock);
        // Relaxed: we have read the request before; if it is gone, the gate lets us see that.
        mailbox.state.load(Relaxed) == asked
    }

    /// Has it no threads?
    pub fn is_gone(&self) -> bool {
        self.rest().awake.load(Relaxed) == GONE
    }

    /// Waits until no thread of the server touches this lock. Nobody asks for it any more.
    pub fn unseen(&self, lock: *const L) {
        for number in 0..POOL {
            let shows = &self.slot(number).shows;
            loop {
                let shown = shows.load(Relaxed);
                // ORDERING: AcqRel [unseen]: a thread that shows the lock later sees that nobody asks; what one did before is over.
                if !ptr::eq(shown, lock)
                    && shows.compare_exchange(shown, shown, AcqRel, Relaxed).is_ok()
                {
                    break;
                }
                P::give_way();
                P::pause(0);
            }
        }
    }
}

impl<P: Platform, L> Drop for SectionServer<P, L> {
    fn drop(&mut self) {
        // SAFETY: no thread serves or asks any more.
        unsafe {
            for slot in &self.slots {
                give::<P, _>(slot.load(Relaxed));
            }
            give::<P, _>(self.role);
            give::<P, _>(self.rest);
        }
    }
}
