//! The policies of the papers' figures, in Rust.

use lockwright_platform::hooks::{Answer, Context, Hook, Policy, READER, World};
use lockwright_sim::{LockSpec, SlotPolicy};
use std::cell::Cell;

/// A lock that a policy programs.
#[derive(Debug)]
pub struct Programmed {
    /// The lock, whose `slot` is 1.
    lock: &'static str,
    /// The policy's name.
    name: &'static str,
    make: fn() -> Box<dyn Policy>,
}

impl Programmed {
    /// The lock; `None` if there is none of that name.
    pub fn spec(&self) -> Option<LockSpec> {
        let program = SlotPolicy::new(self.name, self.make);
        Some(LockSpec::parse(self.lock).ok()?.programmed(1, program))
    }
}

/// BRAVO (Dice and Kogan, USENIX ATC 2019): readers are distributed, but after a writer had to wait for them, not for 9 times as long as
/// it took.
pub static BRAVO: Programmed =
    Programmed { lock: "programmed-rw:slot=1", name: "bravo", make: || Box::<Bravo>::default() };

/// NUMA grouping (ShflLock: Kashyap et al., SOSP 2019): waiters of the chooser's domain go first.
pub static NUMA: Programmed =
    Programmed { lock: "programmed:slot=1", name: "numa", make: || Box::new(Numa) };

/// Every hook of a mutex, and none of them does anything.
pub static EMPTY: Programmed =
    Programmed { lock: "programmed:slot=1", name: "empty", make: || Box::new(Empty) };

/// For how many times the length of a revocation readers aren't distributed.
const INHIBITED: u64 = 9;

#[derive(Default)]
struct Bravo {
    /// Until when readers aren't distributed, ns. There is one lock.
    until: Cell<u64>,
}

impl Policy for Bravo {
    fn hooks(&self) -> u32 {
        Hook::RwBias.bit()
    }
    fn ask(&self, _: Hook, context: &Context, _: &dyn World) -> Answer {
        let Context { own, now_ns, .. } = context;
        if own.flags & READER == 0 {
            self.until.set(self.until.get().max(now_ns + INHIBITED * own.wait_ns));
            return Answer { value: 0, insns: 12 };
        }
        Answer { value: u64::from(*now_ns >= self.until.get()), insns: 10 }
    }
}

struct Numa;

impl Policy for Numa {
    fn hooks(&self) -> u32 {
        Hook::CmpNode.bit()
    }
    fn ask(&self, _: Hook, context: &Context, _: &dyn World) -> Answer {
        Answer { value: u64::from(context.curr.numa == context.own.numa), insns: 5 }
    }
}

struct Empty;

impl Policy for Empty {
    fn hooks(&self) -> u32 {
        let of_mutexes = Hook::ALL.iter().filter(|hook| **hook != Hook::RwBias);
        of_mutexes.map(|hook| hook.bit()).sum()
    }
    fn ask(&self, _: Hook, _: &Context, _: &dyn World) -> Answer {
        Answer { value: 0, insns: 2 }
    }
}
