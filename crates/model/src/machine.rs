//! The machine that a lock runs on inside a model checker.
//!
//! Threads, atomics and what reads may return are the checker's. Ours is waiting: a thread that waits is taken out of
//! the exploration until something happens that may end its wait, so that a wait is a few steps, not a loop:
//!
//! | a thread that | waits until |
//! |---|---|
//! | spins on a word | somebody changes the word |
//! | pauses without having seen anything new since its last pause | somebody changes any word |
//! | sleeps on a word | somebody wakes or requeues it by address; if it has a deadline, [`tick`] |
//!
//! A pause, or a nap with a length of its own, also ends when no thread can go on otherwise: time passes. A few times: a
//! thread that only waits for time, and never sees what it waits for, is a deadlock all the same.
//!
//! Rules that keep this sound:
//! 1. To look, to find nothing, and to start waiting is one step; to change a word and to end waits is one step. The
//!    atomic operation comes first in each, so the checker orders them as it orders any two operations on a word.
//! 2. A read may return an old value. Before a thread waits because of one, it reads the newest, by an operation that
//!    writes the same value again.
//! 3. Waiting and waking add no happens-before (so neither loom's `park` nor its mutexes are used): a lock that needs
//!    one has to say so by its orderings.
//! 4. A word ends with its owner. Later touches panic, unordered ones too (where the checker knows of order).
//! 5. When all threads wait, that is a deadlock, and the report names what each waits for.

use crate::checker::{Atomic, Checker};
use lockwright_platform::{Class, Ordering, Place, Platform, Ptr, Woken, Word};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A bounded spin that finds nothing takes this many times as long as it was asked to, as if its thread had been preempted: so a wait by
/// the clock is a few looks.
const LOOK_TAKES: u64 = 64;

/// A machine: `C` explores; a bounded spin looks `SPINS` times more than once.
#[derive(Debug)]
pub struct Machine<C, const SPINS: usize>(PhantomData<fn(C)>);

/// When a timed wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Not in this model.
    Never,
    /// At the [`tick`], which comes at any moment.
    Soon,
    /// After a while: at the tick, or when no thread can go on.
    Nap,
}

/// Slots of the table in which readers show what they hold.
const SLOTS: usize = 2;

/// How often in a row, without a change of any word, time may be what lets threads go on.
const PASSES: u32 = 8;

