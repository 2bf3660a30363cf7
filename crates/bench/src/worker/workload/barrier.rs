//! A barrier of all threads.

use crate::compute::{LengthPlan, compute};
use crate::spec::{Answer, Spec};
use crate::worker::monitor::Monitor;
use crate::worker::pass::{Line, Pass, answer_of};
use std::cell::UnsafeCell;
use std::time::Duration;

/// All threads meet repeatedly. The last one to arrive wakes the others.
pub(in crate::worker) fn barrier<C: Monitor>(spec: &Spec) -> Answer {
    #[derive(Default)]
    struct State {
        arrived: u32,
        round: u64,
        over: bool,
    }
    struct StateCell(UnsafeCell<State>);
    // SAFETY: accessed only under the monitor; if that fails, the rounds don't add up.
    unsafe impl Sync for StateCell {}

    let threads = spec.point.threads;
    let monitor = Line(C::new());
    let shared = Line(StateCell(UnsafeCell::new(State::default())));
    let state = || {
        let shared = &shared.0;
        shared.0.get()
    };
    let pass = Pass::new(spec);
    let passed = pass.run(
        threads,
        Duration::from_secs_f64(spec.time_s),
        |i| LengthPlan::of(spec, i),
        |_, mut plan| {
            let mut rounds = 0u64;
            loop {
                compute(plan.next().gap);
                let mut held = monitor.0.lock();
                // SAFETY: the monitor is held whenever the state is touched.
                let over = unsafe {
                    let round = (*state()).round;
                    (*state()).arrived += 1;
                    if (*state()).arrived == threads {
                        (*state()).arrived = 0;
                        (*state()).round += 1;
                        // The last one decides for all. Otherwise, some would wait for threads that have left.
                        (*state()).over = pass.stopped();
                        monitor.0.notify_all(0);
                    } else {
                        while (*state()).round == round {
                            held = monitor.0.wait(held, 0);
                        }
                    }
                    (*state()).over
                };
                drop(held);
                rounds += 1;
                if over {
                    break rounds;
                }
            }
        },
        || (),
    );
    // SAFETY: the threads have ended.
    let rounds = unsafe { (*state()).round };
    let mut answer = answer_of(&passed, rounds);
    answer.counted = passed.threads.iter().sum();
    answer.expected = rounds * u64::from(threads);
    answer
}
