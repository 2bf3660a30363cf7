//! Threads that are bound to CPUs and start together.

use lockwright_bench::pin_to;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Runs `work(0)`, `work(1)`, ... at the same time, each on a new thread bound to `cpus[0]`, `cpus[1]`, .... Returns
/// their results.
pub(crate) fn together<R: Send>(cpus: &[usize], work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let ready = AtomicUsize::new(0);
    let (ready, work) = (&ready, &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(number, &cpu)| {
                scope.spawn(move || {
                    pin_to(cpu);
                    ready.fetch_add(1, AcqRel);
                    // Several threads may share a CPU.
                    while ready.load(Acquire) < cpus.len() {
                        std::thread::yield_now();
                    }
                    work(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("panics abort")).collect()
    })
}

/// Runs `work` on a new thread bound to `cpu`.
pub(crate) fn on<R: Send>(cpu: usize, work: impl Fn() -> R + Sync) -> R {
    together(&[cpu], |_| work()).pop().expect("one thread returns one result")
}