/// The model machine has big and little cores: of each three threads, one runs on a big core, one on a little one, and one
/// moves from a little to a big one after it has asked twice.
fn class_of(thread: u32, asked: u32) -> Class {
    match thread % 3 {
        1 => Class(1),
        2 if asked <= 2 => Class(1),
        _ => Class::BIG,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reason {
    Spins,
    Sleeps { timed: bool },
    Naps,
    Pauses,
}

struct Waiter {
    id: u64,
    reason: Reason,
    address: usize,
    /// It may be moved, and can be distinguished from others at its new place.
    movable: bool,
    /// The word's newest value, as long as the word may be asked for it.
    newest: Option<Arc<AtomicU64>>,
}

#[derive(Default)]
struct Pausing {
    seen: u64,
    read_old_value: bool,
    must_read_newest: bool,
}

/// One operation of one thread.
struct Step {
    thread: u64,
    what: &'static str,
    address: usize,
    value: u64,
}

/// What one execution knows beside the checker.
#[derive(Default)]
struct World {
    waiters: Vec<Waiter>,
    next_id: u64,
    /// Threads that have started and not ended.
    alive: usize,
    /// Threads of those that wait for another's end.
    joining: usize,
    /// Changes of any word.
    changes: u64,
    /// How long bounded spins have looked for nothing, ns.
    looked_ns: u64,
    ticked: bool,
    /// How often time has let a thread go on since the last change.
    passes: u32,
    spawned: u32,
    /// Each thread's number, in the order of their making, and how often it has asked where it runs.
    places: HashMap<u64, (u32, u32)>,
    pausing: HashMap<u64, Pausing>,
    lines_out: isize,
    /// Where the table of [`Platform::shown`] is, of [`lay_table`].
    table: Option<usize>,
    running: bool,
    /// What happened, for the report of a failure.
    log: Vec<Step>,
    /// What calls of the kernel have in common, so that the checker tries their orders: an atomic of its own.
    kernel: Option<Rc<dyn Any>>,
}

thread_local! {
    // The checkers run all threads of an execution on one operating-system thread.
    static WORLD: RefCell<World> = RefCell::default();
}

fn world<R>(f: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(f)
}

impl World {
    fn all_wait(&self) -> bool {
        let can_time_out = |w: &Waiter| {
            self.ticked && (w.reason == Reason::Sleeps { timed: true } || w.reason == Reason::Naps)
        };
        self.waiters.len() + self.joining == self.alive && !self.waiters.iter().any(can_time_out)
    }

    fn report(&self) -> String {
        let each: Vec<String> =
            self.waiters.iter().map(|w| format!("{:?} at {:#x}", w.reason, w.address)).collect();
        format!("deadlock: {} threads, {} join, {}", self.alive, self.joining, each.join(", "))
    }

    /// Ends the sleep of at most `count` at `address`, of those that are `meant`.
    fn wake(&mut self, address: usize, count: u32, meant: impl Fn(&Waiter) -> bool) -> u32 {
        let mut left = count;
        self.waiters.retain(|waiter| {
            let sleeps = matches!(waiter.reason, Reason::Sleeps { .. } | Reason::Naps);
            let wakes = sleeps && waiter.address == address && left > 0 && meant(waiter);
            left -= u32::from(wakes);
            !wakes
        });
        count - left
    }

    fn changed(&mut self, address: usize) {
        self.changes += 1;
        self.passes = 0;
        self.waiters.retain(|w| match w.reason {
            Reason::Spins => w.address != address,
            Reason::Pauses => false,
            Reason::Sleeps { .. } | Reason::Naps => true,
        });
    }
}

/// Adds a step to the report.
fn log<C: Checker>(what: &'static str, address: usize, value: u64) {
    let thread = C::thread();
    world(|w| w.log.push(Step { thread, what, address, value }));
}

/// Prints what happened in the execution that fails: threads, addresses as `a0`, `a1`, ... in the order of their first use.
pub fn print_log() {
    let Ok(log) = WORLD.try_with(|w| w.try_borrow_mut().map(|mut w| std::mem::take(&mut w.log)))
    else {
        return;
    };
    let (mut threads, mut places) = (Vec::new(), Vec::new());
    let index = |known: &mut Vec<u64>, one: u64| match known.iter().position(|&k| k == one) {
        Some(index) => index,
        None => {
            known.push(one);
            known.len() - 1
        }
    };
    for step in log.unwrap_or_default() {
        let thread = index(&mut threads, step.thread);
        let place = index(&mut places, step.address as u64);
        eprintln!("  thread {thread}: {:<12} a{place} {:#x}", step.what, step.value);
    }
}

/// Starts the world of an execution, whose first thread is the caller.
pub fn begin<C: Checker>() {
    let kernel: Rc<dyn Any> = Rc::new(C::Word::new(0));
    world(|w| *w = World { alive: 1, running: true, kernel: Some(kernel), ..World::default() });
}

/// Gives this execution the table in which readers show what they hold; without, there is none.
pub fn lay_table<C: Checker>() {
    let table: Vec<ModelPtr<C, u8>> = (0..SLOTS).map(|_| Ptr::new(std::ptr::null_mut())).collect();
    // Never freed: it outlives the execution, and no slot ends.
    world(|w| w.table = Some(table.leak().as_ptr().expose_provenance()));
}

/// Ends it: nothing may be left.
pub fn end() {
    world(|w| {
        assert_eq!(w.alive, 1, "all threads have ended");
        assert_eq!(w.lines_out, 0, "lines that were taken and not given back");
        w.running = false;
    });
}

/// Enters the kernel: a step that the checker may put before or after any other such step, without a happens-before.
fn enter_kernel<C: Checker>() {
    let kernel = world(|w| w.kernel.clone()).expect("an execution goes on");
    let kernel = kernel.downcast_ref::<C::Word>().expect("of this checker");
    kernel.fetch_or(0, Ordering::Relaxed);
}

/// Time passes: every timed sleep may end from now on.
pub fn tick<C: Checker>() {
    enter_kernel::<C>();
    log::<C>("tick", 0, 0);
    world(|w| w.ticked = true);
}

/// Starts a thread.
pub fn spawn<C: Checker>(body: impl FnOnce() + Send + 'static) -> C::Handle {
    let number = world(|w| {
        w.alive += 1;
        w.spawned += 1;
        w.spawned
    });
    C::spawn(move || {
        world(|w| w.places.insert(C::thread(), (number, 0)));
        body();
        world(|w| w.alive -= 1);
    })
}

/// The calling thread's number, in the order of their making; the first is 0.
pub fn number<C: Checker>() -> u32 {
    world(|w| w.places.entry(C::thread()).or_default().0)
}

/// Waits for the end of `handles`.
pub fn join<C: Checker>(handles: Vec<C::Handle>) {
    world(|w| w.joining += 1);
    for handle in handles {
        C::join(handle);
    }
    world(|w| w.joining -= 1);
}

/// The calling thread has let some time pass: what it reads next is not older than what it could have read before.
fn time_passed<C: Checker>() {
    let me = C::thread();
    world(|w| {
        let changes = w.changes;
        let me = w.pausing.entry(me).or_default();
        me.seen = changes;
        me.must_read_newest = me.read_old_value;
        me.read_old_value = false;
    });
}

/// Sleeps while `word` is `seen`.
fn sleep<C: Checker>(
    word: &ModelWord<C>,
    seen: u32,
    deadline: Option<Deadline>,
    movable: bool,
) -> Woken {
    enter_kernel::<C>();
    if word.read_newest(Ordering::Relaxed) != seen {
        return Woken::Maybe;
    }
    let newest = Some(word.newest.clone());
    let reason = match deadline {
        Some(Deadline::Nap) => Reason::Naps,
        deadline => Reason::Sleeps { timed: deadline == Some(Deadline::Soon) },
    };
    let naps = reason == Reason::Naps;
    let woken = wait::<C>(reason, word.address(), newest, movable);
    if naps {
        time_passed::<C>();
        // After the tick a nap ends at once: others must have their turn, or a thread that naps while it waits for them
        // keeps a checker that goes by priorities forever.
        C::yield_now();
    }
    if woken { Woken::Maybe } else { Woken::TimedOut }
}

/// Waits until somebody takes us off the list (`true`), or the tick.
fn wait<C: Checker>(
    reason: Reason,
    address: usize,
    newest: Option<Arc<AtomicU64>>,
    movable: bool,
) -> bool {
    let passes = matches!(reason, Reason::Naps | Reason::Pauses);
    let timed = reason == Reason::Naps || reason == Reason::Sleeps { timed: true };
    log::<C>(if reason == Reason::Spins { "spins" } else { "sleeps" }, address, 0);
    let id = world(|w| {
        w.next_id += 1;
        w.waiters.push(Waiter { id: w.next_id, reason, address, movable, newest });
        w.next_id
    });
    loop {
        let outcome = world(|w| {
            if !w.waiters.iter().any(|other| other.id == id) {
                return Some(Ok(true));
            }
            if timed && w.ticked {
                w.waiters.retain(|other| other.id != id);
                return Some(Ok(false));
            }
            if !w.all_wait() {
                return None;
            }
            if passes && w.passes < PASSES {
                w.passes += 1;
                w.waiters.retain(|other| other.id != id);
                return Some(Ok(false));
            }
            let others_pass =
                w.waiters.iter().any(|w| matches!(w.reason, Reason::Naps | Reason::Pauses));
            (!others_pass || w.passes >= PASSES).then(|| Err(w.report()))
        });
        match outcome {
            Some(Ok(woken)) => {
                log::<C>(if woken { "goes on" } else { "timed out" }, address, 0);
                return woken;
            }
            Some(Err(deadlock)) => panic!("{deadlock}"),
            None => C::yield_now(),
        }
    }
}

/// A checker's atomic, with the knowledge that waiting needs.
#[derive(Debug)]
pub struct Cell<C: Checker, V: Into64, A: Atomic<V>> {
    alive: AtomicBool,
    atomic: A,
    newest: Arc<AtomicU64>,
    types: PhantomData<fn(C, V)>,
}

/// An integer that a cell may hold.
#[allow(missing_docs, reason = "two constants and a conversion")]
pub trait Into64: Copy + Eq + Default {
    fn into64(self) -> u64;
}
impl Into64 for u32 {
    fn into64(self) -> u64 {
        self.into()
    }
}
impl Into64 for usize {
    fn into64(self) -> u64 {
        self as u64
    }
}

impl<C: Checker, V: Into64, A: Atomic<V>> Cell<C, V, A> {
    fn make(value: V) -> Self {
        Self {
            alive: AtomicBool::new(true),
            atomic: A::new(value),
            newest: Arc::new(AtomicU64::new(value.into64())),
            types: PhantomData,
        }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// The atomic, if its memory is still there.
    fn live(&self) -> &A {
        assert!(self.alive.load(Relaxed), "touched a word whose memory was given up");
        &self.atomic
    }

    /// After an operation that wrote: rule 1.
    fn wrote(&self, value: V) {
        log::<C>("write", self.address(), value.into64());
        if self.newest.swap(value.into64(), Relaxed) != value.into64() {
            world(|w| w.changed(self.address()));
        }
    }

    fn is_newest(&self, value: V) -> bool {
        self.newest.load(Relaxed) == value.into64()
    }

    fn read(&self, order: Ordering) -> V {
        let pausing = world(|w| !w.pausing.is_empty());
        if pausing && world(|w| w.pausing.entry(C::thread()).or_default().must_read_newest) {
            return self.read_newest(order);
        }
        let value = self.live().load(order);
        log::<C>("load", self.address(), value.into64());
        if !self.is_newest(value) {
            world(|w| w.pausing.entry(C::thread()).or_default().read_old_value = true);
        }
        value
    }

    fn read_newest(&self, order: Ordering) -> V {
        let value = self.live().fetch_or(V::default(), order);
        log::<C>("look", self.address(), value.into64());
        value
    }

    fn write(&self, value: V, order: Ordering) {
        self.live().store(value, order);
        self.wrote(value);
    }

    fn exchange(&self, value: V, order: Ordering) -> V {
        let before = self.live().swap(value, order);
        self.wrote(value);
        before
    }

    fn exchange_if(&self, old: V, new: V, ok: Ordering, no: Ordering) -> Result<V, V> {
        let result = self.live().compare_exchange(old, new, ok, no);
        if result.is_ok() {
            self.wrote(new);
        }
        result
    }

    fn spin(&self, order: Ordering, done: impl Fn(V) -> bool) -> V {
        loop {
            let mut value = self.live().load(order);
            log::<C>("spin", self.address(), value.into64());
            if !done(value) && !self.is_newest(value) {
                value = self.read_newest(order); // rule 2
            }
            if done(value) {
                return value;
            }
            wait::<C>(Reason::Spins, self.address(), None, false);
        }
    }
}

impl<C: Checker, V: Into64, A: Atomic<V>> Drop for Cell<C, V, A> {
    fn drop(&mut self) {
        if world(|w| w.running) && !std::thread::panicking() {
            self.alive.store(false, Relaxed);
            self.atomic.end();
        }
    }
}

/// A word of the machine.
pub type ModelWord<C> = Cell<C, u32, <C as Checker>::Word>;

impl<C: Checker> Word for ModelWord<C> {
    fn new(value: u32) -> Self {
        Self::make(value)
    }
    fn load(&self, order: Ordering) -> u32 {
        self.read(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.write(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.exchange(value, order)
    }
    fn compare_exchange(&self, old: u32, new: u32, ok: Ordering, no: Ordering) -> Result<u32, u32> {
        self.exchange_if(old, new, ok, no)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_add(value, order);
        self.wrote(before.wrapping_add(value));
        before
    }
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_sub(value, order);
        self.wrote(before.wrapping_sub(value));
        before
    }
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_or(bits, order);
        self.wrote(before | bits);
        before
    }
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_and(bits, order);
        self.wrote(before & bits);
        before
    }
}

/// A pointer of the machine.
#[derive(Debug)]
pub struct ModelPtr<C: Checker, T> {
    cell: Cell<C, usize, C::Address>,
    to: PhantomData<core::sync::atomic::AtomicPtr<T>>,
}

fn from_address<T>(address: usize) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address)
}

