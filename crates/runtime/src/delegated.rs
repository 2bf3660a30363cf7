//! Sections that a program hands over: the lock of `Delegated` (Rust), `lw_execute` (C) and `lockwright::delegated` (C++).
//!
//! It is the lock `dynamic` over a mutex of ours. So whatever watches or changes mutexes does so here, too, and a thread may also lock
//! the mutex itself: to wait for a condition variable, for a limited time, or for what must run on its own thread.

use crate::fork::{self, When};
use crate::layout::Mutex;
use crate::leave::{self, Wait};
use crate::{env, posts, sync, thread};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use lockwright_contract::delegated::DelegatedState;
use lockwright_locks::delegation::dynamic::{Dynamic, Mode};
use lockwright_locks::delegation::server;
use lockwright_locks::delegation::waiting::Spins;
use lockwright_native::{Atomic32, Native};
use lockwright_platform::{RawLock, Sections, TryLock, Word};

/// The mutex below.
struct OurMutex(Mutex);

impl OurMutex {
    fn get(&self) -> *mut Mutex {
        ptr::from_ref(&self.0).cast_mut()
    }
}

impl Sections<Native> for OurMutex {
    type Node = ();

    fn new() -> Self {
        Self(Mutex::new())
    }

    lockwright_platform::held_sections!(Native);
}

impl RawLock<Native> for OurMutex {
    #[inline]
    unsafe fn lock(&self, _: *mut ()) {
        // SAFETY: it exists as long as `self`.
        unsafe { sync::mutex_lock(self.get()) };
    }

    #[inline]
    unsafe fn unlock(&self, _: *mut ()) {
        // SAFETY: as in `lock`; the caller holds it.
        unsafe { sync::mutex_unlock(self.get()) };
    }
}

impl TryLock<Native> for OurMutex {
    #[inline]
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        // SAFETY: as in `lock`.
        unsafe { sync::mutex_try_lock(self.get()) == 0 }
    }
}

type Inner = Dynamic<Native, OurMutex>;

/// The lock. All zeroes is one that nobody has asked.
#[repr(C)]
pub struct Delegated {
    inner: Inner,
    /// 1: commands know it. 2: a server has served it.
    known: AtomicU32,
    rest: [u32; 3],
}

const _: () = assert!(size_of::<Delegated>() == 128, "lw_delegated_t in lockwright_sync.h");
// What commands read.
const _: () =
    assert!(Inner::STATE == DelegatedState::SIZE && Inner::STATE_AT == DelegatedState::AT);

/// Commands know it.
const LISTED: u32 = 1;
/// A server has served it.
const SERVED: u32 = 2;

impl Default for Delegated {
    fn default() -> Self {
        Self::new()
    }
}

impl Delegated {
    /// A lock that nobody has asked.
    pub fn new() -> Self {
        Self {
            inner: Dynamic::over(OurMutex(Mutex::new())),
            known: AtomicU32::new(0),
            rest: [0; 3],
        }
    }

    /// Runs `section` while no other section under this lock runs, on this thread or on another one.
    ///
    /// `section` must not unwind, end its thread, or ask for the same lock.
    #[inline]
    pub fn run<R: Send>(&self, section: impl FnOnce() -> R + Send) -> R {
        match self.inner.here(section) {
            Ok(result) => result,
            Err(section) => self.ask(section),
        }
    }

    /// As [`run`](Self::run); `None`: the calling thread would wait for itself ([`is_mine`](Self::is_mine)), and nothing ran. A section that
    /// runs on its own thread may end that thread, if nothing of Rust is between.
    #[inline]
    pub fn try_run_exiting<R: Send>(&self, section: impl FnOnce() -> R + Send) -> Option<R> {
        let mut section = Some(section);
        let mut own = || section.take();
        // Each way takes it out once.
        let run = || own().map(|section| leave::guarded(&OwnSection(self, false), section));
        match self.inner.here(run) {
            Ok(result) => return result,
            Err(_) if self.is_mine() => return None,
            Err(_) => {}
        }
        self.announce();
        let section = section.take()?;
        Some(match self.asks() {
            Some(mode) => self.send(mode, section),
            None => self
                .inner
                .wait_at_home(window_ns(), || leave::guarded(&OwnSection(self, true), section)),
        })
    }

