//! Sections that any thread may run, under one of the program's own mutexes: the functions of a rewritten program (`lockwright rewrite`), and
//! what `liblockwright_delegate.so` runs on the waiting threads' own stacks.
//!
//! ```text
//!     lw_section(mutex, fn, context) ─► the mutex's slot: `dynamic` over the program's mutex ─► here, or by the thread that holds the mutex
//! ```
//!
//! Whoever runs a section has locked the program's mutex by `pthread_mutex_lock`. So places that were not rewritten exclude sections as ever,
//! whichever library serves the mutex.
//!
//! 1. A slot belongs to one address for the life of the process. A new mutex at the same address finds nobody waiting there.
//! 2. Mutexes that find no slot, and those that aren't normal, are locked, and a function runs here. (Of a section on its own stack nothing
//!    runs: its thread locks as ever.)

use crate::env::{say, variable};
use crate::fork::{self, When};
use crate::leave::{self, Wait};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize};
use libc::pthread_mutex_t;
use lockwright_locks::delegation::dynamic::{Dynamic, Mode};
use lockwright_native::{Atomic32, Native};
use lockwright_platform::{Platform, RawLock, Sections, TryLock};

/// One of the program's mutexes.
struct Theirs {
    /// Its address; 0: none yet.
    address: AtomicUsize,
    /// A section has handed the mutex on to its own thread. The thread that ran the section writes and reads it before it lets that thread
    /// go on.
    is_handed_on: AtomicBool,
}

impl Theirs {
    const fn at(address: usize) -> Self {
        Self { address: AtomicUsize::new(address), is_handed_on: AtomicBool::new(false) }
    }

    fn get(&self) -> *mut pthread_mutex_t {
        // Relaxed: it changes once, before anybody locks it.
        ptr::with_exposed_provenance_mut(self.address.load(Relaxed))
    }

    /// Waits for the mutex, and now and then lets the thread take its signals.
    #[cold]
    fn lock_and_nap(&self, nap: Nap) {
        const LOOK_NS: u32 = 2_000_000;
        loop {
            let at = Native::after(LOOK_NS).at;
            // SAFETY: as in `lock`.
            let answer = unsafe { pthread_mutex_clocklock(self.get(), libc::CLOCK_MONOTONIC, &at) };
            if answer != libc::ETIMEDOUT {
                return;
            }
            // SAFETY: no word: it doesn't sleep.
            unsafe { nap(ptr::null(), 0, 0) };
        }
    }
}

unsafe extern "C" {
    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
}

impl Sections<Native> for Theirs {
    type Node = ();

    fn new() -> Self {
        Self::at(0)
    }

    lockwright_platform::held_sections!(Native);
}

impl RawLock<Native> for Theirs {
    /// A program may free an object with its mutex as soon as it knows that nobody else is about to lock it.
    const MAY_END: bool = true;

    fn nap(&self, word: &Atomic32, while_it_is: u32, ns: u32) {
        match nap() {
            // SAFETY: a word that stays, as the caller waits for it.
            Some(nap) => unsafe { nap(word.as_ptr(), while_it_is, ns) },
            None => {
                Native::park(word, while_it_is, Some(Native::after(ns)));
            }
        }
    }

    #[inline]
    fn is_handed_on(&self) -> bool {
        // Relaxed, here and where it is set: the same thread's.
        self.is_handed_on.load(Relaxed) && self.is_handed_on.swap(false, Relaxed)
    }

    #[inline]
    unsafe fn lock(&self, _: *mut ()) {
        if let Some(nap) = nap() {
            return self.lock_and_nap(nap);
        }
        // SAFETY: the caller's thread is in `run` for this mutex, or runs a section for one that is.
        unsafe { libc::pthread_mutex_lock(self.get()) };
    }

    #[inline]
    unsafe fn unlock(&self, _: *mut ()) {
        // SAFETY: the caller has locked it.
        unsafe { libc::pthread_mutex_unlock(self.get()) };
    }
}

impl TryLock<Native> for Theirs {
    #[inline]
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        // SAFETY: as for `lock`.
        unsafe { libc::pthread_mutex_trylock(self.get()) == 0 }
    }
}

/// What waits for one mutex. All zeroes is a free one.
#[repr(C, align(128))]
struct MutexSlot(Dynamic<Native, Theirs>);

/// How many mutexes may have a slot.
const SLOTS: usize = 1024;
/// How many slots an address may take, one behind the other.
const NEAR: usize = 8;

/// The slots. Only those in use take memory.
#[repr(align(128))]
struct SlotTable(UnsafeCell<[u8; SLOTS * size_of::<MutexSlot>()]>);
// SAFETY: it is only used as slots, which are shared.
unsafe impl Sync for SlotTable {}
static TABLE: SlotTable = SlotTable(UnsafeCell::new([0; SLOTS * size_of::<MutexSlot>()]));

