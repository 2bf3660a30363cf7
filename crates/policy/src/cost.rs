//! What a question to a policy costs here.

use crate::jit;
use crate::loaded::{Engine, LoadError, Loaded};
use crate::verify::Verified;
use lockwright_platform::hooks::{ASLEEP, Context, Hook, IN_EPOCH, Node, OFF_CPU, World};
use std::time::{Duration, Instant};

/// What a question to a hook costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The hook.
    pub hook: Hook,
    /// How it was executed.
    pub engine: Engine,
    /// In the context in the middle: half of those tried cost more. Nanoseconds, with about half of one for the call itself.
    pub median_ns: f64,
    /// In the context that costs most of those tried, ns.
    pub worst_ns: f64,
}

/// How many contexts are tried.
const CONTEXTS: usize = 16;
/// Batches for each context; their median counts.
const BATCHES: usize = 31;
/// How long a hook is measured, at most: then no further batch begins. One call may take milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a batch lasts, at least.
const BATCH: Duration = Duration::from_micros(20);

/// Measures what each hook costs, in the order of the object: compiled, if this machine has a compiler, else interpreted. Takes about 10
/// ms a hook, or 100 ms and a call if its calls are slow. Its maps begin as the object has them, and helpers answer as this machine does.
///
/// # Errors
/// If the policy can't be loaded.
pub fn cost(verified: &Verified) -> Result<Vec<Cost>, LoadError> {
    let engine = if jit::HERE.is_some() { Engine::Jit } else { Engine::Interpreter };
    let loaded = Loaded::new(verified, engine)?;
    let contexts = contexts();
    let hooks = verified.object().hooks.iter().map(|code| code.hook);
    Ok(hooks.map(|hook| of_hook(&loaded, hook, engine, &contexts)).collect())
}

fn of_hook(loaded: &Loaded, hook: Hook, engine: Engine, contexts: &[Context]) -> Cost {
    let mut costs = per_calls(loaded, hook, contexts, Instant::now() + PATIENCE);
    costs.sort_by(f64::total_cmp);
    Cost { hook, engine, median_ns: costs[costs.len() / 2], worst_ns: costs[costs.len() - 1] }
}

/// In each context for which there is time until `end`, at least in the first.
fn per_calls(loaded: &Loaded, hook: Hook, contexts: &[Context], end: Instant) -> Vec<f64> {
    let is_time = |at: usize| at == 0 || Instant::now() < end;
    let tried = contexts.iter().enumerate().take_while(|(at, _)| is_time(*at));
    tried.map(|(_, context)| per_call(loaded, hook, context, end)).collect()
}

/// The median of batches, ns a call.
fn per_call(loaded: &Loaded, hook: Hook, context: &Context, end: Instant) -> f64 {
    let batch = |times: u32| {
        let start = Instant::now();
        loaded.repeat(hook, context, times, &Here);
        start.elapsed()
    };
    let mut times = 1;
    let mut batches = vec![batch(times)];
    while batches[0] < BATCH && times < 1 << 20 {
        times *= 2;
        batches[0] = batch(times);
    }
    while batches.len() < BATCHES && Instant::now() < end {
        batches.push(batch(times));
    }
    batches.sort_unstable();
    batches[batches.len() / 2].as_secs_f64() * 1e9 / f64::from(times)
}

/// Nothing, everything, and what a line may look like, in many ways: so that each branch goes either way.
fn contexts() -> Vec<Context> {
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        // A linear congruential generator (Knuth, MMIX); its upper bits are good.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut node = || Node {
        tid: 1000 + draw(64) as u32,
        cpu: draw(8) as u32,
        numa: draw(2) as u32,
        core_class: draw(2) as u32,
        prio: draw(3) as i32 - 1,
        flags: draw(8) as u32 & (ASLEEP | OFF_CPU | IN_EPOCH),
        speed: 256 + draw(768) as u32,
        passed: draw(4) as u32,
        wait_ns: draw(5_000_000),
        cs_ns: draw(20_000),
        cs_total_ns: draw(1_000_000_000),
        held_locks: draw(3) as u32,
        window_ns: draw(100_000_000) as u32,
        slo_ns: draw(2) * 1_000_000,
        tag: draw(4),
    };
    let mut contexts = vec![Context::default()];
    contexts.resize_with(CONTEXTS - 1, || Context {
        lock_id: 0x7f00_0000_1000,
        nwaiters: 8,
        now_ns: 1_000_000_000,
        avg_cs_ns: 1000,
        own: node(),
        best: node(),
        curr: node(),
        ..Context::default()
    });
    for (round, context) in (0..).zip(&mut contexts) {
        (context.round, context.batch) = (round, round / 2);
    }
    contexts.push(full());
    contexts
}

/// Each number is the largest.
fn full() -> Context {
    let node = Node {
        tid: u32::MAX,
        cpu: u32::MAX,
        numa: u32::MAX,
        core_class: u32::MAX,
        prio: i32::MAX,
        flags: u32::MAX,
        speed: u32::MAX,
        passed: u32::MAX,
        wait_ns: u64::MAX,
        cs_ns: u64::MAX,
        cs_total_ns: u64::MAX,
        held_locks: u32::MAX,
        window_ns: u32::MAX,
        slo_ns: u64::MAX,
        tag: u64::MAX,
    };
    Context {
        reserved: 0,
        lock_id: u64::MAX,
        lock_kind: u32::MAX,
        round: u32::MAX,
        batch: u32::MAX,
        nwaiters: u32::MAX,
        now_ns: u64::MAX,
        avg_cs_ns: u64::MAX,
        own: node,
        best: node,
        curr: node,
    }
}

/// This machine, as a process under lockwright sees it.
struct Here;

impl World for Here {
    fn now(&self) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes what is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    fn cpu(&self) -> u32 {
        // SAFETY: no more than a call.
        unsafe { libc::sched_getcpu() }.max(0).cast_unsigned()
    }

    fn numa(&self) -> u32 {
        0
    }

    fn class(&self) -> u32 {
        0
    }

    fn pid_tgid(&self) -> u64 {
        1 << 32 | 1
    }

    fn tag(&self, _: u32) -> u64 {
        0
    }

    fn prio(&self, _: u32) -> i32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::testing::{mov, object};
    use crate::verify::verify;

    #[test]
    fn no_batch_begins_after_the_end() {
        let verified = verify(object(Hook::LockAcquire, &[mov(0, 0), Op::Exit], &[])).unwrap();
        let loaded = Loaded::new(&verified, Engine::Interpreter).unwrap();
        let tried = |end| per_calls(&loaded, Hook::LockAcquire, &contexts(), end).len();
        let now = Instant::now();
        assert_eq!((tried(now), tried(now + Duration::from_hours(1))), (1, CONTEXTS));
    }
}