    /// As [`run`](Self::run); `None`: the calling thread would wait for itself ([`is_mine`](Self::is_mine)), and nothing ran.
    #[inline]
    pub fn try_run<R: Send>(&self, section: impl FnOnce() -> R + Send) -> Option<R> {
        match self.inner.here(section) {
            Ok(result) => Some(result),
            Err(_) if self.is_mine() => None,
            Err(section) => Some(self.ask(section)),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask<R: Send>(&self, section: impl FnOnce() -> R + Send) -> R {
        self.announce();
        match self.asks() {
            Some(mode) => self.send(mode, section),
            None => self.inner.wait_at_home(window_ns(), section),
        }
    }

    /// From now on commands know it.
    #[cold]
    fn announce(&self) {
        if self.known.load(Relaxed) & LISTED == 0 {
            self.known.fetch_or(LISTED, Relaxed); // whoever ends it has synchronized with us
            // SAFETY: a valid address; `drop` takes it back.
            unsafe { sync::delegated_begins(self.mutex()) };
        }
    }

    /// Does the calling thread ask others to run its section, and whom? A server's thread that asked a server, which may be its own, would
    /// wait for itself.
    fn asks(&self) -> Option<Mode> {
        match self.mode().0 {
            Mode::Home => None,
            Mode::Serve if is_server() => None,
            mode => Some(mode),
        }
    }

    /// Asks others to run the section. A cancellation waits until the thread is back: it may be in others' sections, or its own may be
    /// elsewhere.
    fn send<R: Send>(&self, mode: Mode, section: impl FnOnce() -> R + Send) -> R {
        let before = leave::disable_cancellation();
        // (At home the mutex is observed.)
        // SAFETY: it exists until we return.
        let is_observed = unsafe { sync::delegated_asks(self.mutex()) } != 0;
        let result = leave::guarded(&Others, || self.inner.wait(mode, window_ns(), section));
        if is_observed {
            // SAFETY: the mutex exists until we return.
            unsafe { sync::delegated_answered(self.mutex()) };
        }
        leave::enable_cancellation(before);
        result
    }

    /// Does the calling thread hold the mutex: does it run a section here, or has it locked the mutex? `false`: no, or that is not certain,
    /// since threads grant the mutex to each other.
    pub fn is_mine(&self) -> bool {
        // SAFETY: it exists as long as `self`.
        unsafe { sync::mutex_is_mine(self.mutex()) != 0 }
    }

    /// The mutex below. Whoever holds it may use the data, and no section runs meanwhile.
    pub fn mutex(&self) -> *mut Mutex {
        self.inner.lock().get()
    }

    /// What a thread does that has to wait; `true`: it was set by hand.
    pub fn mode(&self) -> (Mode, bool) {
        self.inner.mode()
    }

    /// Sets the mode by hand: combine, or never; `None`: it decides by itself.
    pub fn combine(&self, combines: Option<bool>) {
        match combines {
            Some(combines) => self.inner.combine(combines),
            None => self.inner.decide(),
        }
    }

    /// Sends the sections to this server from now on; `None`: to any server, and to another one when that has less to do.
    ///
    /// `false`: there is none, and nothing has changed.
    pub fn serve_by(&self, server: Option<&'static ServerThreads>) -> bool {
        let there = || servers().filter(|server| !server.inner.is_gone());
        let Some(chosen) = server.or_else(|| there().min_by_key(|server| server.inner.load()))
        else {
            return false;
        };
        self.known.fetch_or(SERVED, Relaxed); // whoever ends it has synchronized with us
        // SAFETY: it is static.
        unsafe { self.inner.serve_by(&raw const chosen.inner, server.is_none()) };
        true
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        if *self.known.get_mut() & SERVED != 0 {
            for server in servers() {
                server.inner.unseen(&raw const self.inner);
            }
        }
        if *self.known.get_mut() & LISTED != 0 {
            // SAFETY: a valid address.
            unsafe { sync::delegated_ends(self.mutex()) };
        }
    }
}

/// The window of the caller's epoch, ns.
fn window_ns() -> u32 {
    // SAFETY: no preconditions.
    unsafe { sync::epoch_window() as u32 }
}

/// A section runs on its own thread, which holds the mutex, and which had to wait (`true`) or not. If the section ends that thread, others go
/// on, as after a holder's own clean-up handler.
struct OwnSection<'a>(&'a Delegated, bool);

impl Wait for OwnSection<'_> {
    #[inline] // as in `start`
    fn leave(&self) {
        // SAFETY: the thread has locked it, and its section is over.
        unsafe { sync::mutex_unlock(self.0.mutex()) };
        if self.1 {
            self.0.inner.has_left_home();
        }
    }
}

/// A thread may be in others' sections.
struct Others;

impl Wait for Others {
    fn leave(&self) {
        env::say(&[
            b"a thread that runs sections left by pthread_exit or longjmp; others may wait for it forever\n",
            b"hint: a section must do neither (docs/delegation.md)\n",
        ]);
    }
}

/// A server: threads that run the sections of any number of locks. It lives as long as the process.
pub struct ServerThreads {
    inner: server::SectionServer<Native, Inner>,
    /// Its threads' ids; 0: not started.
    ids: [AtomicU32; server::POOL],
    /// Not 0: its threads end.
    stop: Atomic32,
    /// The CPU that its threads stay on; negative: any.
    cpu: c_int,
    /// The one that was started before.
    before: *const Self,
}

// SAFETY: what changes is atomic; `before` never changes, and points to a server that stays.
unsafe impl Sync for ServerThreads {}

/// The server that was started last.
static SERVERS: AtomicPtr<ServerThreads> = AtomicPtr::new(null_mut());

