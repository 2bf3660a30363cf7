//! The checkers, each reduced to what [`machine`](crate::machine) needs from it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fmt::{self, Display, Formatter};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one exploration may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The most preemptions in one execution: first one, then two, up to this.
    pub preemptions: usize,
    /// The time after which it stops, complete or not. `cargo xtask weaken` sets another by `LOCKWRIGHT_MODEL_MS`. In a soak nothing
    /// stops an exploration before its end without that variable.
    pub time: Duration,
    /// How many schedules to draw, where schedules are drawn.
    pub draws: usize,
}

impl Budget {
    fn time_limit(self) -> Duration {
        let asked = std::env::var("LOCKWRIGHT_MODEL_MS").ok().and_then(|ms| ms.parse().ok());
        let asked = asked.map(Duration::from_millis);
        match asked {
            Some(asked) => asked,
            None if is_soak() => Duration::MAX,
            None => self.time,
        }
    }
}

/// Does this run leave nothing out (`cargo xtask soak`)?
fn is_soak() -> bool {
    std::env::var_os("LOCKWRIGHT_SOAK").is_some()
}

/// What an exploration that found nothing wrong has covered. It is never nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every execution within the bound.
    Complete {
        /// The bound.
        preemptions: usize,
        /// The number of executions.
        executions: u64,
    },
    /// Some of them: the time was over.
    Partial {
        /// Every execution with up to this many preemptions, and some with more.
        preemptions: usize,
        /// How many in all.
        executions: u64,
    },
    /// Drawn at random.
    Drawn {
        /// How many.
        executions: u64,
    },
}

impl Display for Coverage {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete { preemptions, executions } => {
                write!(out, "complete to {preemptions} preemptions, {executions} executions")
            }
            Self::Partial { preemptions, executions } => {
                write!(
                    out,
                    "PARTIAL: complete to {preemptions} preemptions, {executions} executions"
                )
            }
            Self::Drawn { executions } => write!(out, "{executions} executions drawn"),
        }
    }
}

/// Counts the executions of `body`.
fn counted(
    body: impl Fn() + Send + Sync + 'static,
) -> (Arc<AtomicU64>, Arc<dyn Fn() + Send + Sync>) {
    let executions = Arc::new(AtomicU64::new(0));
    let count = executions.clone();
    let body = move || {
        count.fetch_add(1, Ordering::Relaxed);
        body();
    };
    (executions, Arc::new(body))
}

/// A model checker.
pub trait Checker: Send + Sync + 'static {
    /// Its atomic for words.
    type Word: Atomic<u32>;
    /// Its atomic for pointers.
    type Address: Atomic<usize>;
    /// Plain memory; the checker notices unordered accesses to it as far as it can.
    type Data: Data;
    /// A started thread.
    type Handle;
    /// Its name, in reports.
    const NAME: &'static str;

    /// Runs `body` under every schedule that it explores. Panics if one of them panics.
    fn explore(budget: Budget, body: impl Fn() + Send + Sync + 'static) -> Coverage;
    /// Starts a thread.
    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle;
    /// Waits for its end.
    fn join(handle: Self::Handle);
    /// Lets the others go on.
    fn yield_now();
    /// Tells threads apart, within one execution.
    fn thread() -> u64;
}

/// An atomic integer of a checker. The same operations as the ones in `core::sync::atomic`.
#[allow(missing_docs, reason = "each is core's method of that name")]
pub trait Atomic<V>: Send + Sync {
    fn new(value: V) -> Self;
    fn load(&self, order: Ordering) -> V;
    fn store(&self, value: V, order: Ordering);
    fn swap(&self, value: V, order: Ordering) -> V;
    fn compare_exchange(&self, old: V, new: V, ok: Ordering, no: Ordering) -> Result<V, V>;
    fn fetch_add(&self, value: V, order: Ordering) -> V;
    fn fetch_sub(&self, value: V, order: Ordering) -> V;
    fn fetch_or(&self, value: V, order: Ordering) -> V;
    fn fetch_and(&self, value: V, order: Ordering) -> V;
    /// The end of its memory: it is an error if a thread touched it without a happens-before to here.
    fn end(&mut self);
}

macro_rules! atomic {
    ($atomic:ty, $value:ty, $store:path, $fence:path, |$this:ident| $end:expr) => {
        impl Atomic<$value> for $atomic {
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            fn load(&self, order: Ordering) -> $value {
                $fence(order);
                <$atomic>::load(self, order)
            }
            fn store(&self, value: $value, order: Ordering) {
                $store(
                    || <$atomic>::fetch_or(self, 0, Ordering::Relaxed),
                    || <$atomic>::store(self, value, order),
                );
                $fence(order);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                let old = <$atomic>::swap(self, value, order);
                $fence(order);
                old
            }
            fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                ok: Ordering,
                no: Ordering,
            ) -> Result<$value, $value> {
                let result = <$atomic>::compare_exchange(self, old, new, ok, no);
                $fence(if result.is_ok() { ok } else { no });
                result
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                let old = <$atomic>::fetch_add(self, value, order);
                $fence(order);
                old
            }
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::fetch_sub(self, value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::fetch_or(self, value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::fetch_and(self, value, order)
            }
            fn end(&mut self) {
                let $this = self;
                $end
            }
        }
    };
}

/// In a word's modification order, loom may put a store before a read-modify-write of another thread, although the latter
/// ran first and did not read the store. Then a failed test-and-set would undo a release. So a store first reads the newest value,
/// in the same step. Then the modification order is the order of execution, and a store still starts a release sequence.
fn store_as_one_step<V>(read_newest: impl FnOnce() -> V, store: impl FnOnce()) {
    read_newest();
    loom::stop_exploring();
    store();
    loom::explore();
}

