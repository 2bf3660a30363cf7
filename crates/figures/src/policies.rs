//! Locks that policies program: those that we ship, in eBPF, and a few in Rust, to compare.

use lockwright_platform::hooks::{Answer, Context, Hook, Policy, READER, READS, THREADS, World};
use lockwright_policy::loaded::{Engine, Loaded};
use lockwright_policy::object::{HookCode, Insn, Object};
use lockwright_policy::shipped::shipped;
use lockwright_policy::verify::{Verified, verify};
use lockwright_sim::{LockSpec, SlotPolicy};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The slot of these policies.
const SLOT: u32 = 1;

/// `lock`, programmed by a policy in Rust.
fn programmed(
    lock: &str,
    name: &str,
    make: impl Fn() -> Box<dyn Policy> + Send + Sync + 'static,
) -> LockSpec {
    let lock = LockSpec::parse(lock).and_then(|lock| lock.with("slot", SLOT));
    lock.expect("a lock with a slot").programmed(SLOT, SlotPolicy::new(name, make))
}

/// What the locks that policies in Rust program are called.
const IN_RUST: &str = "in-rust";

/// `lock`, programmed by a verified policy.
fn in_ebpf(lock: &str, name: &str, verified: Arc<Verified>) -> LockSpec {
    programmed(lock, name, move || {
        // It counts instructions, which the simulator's time depends on.
        Box::new(Loaded::new(&verified, Engine::Interpreter).expect("its maps can be"))
    })
}

/// `lock`, programmed by the policy of that name that we ship.
pub fn by_shipped(lock: &str, name: &'static str) -> LockSpec {
    in_ebpf(lock, name, verified(name))
}

fn verified(name: &'static str) -> Arc<Verified> {
    static VERIFIED: Mutex<BTreeMap<&str, Arc<Verified>>> = Mutex::new(BTreeMap::new());
    let mut known = VERIFIED.lock().unwrap_or_else(PoisonError::into_inner);
    let verified = known.entry(name).or_insert_with(|| {
        let policy = shipped().iter().find(|policy| policy.name == name).expect("we ship it");
        let object = Object::read(policy.object).expect("it is tested");
        Arc::new(verify(object).expect("it is tested"))
    });
    verified.clone()
}

/// `programmed` with every hook of a mutex, none of which does anything.
pub fn by_empty_hooks() -> LockSpec {
    let insn = |code| Insn { code, ..Insn::default() };
    let (zero, exit) = (insn(0xb7), insn(0x95));
    let of_mutexes = Hook::ALL.iter().filter(|hook| **hook != Hook::RwBias);
    let hooks = of_mutexes
        .map(|&hook| HookCode { hook, insns: vec![zero, exit], lines: Vec::new() })
        .collect();
    let verified = verify(Object { hooks, maps: Vec::new() }).expect("it returns 0");
    in_ebpf("programmed", "empty", Arc::new(verified))
}

/// `programmed-rw` with the rule of BRAVO (Dice and Kogan, USENIX ATC 2019): readers are distributed, but after a writer had to wait for
/// them, not for 9 times as long as it took.
pub fn by_bravos_rule() -> LockSpec {
    programmed("programmed-rw", "bravo's rule", || Box::<Bravo>::default())
}

/// `lock` with NUMA grouping, as the policy `numa` that we ship, in Rust.
pub fn by_numa_in_rust(lock: &str) -> LockSpec {
    programmed(lock, "numa in Rust", || Box::<Numa>::default()).called(IN_RUST)
}

/// `lock` with LibASL's order, as the policy `slo-order` that we ship, in Rust.
pub fn by_slo_order_in_rust(lock: &str) -> LockSpec {
    programmed(lock, "slo-order in Rust", || Box::new(SloOrder)).called(IN_RUST)
}

/// The policy `numa` or `slo-order` that we ship: in eBPF, compiled for this machine, and in Rust. `None`: this machine has no compiler.
pub fn native_and_in_rust(name: &'static str) -> Option<[Box<dyn Policy>; 2]> {
    let in_ebpf = Loaded::new(&verified(name), Engine::Jit).ok()?;
    let in_rust: Box<dyn Policy> =
        if name == "numa" { Box::<Numa>::default() } else { Box::new(SloOrder) };
    Some([Box::new(in_ebpf), in_rust])
}

/// For how many times the length of a revocation readers aren't distributed.
const INHIBITED: u64 = 9;

#[derive(Default)]
struct Bravo {
    /// Until when readers aren't distributed, ns. There is one lock.
    until: Cell<u64>,
}

impl Policy for Bravo {
    fn hooks(&self) -> u32 {
        Hook::RwBias.bit() | READS
    }
    fn ask(&self, _: Hook, context: &Context, _: &dyn World) -> Answer {
        let Context { own, now_ns, .. } = context;
        if own.flags & READER == 0 {
            self.until.set(self.until.get().max(now_ns + INHIBITED * own.wait_ns));
            return Answer::default();
        }
        Answer { value: u64::from(*now_ns >= self.until.get()), insns: 0 }
    }
}

#[derive(Default)]
struct Numa {
    /// Which nodes have waited.
    nodes: Cell<u32>,
}

/// A waiter may be passed by this many.
const MOST_PASSED: u32 = 500;
/// Answers of `cmp_node`.
const NEXT: u64 = 1;
const GROUP: u64 = 3;

impl Policy for Numa {
    fn hooks(&self) -> u32 {
        Hook::CmpNode.bit() | THREADS
    }
    fn ask(&self, _: Hook, context: &Context, _: &dyn World) -> Answer {
        let Context { own, curr, batch, round, .. } = context;
        let (is_here, node) = (curr.numa == own.numa, 1 << (curr.numa & 31));
        self.nodes.set(self.nodes.get() | node);
        if self.nodes.get() == node {
            return Answer::default(); // all are on one node
        }
        let value = match (*round, is_here) {
            (0, _) if is_here || *batch >= MOST_PASSED => NEXT,
            (1.., true) => GROUP,
            _ => 0,
        };
        Answer { value, insns: 0 }
    }
}

struct SloOrder;

impl Policy for SloOrder {
    fn hooks(&self) -> u32 {
        Hook::LockContended.bit() | THREADS
    }
    fn ask(&self, hook: Hook, context: &Context, _: &dyn World) -> Answer {
        let own = &context.own;
        let window = if own.core_class == 0 { 0 } else { own.window_ns.into() };
        Answer { value: window.min(hook.largest()), insns: 0 }
    }
}