fn servers() -> impl Iterator<Item = &'static ServerThreads> {
    // ORDERING: Acquire, pairs with [start]: the server was made before it is found.
    let mut at: *const ServerThreads = SERVERS.load(Acquire);
    core::iter::from_fn(move || {
        // SAFETY: null, or a server, which stays.
        let server = unsafe { at.as_ref() }?;
        at = server.before;
        Some(server)
    })
}

/// Is the calling thread a server's?
fn is_server() -> bool {
    let me = thread::id();
    let is_me = |id: &AtomicU32| id.load(Relaxed) == me; // its own, or another thread's
    servers().any(|server| server.ids.iter().any(is_me))
}

/// The most threads of a server.
pub const THREADS: u32 = server::POOL as u32;

impl ServerThreads {
    /// Starts a server of `threads` threads, on this CPU if it isn't negative. One of them is active; another one takes over if a section
    /// blocks the active one for 1 to 2 ms. If there is no such CPU, they run on any. They block all signals, and sleep while nobody asks.
    ///
    /// # Errors
    /// EINVAL: no threads, more than [`THREADS`], or a CPU of 1024 or more. ENOMEM, EAGAIN: no memory, or no thread.
    // `inline`, here and elsewhere: compiled only where servers are started. The linker would drop an unused copy, and leave the notes of its
    // probes, which would point nowhere (probes.rs).
    #[inline]
    pub fn start(threads: u32, cpu: c_int) -> Result<&'static Self, c_int> {
        if !(1..=THREADS).contains(&threads) || cpu >= libc::CPU_SETSIZE {
            return Err(libc::EINVAL);
        }
        let bytes = size_of::<MaybeUninit<Self>>();
        let Some(memory) = posts::map(bytes) else { return Err(libc::ENOMEM) };
        let memory = memory.cast::<Self>();
        let ids = [const { AtomicU32::new(0) }; server::POOL];
        let (inner, stop) = (server::SectionServer::expected(), Atomic32::of(0));
        // SAFETY: fresh memory, aligned to a page.
        unsafe { memory.write(Self { inner, ids, stop, cpu, before: null() }) };
        // SAFETY: just written; it stays for ever, used or not.
        let server: &'static Self = unsafe { &*memory };
        fork::tell_child(When::Seen, in_child);
        for number in 0..threads {
            let answer = server.start_thread();
            if answer != 0 && number == 0 {
                return Err(answer);
            }
        }
        let mut last = SERVERS.load(Relaxed);
        loop {
            // SAFETY: nobody else has seen it.
            unsafe { (*memory).before = last };
            // ORDERING: AcqRel [start]: it was made before it is found, and so were those before it.
            match SERVERS.compare_exchange(last, memory, AcqRel, Relaxed) {
                Ok(_) => {
                    server.join_the_others();
                    return Ok(server);
                }
                Err(other) => last = other,
            }
        }
    }

    /// Makes a ring of all servers, in which locks move. Two that start at once may leave out others for a while, until the next start.
    fn join_the_others(&'static self) {
        let mut after: *const Self = self;
        for server in servers() {
            // SAFETY: both are static.
            unsafe { server.inner.beside(&raw const (*after).inner) };
            after = server;
        }
        if let Some(last) = servers().last() {
            // SAFETY: as above: the ring closes.
            unsafe { self.inner.beside(&raw const last.inner) };
        }
    }

    #[inline]
    fn start_thread(&'static self) -> c_int {
        #[inline]
        extern "C" fn run(server: *mut c_void) -> *mut c_void {
            // SAFETY: a server, which stays.
            let server = unsafe { &*server.cast::<ServerThreads>() };
            // SAFETY: a C string of less than 16 bytes.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), c"lw-server".as_ptr()) };
            // Relaxed, both: for `is_server`, which looks for its own.
            let me = thread::id();
            server.ids.iter().any(|id| id.compare_exchange(0, me, Relaxed, Relaxed).is_ok());
            server.stay();
            leave::guarded(&Others, || server.inner.serve::<Spins>(&server.stop, true));
            null_mut()
        }
        let this = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: all of it is ours; the new thread inherits the mask, and ours is restored.
        unsafe {
            let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let mut thread = MaybeUninit::uninit();
            let answer = libc::pthread_create(thread.as_mut_ptr(), null(), run, this);
            if answer == 0 {
                libc::pthread_detach(thread.assume_init());
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
            answer
        }
    }

    /// Binds the calling thread to the server's CPU. If that fails, the thread runs anywhere: slower, and right.
    fn stay(&self) {
        let Ok(cpu) = usize::try_from(self.cpu) else { return };
        // SAFETY: zeroes are an empty set, and the CPU is below its size.
        unsafe {
            let mut set: libc::cpu_set_t = MaybeUninit::zeroed().assume_init();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }

    /// Ends its threads. Whoever asks runs the section itself from now on.
    pub fn stop(&self) {
        // ORDERING: Release: what the caller wrote comes before the threads' end.
        self.stop.store(1, Release);
        self.inner.wake();
    }
}

/// The calling thread is in a child process, which has none of the servers' threads.
fn in_child() {
    for server in servers() {
        server.ids.iter().for_each(|id| id.store(0, Relaxed)); // the child has one thread
        server.inner.forget_threads();
    }
}