/// Loom treats SeqCst as AcqRel, but knows SeqCst fences. So we put a fence before each SeqCst load and after each SeqCst write: of
/// two threads that each write and then look at the other's word, at least one sees the other. The fences order more than C11
/// promises; the explorations of `lockwright explore` are exact here.
fn seq_cst_fence(order: Ordering) {
    if order == Ordering::SeqCst {
        loom::sync::atomic::fence(order);
    }
}

/// Shuttle needs no fence.
fn no_fence(_: Ordering) {}

/// Shuttle's modification order is the order of execution anyway.
fn store_alone<V>(_: impl FnOnce() -> V, store: impl FnOnce()) {
    store();
}

atomic!(loom::sync::atomic::AtomicU32, u32, store_as_one_step, seq_cst_fence, |this| this
    .with_mut(|_| ()));
atomic!(loom::sync::atomic::AtomicUsize, usize, store_as_one_step, seq_cst_fence, |this| this
    .with_mut(|_| ()));
// Shuttle tracks no happens-before of plain accesses; the machine's own mark still notices accesses after the end.
atomic!(shuttle::sync::atomic::AtomicU32, u32, store_alone, no_fence, |_this| ());
atomic!(shuttle::sync::atomic::AtomicUsize, usize, store_alone, no_fence, |_this| ());

/// Plain memory of a checker.
pub trait Data: Send + Sync {
    /// Zero.
    fn new() -> Self;
    /// Reads, adds one, writes: three steps that the checker may separate.
    fn bump(&self);
    /// Reads.
    fn get(&self) -> u32;
}

fn number(id: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// <https://docs.rs/loom>: exhaustive, with C11's weak orderings.
#[derive(Debug)]
pub struct Loom;

impl Checker for Loom {
    type Word = loom::sync::atomic::AtomicU32;
    type Address = loom::sync::atomic::AtomicUsize;
    type Data = LoomData;
    type Handle = loom::thread::JoinHandle<()>;
    const NAME: &'static str = "loom";

    fn explore(budget: Budget, body: impl Fn() + Send + Sync + 'static) -> Coverage {
        let time = budget.time_limit();
        let (count, body) = counted(body);
        let start = Instant::now();
        let mut complete = 0;
        for preemptions in 1..=budget.preemptions {
            // Use half of the time that is left, so that each bound gets its turn.
            let left = time.saturating_sub(start.elapsed());
            let share = if preemptions == budget.preemptions { left } else { left / 2 };
            let round = Instant::now();
            let mut builder = loom::model::Builder::new();
            builder.max_threads = 4;
            builder.max_branches = 20_000;
            builder.checkpoint_interval = 50; // this is also how often it looks at the clock
            builder.preemption_bound = Some(preemptions);
            builder.max_duration = Some(share);
            let body = body.clone();
            builder.check(move || body());
            if round.elapsed() < share {
                complete = preemptions;
            }
        }
        let executions = count.load(Ordering::Relaxed);
        assert_ne!(executions, 0, "a model that explores nothing shows nothing");
        if complete == budget.preemptions {
            Coverage::Complete { preemptions: complete, executions }
        } else {
            Coverage::Partial { preemptions: complete, executions }
        }
    }

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle {
        loom::thread::spawn(body)
    }

    fn join(handle: Self::Handle) {
        handle.join().expect("loom stops at the first panic");
    }

    fn yield_now() {
        loom::thread::yield_now();
    }

    fn thread() -> u64 {
        number(loom::thread::current().id())
    }
}

/// Plain memory under loom, which panics on unordered accesses.
#[derive(Debug)]
pub struct LoomData(loom::cell::UnsafeCell<u32>);

// SAFETY: loom runs all threads on one thread, and stops before an access that would be a race.
unsafe impl Sync for LoomData {}

impl Data for LoomData {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }
    fn bump(&self) {
        // SAFETY: loom panics if another access is not ordered with this one, which is what we want to find out.
        self.0.with_mut(|data| unsafe { *data += 1 });
    }
    fn get(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|data| unsafe { *data })
    }
}

/// <https://docs.rs/shuttle>: random schedules, sequentially consistent.
#[derive(Debug)]
pub struct Shuttle;

impl Checker for Shuttle {
    type Word = shuttle::sync::atomic::AtomicU32;
    type Address = shuttle::sync::atomic::AtomicUsize;
    type Data = shuttle::sync::atomic::AtomicU32;
    type Handle = shuttle::thread::JoinHandle<()>;
    const NAME: &'static str = "shuttle";

    fn explore(budget: Budget, body: impl Fn() + Send + Sync + 'static) -> Coverage {
        let (count, body) = counted(body);
        let uniform = body.clone();
        let draws = if is_soak() { 100 * budget.draws } else { budget.draws };
        // Both print the failing schedule, which `shuttle::replay` runs again.
        shuttle::check_random(move || uniform(), draws);
        shuttle::check_pct(move || body(), draws, 3);
        let executions = count.load(Ordering::Relaxed);
        assert_ne!(executions, 0, "a model that explores nothing shows nothing");
        Coverage::Drawn { executions }
    }

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle {
        shuttle::thread::spawn(body)
    }

    fn join(handle: Self::Handle) {
        handle.join().expect("shuttle stops at the first panic");
    }

    fn yield_now() {
        shuttle::thread::yield_now();
    }

    fn thread() -> u64 {
        number(shuttle::thread::current().id())
    }
}

impl Data for shuttle::sync::atomic::AtomicU32 {
    fn new() -> Self {
        Self::new(0)
    }
    fn bump(&self) {
        // Two steps, so that an increment between them gets lost.
        let before = self.load(Ordering::SeqCst);
        self.store(before + 1, Ordering::SeqCst);
    }
    fn get(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }
}
