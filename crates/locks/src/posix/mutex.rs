//! A mutex's layout, the lock that it runs on, and the process that it lives in. The last two are types that name each other: a policy
//! may be a function of the mutex, and the process says which policy is where.

use super::held::Held;
use crate::catalog::{FrontVisitor, visit_front};
use crate::entry::Entry;
use crate::front::{self, FREE, Parts, Rule, Seat, Tuning, View, Waiter, Word0, counts, hints};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Platform, Programmable, Ptr, Word};

/// What is known of a release by the slow path before it happens: afterwards the next holder writes its own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Releasing {
    /// When, ns; 0: it isn't counted.
    pub now_ns: u64,
    /// Since when somebody has waited, as whoever counts has it; 0: nobody has.
    pub since_ns: u64,
}

/// What mutexes depend on in their process.
pub trait Environment: Sized + 'static {
    /// Its machine.
    type Platform: Machine;
    /// Where a textbook lock stands in front of a mutex; zeroes are an unlocked one.
    type Room: Send + Sync;
    /// The calling thread's id, not 0.
    fn thread() -> u32;

    /// Looks at what the calling thread holds by nodes.
    fn with_held<R>(run: impl FnOnce(&Held<Self::Platform>) -> R) -> R;

    /// The calling thread is about to hold something by a node.
    #[inline(always)]
    fn grants() {}

    /// Counts forks, see [`Tuning::era`].
    fn era() -> usize {
        0
    }

    /// The place in the table (1 to [`PLACE_MAX`]) that a mutex gets when a call at `caller` is the first to find it
    /// contended.
    fn choose(mutex: &Mutex<Self>, caller: usize) -> u32;

    /// The calling thread; and the policy at that place now, with its tuning for that thread. For [`UNDECIDED`]: what a mutex runs on until
    /// its place is decided.
    fn policy(place: u32) -> (Me, Policy<Self>);

    /// Counts the tables that choose differently from the table before. A mutex gets a new place when it is first
    /// contended under such a table. It goes on past [`GENERATIONS`], of which a
    /// mutex keeps only the remainder.
    fn generation() -> u32 {
        0
    }

    /// Does somebody else use the [mark](MARKED) on mutexes now?
    fn keeps_marks() -> bool {
        false
    }

    /// Are acquisitions of [marked](MARKED) mutexes counted now?
    #[inline(always)]
    fn counts() -> bool {
        false
    }

    /// The calling thread has to wait for a mutex, and has time for other things first.
    fn before_wait() {}

    /// The calling thread has to wait for a mutex; `caller` is the address of its call, or 0. `true`: the end of the wait is told to
    /// [`has_waited`](Self::has_waited). Called only if the thread [`tells`](Me::tells), as is [`releases`](Self::releases).
    fn waits(mutex: &Mutex<Self>, caller: usize) -> bool {
        let _ = (mutex, caller);
        false
    }

    /// A wait of which [`waits`](Self::waits) said `true` has ended; `acquired`: the thread got the mutex.
    fn has_waited(mutex: &Mutex<Self>, acquired: bool) {
        let _ = (mutex, acquired);
    }

    /// The calling thread is about to release a mutex by the slow path: somebody waits for it, has asked for this
    /// ([`ask`]), or it was held by a node. The
    /// result is passed to [`released`](Self::released).
    fn releases(mutex: &Mutex<Self>) -> Releasing {
        let _ = mutex;
        Self::Platform::unboost(); // even if the policy that asked for it is gone, or the mutex runs on another lock
        Releasing::default()
    }

    /// The mutex at this address has been released; it may be gone. `release`: what [`releases`](Self::releases) said, or zeroes if the lock was
    /// granted to a waiter. (After a grant nobody asks whether the thread [`tells`](Me::tells).)
    #[inline(always)]
    fn released(address: usize, release: Releasing) {
        let _ = (address, release);
    }

    /// Runs `wait`, a wait for word 0, in the line or outside it, up to its end, when the holder is known. It may be torn away: then
    /// it is taken out of its wait by the seat that its parts get, or it releases the mutex.
    fn guarded<R>(
        mutex: &Mutex<Self>,
        parts: Parts<'_, Self::Platform>,
        tuning: &Tuning,
        wait: impl FnOnce(&Parts<'_, Self::Platform>) -> R,
    ) -> R {
        let _ = (mutex, tuning);
        wait(&parts)
    }

    /// Runs a wait in a textbook lock's queue, and then `has_it`. `false`: there are no such queues any more, because a thread was torn
    /// out of one, which nobody can pass.
    fn in_queue(
        mutex: &Mutex<Self>,
        tuning: &Tuning,
        wait: impl FnOnce(&Seat<Self::Platform>),
        has_it: impl FnOnce(),
    ) -> bool {
        let _ = (mutex, tuning);
        wait(&Seat::default());
        has_it();
        true
    }

    /// Takes word 0 if it is free and nobody queues.
    #[inline(always)]
    fn take(mutex: &Mutex<Self>) -> bool {
        // An arrival must not overtake a line without noticing.
        let nobody_queues = mutex.tail.load(Relaxed).is_null();
        nobody_queues && mutex.word.take(false)
    }

    /// Takes word 0 if it is free.
    #[inline(always)]
    fn try_take(mutex: &Mutex<Self>) -> bool {
        mutex.word.try_take()
    }

    /// Releases word 0 if nobody needs a wake. After the write that releases, the mutex may be gone.
    #[inline(always)]
    fn give(mutex: &Mutex<Self>) -> bool {
        mutex.word.give()
    }
}

