//! What threads do with a lock, and what must hold.

use crate::checker::{Budget, Checker, Data};
use crate::machine::{self, Deadline, Machine};
use lockwright_platform::{Sections, TimedLock, TryLock};
use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// What runs under the lock: once, on any thread.
pub type Section<'a> = &'a mut (dyn FnMut() + Send);

/// A way for a thread to have its section run: `false` if it gave up.
pub type Way<L, N> = unsafe fn(&L, *mut N, Section<'_>) -> bool;

/// Waits as long as it takes.
///
/// # Safety
/// As [`Sections::with`].
pub unsafe fn lock<C, const SPINS: usize, L>(
    lock: &L,
    node: *mut L::Node,
    section: Section<'_>,
) -> bool
where
    C: Checker,
    L: Sections<Machine<C, SPINS>>,
{
    // SAFETY: the caller's promise.
    unsafe { lock.with(node, section) };
    true
}

/// Does not wait.
///
/// # Safety
/// As [`TryLock::try_with`].
pub unsafe fn try_lock<C, const SPINS: usize, L>(
    lock: &L,
    node: *mut L::Node,
    section: Section<'_>,
) -> bool
where
    C: Checker,
    L: TryLock<Machine<C, SPINS>>,
{
    // SAFETY: the caller's promise.
    unsafe { lock.try_with(node, section).is_some() }
}

/// Waits until the tick, which comes at any moment.
///
/// # Safety
/// As [`TimedLock::with_until`].
pub unsafe fn lock_until<C, const SPINS: usize, L>(
    lock: &L,
    node: *mut L::Node,
    section: Section<'_>,
) -> bool
where
    C: Checker,
    L: TimedLock<Machine<C, SPINS>>,
{
    // SAFETY: the caller's promise.
    unsafe { lock.with_until(node, Deadline::Soon, section).is_some() }
}

/// Explores the model called `name`; prints what it covered, and on failure what happened.
///
/// `LOCKWRIGHT_MODEL` selects models: see [`is_asked_for`]. `cargo xtask weaken` only needs the first one that fails.
pub fn explore<C: Checker>(name: &str, budget: Budget, body: impl Fn() + Send + Sync + 'static) {
    let word = name.split(',').next().unwrap_or_default();
    let is_listed = LISTED.with_borrow_mut(|listed| {
        listed.as_mut().map(|listed| listed.insert(word.to_owned())).is_some()
    });
    if is_listed || !is_asked_for(word) {
        return;
    }
    println!("{}: {name}", C::NAME);
    let start = std::time::Instant::now();
    let run = AssertUnwindSafe(|| C::explore(budget, body));
    match catch_unwind(run) {
        Ok(coverage) => println!("    {coverage} in {:.1} s", start.elapsed().as_secs_f32()),
        Err(panic) => {
            println!("    FAILED");
            machine::print_log();
            if std::env::var_os("LOCKWRIGHT_SITE").is_some() {
                std::process::exit(101);
            }
            resume_unwind(panic)
        }
    }
}

/// The words of `LOCKWRIGHT_MODEL`.
fn asked() -> Vec<String> {
    let asked = std::env::var("LOCKWRIGHT_MODEL").unwrap_or_default();
    asked.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Does `LOCKWRIGHT_MODEL` select the models whose names begin with this word, up to the first comma? Without words it selects all.
pub fn is_asked_for(word: &str) -> bool {
    let asked = asked();
    asked.is_empty() || asked.iter().any(|one| one == word)
}

thread_local! {
    /// While this thread only lists models: the words that select them.
    static LISTED: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

/// Fails if `LOCKWRIGHT_MODEL` has a word that selects none of the models that `all` explores, those of one file: a run that checks
/// nothing must not pass. Explores none itself; returns the words that select some.
pub fn only_known_models_are_asked_for(all: impl FnOnce()) -> BTreeSet<String> {
    LISTED.set(Some(BTreeSet::new()));
    all();
    let known = LISTED.take().expect("nobody else takes it");
    assert!(!known.is_empty(), "this file has no model");
    for word in asked() {
        assert!(
            known.contains(&word),
            "LOCKWRIGHT_MODEL: no model of this file is called '{word}'\nhint: it has {}",
            known.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        );
    }
    known
}

struct LockedData<C: Checker, L> {
    lock: L,
    data: C::Data,
    /// Acquisitions, counted out of the checker's sight.
    acquired: AtomicU32,
}

/// Runs one section with a node that ends right after it.
///
/// The node's memory stays, because a late wake may use its address. Its words end, so that a late access is noticed.
fn visit<C, const SPINS: usize, L>(lock: &L, way: Way<L, L::Node>, held: impl FnOnce() + Send)
where
    C: Checker,
    L: Sections<Machine<C, SPINS>>,
{
    let node: *mut L::Node = Box::into_raw(Box::default());
    // A panic in the section is resumed after the section: no checker lets a thread take steps while it unwinds.
    let (mut held, mut failed) = (Some(held), None);
    let mut section = || {
        let held = held.take().expect("a section runs once");
        failed = catch_unwind(AssertUnwindSafe(held)).err();
    };
    // SAFETY: the node is pinned, ours, and lives until the section is over.
    unsafe { way(lock, node, &mut section) };
    if let Some(cause) = failed {
        resume_unwind(cause);
    }
    // SAFETY: made above; its memory is leaked.
    unsafe { node.drop_in_place() };
}

/// As [`sections`]; in the end the lock can be taken without waiting.
pub fn exclusion<C, const SPINS: usize, L>(
    name: &str,
    budget: Budget,
    ways: Vec<Way<L, L::Node>>,
    time_passes: bool,
) where
    C: Checker,
    L: TryLock<Machine<C, SPINS>> + 'static,
{
    sections::<C, SPINS, L>(name, budget, ways, time_passes, try_lock::<C, SPINS, L>);
}

/// As [`exclusion`], for a lock whose waiters may show themselves in the machine's table; no thread's time passes.
pub fn exclusion_by_table<C, const SPINS: usize, L>(
    name: &str,
    budget: Budget,
    ways: Vec<Way<L, L::Node>>,
) where
    C: Checker,
    L: TryLock<Machine<C, SPINS>> + 'static,
{
    let last = try_lock::<C, SPINS, L>;
    sections_on::<C, SPINS, L>(with_table::<C>, name, budget, ways, false, last);
}

/// Begins an execution whose machine has its table.
fn with_table<C: Checker>() {
    machine::begin::<C>();
    machine::lay_table::<C>();
}

/// Each thread has one section run, in its own way, which increments a counter. No increment is lost, none overlaps another, and
/// in the end the lock is free for `last`.
pub fn sections<C, const SPINS: usize, L>(
    name: &str,
    budget: Budget,
    ways: Vec<Way<L, L::Node>>,
    time_passes: bool,
    last: Way<L, L::Node>,
) where
    C: Checker,
    L: Sections<Machine<C, SPINS>> + 'static,
{
    sections_on::<C, SPINS, L>(machine::begin::<C>, name, budget, ways, time_passes, last);
}

fn sections_on<C, const SPINS: usize, L>(
    begin: fn(),
    name: &str,
    budget: Budget,
    ways: Vec<Way<L, L::Node>>,
    time_passes: bool,
    last: Way<L, L::Node>,
) where
    C: Checker,
    L: Sections<Machine<C, SPINS>> + 'static,
{
    explore::<C>(name, budget, move || {
        begin();
        {
            let shared = Arc::new(LockedData::<C, L> {
                lock: L::new(),
                data: C::Data::new(),
                acquired: AtomicU32::new(0),
            });
            let increment = |shared: &LockedData<C, L>, way| {
                visit::<C, SPINS, L>(&shared.lock, way, || {
                    shared.data.bump();
                    shared.acquired.fetch_add(1, Relaxed);
                });
            };
            // Without a deadline the first thread need not tick, and takes part itself: one thread less to explore.
            let others = usize::from(!time_passes);
            let handles = ways[others..].iter().map(|&way| {
                let shared = shared.clone();
                machine::spawn::<C>(move || increment(&shared, way))
            });
            let handles = handles.collect();
            if time_passes {
                machine::tick::<C>();
            } else {
                increment(&shared, ways[0]);
            }
            machine::join::<C>(handles);
            assert_eq!(shared.data.get(), shared.acquired.load(Relaxed), "increments were lost");
            let is_free = AtomicBool::new(false);
            visit::<C, SPINS, L>(&shared.lock, last, || {
                is_free.store(true, Relaxed);
            });
            assert!(is_free.load(Relaxed), "nobody holds it, and it is not free");
        }
        machine::end();
    });
}

/// A lock that ends with the last thread that needs it, like a reference count under a lock.
struct Doomed<L> {
    lock: UnsafeCell<ManuallyDrop<L>>,
}
// SAFETY: the lock is shared as locks are; the last thread to hold it drops it.
unsafe impl<L: Sync> Sync for Doomed<L> {}
// SAFETY: as above.
unsafe impl<L: Send> Send for Doomed<L> {}

/// The last thread to hold the lock destroys it as soon as its own unlock has returned. That is legal in POSIX, so no unlock
/// may touch the lock once another thread can have it.
pub fn destruction<C, const SPINS: usize, L>(name: &str, budget: Budget, threads: u32)
where
    C: Checker,
    L: Sections<Machine<C, SPINS>> + 'static,
{
    destruction_on::<C, SPINS, L>(machine::begin::<C>, name, budget, threads);
}

/// As [`destruction`], for a lock whose waiters may show themselves in the machine's table.
pub fn destruction_by_table<C, const SPINS: usize, L>(name: &str, budget: Budget, threads: u32)
where
    C: Checker,
    L: Sections<Machine<C, SPINS>> + 'static,
{
    destruction_on::<C, SPINS, L>(with_table::<C>, name, budget, threads);
}

fn destruction_on<C, const SPINS: usize, L>(begin: fn(), name: &str, budget: Budget, threads: u32)
where
    C: Checker,
    L: Sections<Machine<C, SPINS>> + 'static,
{
    explore::<C>(name, budget, move || {
        begin();
        {
            let lock = ManuallyDrop::new(L::new());
            let shared = Arc::new(Doomed { lock: UnsafeCell::new(lock) });
            let left = Arc::new(AtomicU32::new(threads));
            let body = move || {
                let mut last = false;
                {
                    // SAFETY: it exists until the last thread has left.
                    let lock = unsafe { &*shared.lock.get() };
                    visit::<C, SPINS, L>(lock, self::lock::<C, SPINS, L>, || {
                        last = left.fetch_sub(1, Relaxed) == 1;
                    });
                }
                if last {
                    // SAFETY: nobody else will ask for it. A thread that still uses it is wrong, and the checker notices.
                    unsafe { ManuallyDrop::drop(&mut *shared.lock.get()) };
                }
            };
            let handles = (0..threads).map(|_| machine::spawn::<C>(body.clone())).collect();
            machine::join::<C>(handles);
        }
        machine::end();
    });
}