fn slots() -> &'static [MutexSlot; SLOTS] {
    // SAFETY: as large and as aligned as that, and zeroes are free slots (`Dynamic::over`).
    unsafe { &*TABLE.0.get().cast::<[MutexSlot; SLOTS]>() }
}

/// Sleeps on the word at an address while it is this, for at most this many ns; without an address, not at all. Then the thread may
/// take its signals.
pub type Nap = unsafe extern "C" fn(*const u32, u32, u32);

/// How threads that run sections on their own stacks sleep; null: as others do.
static NAP: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

fn nap() -> Option<Nap> {
    // Relaxed: written before the first section that needs it, by the same thread.
    let nap = NAP.load(Relaxed);
    // SAFETY: null, or a function of this type, by `run_on_its_stack`.
    unsafe { core::mem::transmute(nap) }
}

/// Who runs sections.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Delegates {
    /// The variable has not been read.
    Unknown,
    /// As `dynamic` finds out.
    IfFaster,
    /// Their own threads.
    Never,
    /// A combiner, whenever a thread has to wait.
    Always,
}

static HOW: AtomicU8 = AtomicU8::new(Delegates::Unknown as u8);

fn how() -> Delegates {
    // Relaxed: every thread finds the same answer.
    let known = HOW.load(Relaxed);
    let all = [Delegates::IfFaster, Delegates::Never, Delegates::Always];
    all.into_iter().find(|how| *how as u8 == known).unwrap_or_else(read)
}

#[cold]
fn read() -> Delegates {
    let how = match variable(c"LOCKWRIGHT_SECTIONS") {
        None | Some(b"if-faster") => Delegates::IfFaster,
        Some(b"never") => Delegates::Never,
        Some(b"always") => Delegates::Always,
        Some(other) => {
            say(&[
                b"unknown LOCKWRIGHT_SECTIONS '",
                other,
                b"': sections are delegated if that is faster\nhint: if-faster, never or always\n",
            ]);
            Delegates::IfFaster
        }
    };
    HOW.store(how as u8, Relaxed);
    how
}

/// The numbers of the slots that the mutex at `address` may have.
fn near(address: usize) -> impl Iterator<Item = usize> {
    // Mutexes lie in arrays of structures: the lower bits say little.
    let first =
        (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> (usize::BITS - 10);
    (first..first + NEAR).map(|number| number % SLOTS)
}

/// The mutex's slot.
fn slot_of(mutex: *mut pthread_mutex_t, how: Delegates) -> Option<&'static MutexSlot> {
    let address = mutex.expose_provenance();
    for number in near(address) {
        let slot = &slots()[number];
        let place = &slot.0.lock().address;
        let now = place.load(Relaxed);
        if now == address {
            return Some(slot);
        }
        if now == 0 {
            // Relaxed, both: a slot is zeroes before, and nothing else is published.
            match place.compare_exchange(0, address, Relaxed, Relaxed) {
                Ok(_) => {
                    fork::tell_child(When::Seen, in_child);
                    begin(slot, how);
                    return Some(slot);
                }
                Err(other) if other == address => return Some(slot),
                Err(_) => {}
            }
        }
    }
    None
}

fn begin(slot: &MutexSlot, how: Delegates) {
    if how == Delegates::Always {
        slot.0.combine(true);
    }
}

/// The child has one thread, and nobody who waits.
fn in_child() {
    let how = how();
    for slot in slots() {
        let address = slot.0.lock().address.load(Relaxed);
        if address != 0 {
            let fresh = MutexSlot(Dynamic::over(Theirs::at(address)));
            // SAFETY: no other thread exists. If this one forked in a section, it finds its slot empty when it goes on, as it would be if it
            // had come alone.
            unsafe { ptr::from_ref(slot).cast_mut().write(fresh) };
            begin(slot, how);
        }
    }
}

/// Is the mutex of a kind that any thread may lock for another one?
///
/// # Safety
/// It is initialized.
unsafe fn is_normal(mutex: *mut pthread_mutex_t) -> bool {
    /// Where glibc keeps the kind in a mutex: `__data.__kind`.
    const KIND: usize = 16;
    /// PTHREAD_MUTEX_ADAPTIVE_NP.
    const ADAPTIVE: u32 = 3;
    /// glibc's mark of a normal mutex that may elide, or may not.
    const ELISION: u32 = 0x300;
    // SAFETY: within the mutex. Its kind never changes but for elision's marks, which are ours to ignore.
    let kind = unsafe { mutex.byte_add(KIND).cast::<u32>().read_volatile() } & !ELISION;
    kind == 0 || kind == ADAPTIVE
}

/// A thread may be in others' sections.
struct Others;

impl Wait for Others {
    fn leave(&self) {
        say(&[
            b"a thread that runs rewritten sections left by pthread_exit or longjmp; others may wait for it forever\n",
            b"hint: LOCKWRIGHT_SECTIONS=never\n",
        ]);
    }
}