/// The calling thread, as a slow operation sees it: asked for once.
#[derive(Clone, Copy)]
pub struct Me {
    /// Its id, not 0.
    pub id: u32,
    /// Identifies it in nodes, see [`Held::by`].
    pub by: *const (),
    /// Does anybody want to know of its waits and releases?
    pub tells: bool,
}

impl Me {
    /// The calling thread. It tells.
    pub fn of<E: Environment>() -> Self {
        Self { id: E::thread(), by: E::with_held(Held::by), tells: true }
    }
}

/// An environment whose mutexes may be statics.
pub trait Static: Environment {
    /// An unlocked mutex.
    const UNLOCKED: Mutex<Self>;
}

/// A word of the environment's machine.
type WordOf<E> = <<E as Environment>::Platform as Platform>::Word;

/// `pthread_mutex_t`, `mtx_t`.
#[repr(C)]
pub struct Mutex<E: Environment> {
    /// `__lock`: word 0, in glibc's protocol: 0 free, 1 held, 2 held and somebody needs a wake; 3 held within a chain
    /// of grants, which glibc's code treats like 2.
    pub word: Word0<E::Platform>,
    /// `__count`: how often its holder has locked a recursive mutex; of other kinds, acquisitions that have yet to be told
    /// ([`acquisitions`](super::acquisitions)). The holder's.
    pub count: WordOf<E>,
    /// `__owner`: the holder's kernel thread id, 0 while free. Written by the holder. In a chain of grants, the first holder writes
    /// [`SOMEBODY`](crate::front::SOMEBODY), and a waiter that falls asleep behind a holder writes that holder's id.
    pub owner: WordOf<E>,
    /// `__nusers`: here, the condvar waiters that will come back for this mutex (`destroy`: EBUSY), and in
    /// the upper half the front locks' hints.
    pub users: WordOf<E>,
    /// `__kind`: type and flags. Written by `init`, and by `destroy` (-1).
    pub kind: WordOf<E>,
    /// `__spins`, `__elision`: the place, and the front locks' counts word.
    pub counts: WordOf<E>,
    /// `__list.__prev`: the line's tail.
    pub tail: <E::Platform as Platform>::Ptr<Waiter<E::Platform>>,
    /// `__list.__next`: where a textbook lock stands in front of word 0; zeroes on every other mutex.
    pub room: E::Room,
}

/// The bits of `__kind` that we understand: type (2 bits), elision wanted or not (ignored, as by glibc on
/// machines without elision). Any other bit means robust, PI, PP, process-shared or destroyed: such mutexes are glibc's.
pub const KINDS: u32 = 0x303;
/// In `__kind`, on a mutex that a textbook lock stands in front of, or whose policy is told of each operation (hooks.rs). It sends each operation on this mutex to the
/// slow functions, at no cost to other mutexes, because the fast path looks at `__kind` anyway. To glibc's code it is
/// PTHREAD_MUTEX_NO_ELISION_NP, which changes nothing; a mutex of type NORMAL has it from the start.
pub const MARKED: u32 = 0x200;
/// The field of condvar waiters in `users`.
pub const USERS: u32 = 0xffff;
/// The type's bits.
pub const TYPE: u32 = 3;
/// `PTHREAD_MUTEX_RECURSIVE`.
pub const RECURSIVE: u32 = 1;
/// `PTHREAD_MUTEX_ERRORCHECK`.
pub const ERRORCHECK: u32 = 2;
/// `PTHREAD_MUTEX_ADAPTIVE_NP`.
pub(super) const ADAPTIVE: u32 = 3;

impl<E: Static> Default for Mutex<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Static> Mutex<E> {
    /// An unlocked mutex of the plain kind: `PTHREAD_MUTEX_INITIALIZER`.
    pub const fn new() -> Self {
        E::UNLOCKED
    }
}

