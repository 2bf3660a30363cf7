//! Policies in eBPF, compiled, against the same in Rust, on this machine's cores: what simulated time can't say. Threads take turns at a
//! lock `programmed`, and rounds with either policy alternate.
//!
//! `cargo bench -p lockwright-figures`. The ratios are eBPF's throughput to Rust's: their median, and the quartiles.

use lockwright_figures::policies::native_and_in_rust;
use lockwright_locks::front::{Alone, By, Tune, Tuning, programmed};
use lockwright_native::{Native, policies};
use lockwright_numbers::quantile;
use lockwright_platform::hooks::{Answer, Context, Hook, Node, Policy, World};
use lockwright_platform::{Platform, RawLock, Sections};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const ROUND: Duration = Duration::from_millis(50);
const ROUNDS: usize = 60;

/// The policy in this slot: 1 is in eBPF, 2 in Rust.
struct Slot<const N: u32>;

impl<const N: u32> Tune for Slot<N> {
    fn tune(tuning: Tuning) -> Tuning {
        Tuning { policy: N, ..tuning }
    }
}

/// A lock that such a policy programs.
type Programmed<T> = Alone<Native, programmed::Lock, T>;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
    static POLICIES: RefCell<Option<[Box<dyn Policy>; 2]>> = const { RefCell::new(None) };
}

/// The calling thread, on this machine.
struct Here;

impl World for Here {
    fn now(&self) -> u64 {
        Native::now()
    }
    fn cpu(&self) -> u32 {
        Native::place().cpu
    }
    fn numa(&self) -> u32 {
        Native::place().domain.into()
    }
    fn class(&self) -> u32 {
        Native::place().class.0.into()
    }
    fn pid_tgid(&self) -> u64 {
        0
    }
    fn tag(&self, _: u32) -> u64 {
        0
    }
    fn prio(&self, _: u32) -> i32 {
        0
    }
}

fn ask(slot: u32, hook: Hook, context: &Context) -> u64 {
    ASKED.set(ASKED.get() + 1);
    POLICIES.with_borrow(|all| {
        let all = all.as_ref().expect("each thread has them");
        let Answer { value, .. } = all[slot as usize - 1].ask(hook, context, &Here);
        value
    })
}

static ANSWERS: policies::Answers =
    policies::Answers { ask, describe: |_: &mut Node| (), boost: |_| (), unboost: || () };

/// Sections and questions in a round, by all threads.
fn round<T: Tune>(name: &'static str, threads: usize) -> [u64; 2] {
    let lock = Programmed::<T>::new();
    let (stop, count, asked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                POLICIES.set(native_and_in_rust(name));
                let mut own = 0_u64;
                while !stop.load(Relaxed) {
                    let mut by = By::default();
                    // SAFETY: the node stays here until `unlock` returns.
                    unsafe {
                        lock.lock(&raw mut by);
                        work(100);
                        lock.unlock(&raw mut by);
                    }
                    work(100);
                    own += 1;
                }
                count.fetch_add(own, Relaxed);
                asked.fetch_add(ASKED.get(), Relaxed);
            });
        }
        std::thread::sleep(ROUND);
        stop.store(true, Relaxed);
    });
    [count, asked].map(|count| count.load(Relaxed))
}

/// Computes a little.
fn work(steps: u32) {
    for step in 0..steps {
        black_box(step);
    }
}

fn main() {
    // `cargo test --all-targets` runs it, too, and wants no figures.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    policies::answer_by(&ANSWERS);
    for (name, threads) in [("slo-order", 2), ("numa", 4)] {
        let Some(both) = native_and_in_rust(name) else {
            println!("no compiler of policies for this machine");
            return;
        };
        for (policy, slot) in both.iter().zip(1..) {
            policies::word(slot).expect("a slot").store(policy.hooks(), Relaxed);
        }
        let (mut asked, mut ratios) = ([0; 2], Vec::new());
        for at in 0..ROUNDS {
            let rounds = [round::<Slot<1>>, round::<Slot<2>>];
            let mut sections = [0; 2];
            // Each comes first in half of the rounds.
            for which in [at % 2, 1 - at % 2] {
                let [count, questions] = rounds[which](name, threads);
                sections[which] = count;
                asked[which] += questions;
            }
            ratios.push(sections[0] as f64 / sections[1] as f64);
        }
        ratios.sort_by(f64::total_cmp);
        let [low, median, high] =
            [0.25, 0.5, 0.75].map(|share| quantile(&ratios, share).unwrap_or(f64::NAN));
        let [ebpf, rust] = asked;
        println!(
            "{name}, {threads} threads (real): {median:.3} ({low:.3} to {high:.3}); asked {ebpf} and {rust} times"
        );
    }
}