/// Runs the section while this thread, or the one that runs it, has locked the mutex.
///
/// # Safety
/// The mutex is initialized, and the caller doesn't hold it.
#[inline]
pub unsafe fn run(mutex: *mut pthread_mutex_t, section: impl FnOnce() + Send) {
    let how = how();
    // SAFETY: the caller's promise.
    let slot = if how == Delegates::Never || !unsafe { is_normal(mutex) } {
        None
    } else {
        slot_of(mutex, how)
    };
    let Some(slot) = slot else {
        // SAFETY: the caller's promise.
        unsafe { libc::pthread_mutex_lock(mutex) };
        section();
        // SAFETY: locked above.
        unsafe { libc::pthread_mutex_unlock(mutex) };
        return;
    };
    if let Err(section) = slot.0.here(section) {
        wait(slot, section);
    }
}

#[cold]
#[inline(never)]
fn wait(slot: &MutexSlot, section: impl FnOnce() + Send) {
    let mode = slot.0.mode().0;
    if mode == Mode::Home {
        return slot.0.wait_at_home(u32::MAX, section);
    }
    let before = leave::disable_cancellation();
    // SAFETY: each thread's own word.
    let errno = || unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let mine = unsafe { *errno() };
    let run = move || {
        let theirs = errno();
        // SAFETY: that of the thread that runs this.
        let kept = unsafe { theirs.replace(mine) };
        section();
        // SAFETY: as above: a section doesn't end its thread.
        unsafe { theirs.replace(kept) }
    };
    let after = leave::guarded(&Others, || slot.0.wait(mode, u32::MAX, run));
    // SAFETY: ours.
    unsafe { *errno() = after };
    leave::enable_cancellation(before);
}

/// Does a combiner run this mutex's sections? Then a thread that found the mutex free would overtake those that wait. A hint. `None`: its
/// kind lets no other thread run them.
///
/// # Safety
/// The mutex is initialized.
pub unsafe fn is_combining(mutex: *mut pthread_mutex_t) -> Option<bool> {
    // SAFETY: the caller's promise.
    if !unsafe { is_normal(mutex) } {
        return None;
    }
    let address = mutex.addr();
    let slot = near(address)
        .map(|number| &slots()[number])
        .find(|slot| slot.0.lock().address.load(Relaxed) == address);
    Some(slot.is_some_and(|slot| slot.0.is_combining()))
}

/// Runs a section that belongs to its thread's own stack, by `run`, which switches to that stack, on whichever thread. `run` returns not 0
/// if it has handed the locked mutex on. Meanwhile the caller sleeps by `nap`, which is the same each time. Returns `false`, and runs
/// nothing, if no other thread may run sections of this mutex.
///
/// # Safety
/// As for [`run`](self::run()); and any thread may call `run` with `context`, once.
pub unsafe fn run_on_its_stack(
    mutex: *mut pthread_mutex_t,
    run: unsafe extern "C" fn(*mut c_void) -> c_int,
    context: *mut c_void,
    nap: Nap,
) -> bool {
    struct OnStack(*mut c_void);
    // SAFETY: the caller's promise.
    unsafe impl Send for OnStack {}
    // SAFETY: the caller's promise.
    let normal = unsafe { is_normal(mutex) };
    let always = Delegates::Always;
    let Some(slot) = normal.then(|| slot_of(mutex, always)).flatten() else { return false };
    if slot.0.mode() != (Mode::Combine, true) {
        slot.0.combine(true); // the slot was made for a rewritten section
    }
    if NAP.load(Relaxed).is_null() {
        NAP.store(nap as *mut (), Relaxed);
    }
    let stack = OnStack(context);
    let section = move || {
        let stack = stack;
        // SAFETY: the caller's promise.
        if unsafe { run(stack.0) } != 0 {
            slot.0.lock().is_handed_on.store(true, Relaxed);
        }
    };
    if let Err(section) = slot.0.here(section) {
        let before = leave::disable_cancellation();
        slot.0.wait(Mode::Combine, u32::MAX, section);
        leave::enable_cancellation(before);
    }
    true
}

/// A C function and its argument, as a section.
pub struct Called {
    run: unsafe extern "C-unwind" fn(*mut c_void),
    context: *mut c_void,
}

// SAFETY: whoever made it says that any thread may call it.
unsafe impl Send for Called {}

impl Called {
    /// # Safety
    /// Any thread may call `run` with `context`, once.
    pub unsafe fn new(run: unsafe extern "C-unwind" fn(*mut c_void), context: *mut c_void) -> Self {
        Self { run, context }
    }

    /// Calls it.
    pub fn run(self) {
        // SAFETY: as promised to `new`.
        unsafe { (self.run)(self.context) }
    }
}