impl<C: Checker, T> Ptr<T> for ModelPtr<C, T> {
    fn new(value: *mut T) -> Self {
        Self { cell: Cell::make(value.expose_provenance()), to: PhantomData }
    }
    fn load(&self, order: Ordering) -> *mut T {
        from_address(self.cell.read(order))
    }
    fn store(&self, value: *mut T, order: Ordering) {
        self.cell.write(value.expose_provenance(), order);
    }
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        from_address(self.cell.exchange(value.expose_provenance(), order))
    }
    fn compare_exchange(
        &self,
        old: *mut T,
        new: *mut T,
        ok: Ordering,
        no: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.cell
            .exchange_if(old.addr(), new.expose_provenance(), ok, no)
            .map(from_address)
            .map_err(from_address)
    }
}

/// A line of memory. The checkers' words are larger than a machine's.
#[repr(C, align(128))]
struct Line([u8; 1024]);

impl<C: Checker, const SPINS: usize> Platform for Machine<C, SPINS> {
    type Word = ModelWord<C>;
    type Ptr<T> = ModelPtr<C, T>;
    type Deadline = Deadline;

    fn spin_until(word: &Self::Word, order: Ordering, done: impl Fn(u32) -> bool) -> u32 {
        word.spin(order, done)
    }

    fn spin_until_ptr<T>(
        ptr: &Self::Ptr<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T {
        from_address(ptr.cell.spin(order, |address| done(from_address(address))))
    }

    fn spin_for(
        word: &Self::Word,
        order: Ordering,
        ns: u32,
        mut done: impl FnMut(u32) -> bool,
    ) -> u32 {
        let mut value = word.read(order);
        for _ in 0..SPINS {
            if done(value) {
                return value;
            }
            value = word.read(order);
        }
        if !done(value) {
            world(|w| w.looked_ns += LOOK_TAKES * u64::from(ns));
        }
        value
    }

    fn pause(_ns: u32) {
        let me = C::thread();
        let nothing_new = world(|w| {
            let changes = w.changes;
            let me = w.pausing.entry(me).or_default();
            !me.read_old_value && me.seen == changes
        });
        if nothing_new {
            // It would do the same again, and see the same.
            wait::<C>(Reason::Pauses, 0, None, false);
        }
        time_passed::<C>();
    }

    fn park(word: &Self::Word, seen: u32, deadline: Option<Deadline>) -> Woken {
        sleep::<C>(word, seen, deadline, false)
    }

    fn unpark(word: *const Self::Word, count: u32) {
        enter_kernel::<C>();
        log::<C>("unpark", word.addr(), count.into());
        world(|w| w.wake(word.addr(), count, |_| true));
    }

    fn park_movable(word: &Self::Word, seen: u32, deadline: Option<Deadline>) -> Woken {
        sleep::<C>(word, seen, deadline, true)
    }

    fn unpark_moved(word: *const Self::Word, count: u32) -> u32 {
        enter_kernel::<C>();
        log::<C>("unpark moved", word.addr(), count.into());
        world(|w| w.wake(word.addr(), count, |waiter| waiter.movable))
    }

    fn requeue(from: *const Self::Word, seen: u32, to: *const Self::Word, count: u32) -> u32 {
        enter_kernel::<C>();
        log::<C>("requeue from", from.addr(), seen.into());
        log::<C>("requeue to", to.addr(), count.into());
        world(|w| {
            let mut moved = 0;
            for waiter in &mut w.waiters {
                // With a deadline, too: it stays as it is.
                let sleeps = matches!(waiter.reason, Reason::Sleeps { .. } | Reason::Naps);
                if !sleeps || waiter.address != from.addr() || moved == count {
                    continue;
                }
                if waiter.newest.as_ref().is_some_and(|v| v.load(Relaxed) != u64::from(seen)) {
                    return moved;
                }
                waiter.address = to.addr();
                waiter.newest = None; // its word is another one now, which need not be there any more
                moved += 1;
            }
            moved
        })
    }

    fn now() -> u64 {
        world(|w| w.changes + w.looked_ns)
    }

    fn after(_: u32) -> Deadline {
        Deadline::Nap
    }

    fn place() -> Place {
        let me = C::thread();
        let class = world(|w| {
            let (number, asked) = w.places.entry(me).or_default(); // the first thread is number 0
            *asked += 1;
            class_of(*number, *asked)
        });
        Place { cpu: 0, class, domain: class.0.into() }
    }

    fn cpus() -> u32 {
        2
    }

    const ROWS: usize = 1;
    const ROW: usize = SLOTS;

    fn shown<R>(slot: usize, look: impl FnOnce(&Self::Ptr<u8>) -> R) -> Option<R> {
        let table = world(|w| w.table).filter(|_| slot < SLOTS)?;
        // SAFETY: `lay_table` of this execution, so of this checker, has left it there.
        Some(look(unsafe { &*std::ptr::with_exposed_provenance::<Self::Ptr<u8>>(table).add(slot) }))
    }

    const LINE: usize = 1024;

    fn take_line() -> *mut u8 {
        world(|w| w.lines_out += 1);
        // Never freed: a line stays readable.
        Box::into_raw(Box::new(Line([0; 1024]))).cast()
    }

    unsafe fn give_line(_line: *mut u8) {
        world(|w| w.lines_out -= 1);
    }
}