impl<E: Environment> Mutex<E> {
    /// An unlocked mutex of this kind, with this room.
    pub fn of_kind(kind: u32, room: E::Room) -> Self {
        Self {
            word: Word0::of(Word::new(FREE)),
            count: Word::new(0),
            owner: Word::new(0),
            users: Word::new(0),
            kind: Word::new(kind),
            counts: Word::new(0),
            tail: Ptr::new(core::ptr::null_mut()),
            room,
        }
    }

    /// Does somebody hold it? As stale as any such answer.
    pub fn is_locked(&self) -> bool {
        !self.word.is_free() // a hint
    }

    /// The calling thread, and the lock that the mutex runs on. If it isn't decided yet: the lock that it runs on meanwhile.
    #[inline(always)]
    pub(super) fn policy(&self) -> (Me, Policy<E>) {
        E::policy(self.counts.load(Relaxed) & counts::LOCK) // guards no other data
    }

    /// The parts that the front locks use.
    pub fn parts(&self) -> Parts<'_, E::Platform> {
        self.parts_of(self.kind.load(Relaxed), Me::of::<E>())
    }

    /// The same, for a mutex that is known to be of this kind, and the calling thread.
    pub(super) fn parts_of(&self, kind: u32, me: Me) -> Parts<'_, E::Platform> {
        let Self { word, owner, users: hints, counts, tail, .. } = self;
        // These two kinds go by the owner, so nobody holds them by a node.
        let (by, kind) = match kind & TYPE {
            kind @ (RECURSIVE | ERRORCHECK) => (core::ptr::null(), kind),
            _ => (me.by, 0),
        };
        Parts {
            word,
            counts,
            hints,
            by,
            thread: me.id,
            kind,
            site: 0,
            tail,
            owner: Some(owner),
            seat: None,
        }
    }
}

/// The place of a mutex that has never been contended.
pub const UNDECIDED: u32 = 0;

/// The last place.
pub const PLACE_MAX: u32 = counts::LOCK;

/// How many generations of tables a mutex can tell apart.
pub const GENERATIONS: u32 = counts::GENERATIONS / counts::GENERATION + 1;

/// [`front::acquire`] of a rule.
pub type AcquireBy<P> = fn(&Parts<'_, P>, &Tuning) -> *const Waiter<P>;

/// A front lock's rule, with its type erased.
pub struct Front<P: Machine> {
    pub(super) acquire: AcquireBy<P>,
    pub(super) release: fn(&View<'_, P>),
    /// Its own defaults, on top of what suits the machine.
    pub defaults: fn(Tuning) -> Tuning,
}

impl<P: Machine> Clone for Front<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Machine> Copy for Front<P> {}

impl<P: Machine> Front<P> {
    /// The rule `R` with these defaults.
    pub const fn of<R: Rule<P>>(defaults: fn(Tuning) -> Tuning) -> Self {
        Self { acquire: front::acquire::<P, R>, release: R::release, defaults }
    }

    /// The front lock called `id`.
    pub fn find(id: &'static str) -> Option<Self> {
        struct FindFront<P: Machine>(&'static str, Option<Front<P>>);
        impl<P: Machine> FrontVisitor<P> for FindFront<P> {
            fn visit<R: Rule<P>>(&mut self, entry: &'static Entry, defaults: fn(Tuning) -> Tuning) {
                if entry.id == self.0 {
                    self.1 = Some(Front::of::<R>(defaults));
                }
            }
        }
        let mut find = FindFront(id, None);
        visit_front::<P>(&mut find);
        find.1
    }
}

/// What a mutex does with a thread that has to wait.
pub enum How<E: Environment> {
    /// A front lock.
    Front(Front<E::Platform>),
    /// A textbook lock in front of word 0: acquires word 0 by [`queue_in_front`].
    Whole(fn(&Mutex<E>, &Tuning, &Seat<E::Platform>)),
    /// glibc's own algorithm: swap in a 2, sleep.
    Glibc,
}

impl<E: Environment> Clone for How<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Environment> Copy for How<E> {}

/// A lock and its tuning.
pub struct Policy<E: Environment> {
    /// The lock.
    pub how: How<E>,
    /// Its options and the machine, as far as they don't change.
    pub tuning: Tuning,
}

impl<E: Environment> Clone for Policy<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Environment> Copy for Policy<E> {}

/// How many threads wait in the mutex's line: a hint, for the holder.
pub fn waiters<E: Environment>(mutex: &Mutex<E>) -> u32 {
    hints::waiters(mutex.users.load(Relaxed))
}
