//! Policies at work: what asking one costs, and what a policy sees of the machine.
//!
//! A call takes 2 ns, and an instruction of the policy 0.35 ns, both on the fastest class, and longer on others in proportion to their
//! speed. (A compiled policy on a 3 GHz core: about one instruction a cycle.) Reading the clock takes as long as it takes the lock. Each
//! cache line of its maps and variables that an answer touches is fetched, once, as the lock's own are; the answer itself doesn't wait for
//! that. Boosts have no effect: simulated threads have no priorities.

use crate::directory::LINE;
use crate::engine::{advance, engine, ps};
use crate::lines::{Access, reach};
use crate::policies::Person;
use crate::timeline::Activity;
use lockwright_platform::Place;
use lockwright_platform::hooks::{Context, Hook, Policy, World};
use std::cell::{Cell, RefCell};

/// What a call takes, ns.
const CALL_NS: f64 = 2.0;

/// What an instruction takes, ns.
const INSN_NS: f64 = 0.35;

/// The thread that asks, and its machine, at this moment.
struct Asker {
    now: u64,
    place: Place,
    tid: u32,
    /// The cache lines of its memory that the policy has touched, in order, and whether it has written to them.
    lines: RefCell<Vec<(usize, bool)>>,
    /// How often the policy has read the clock.
    clocks: Cell<u64>,
}

impl World for Asker {
    fn now(&self) -> u64 {
        self.clocks.update(|clocks| clocks + 1);
        self.now
    }
    fn cpu(&self) -> u32 {
        self.place.cpu
    }
    fn numa(&self) -> u32 {
        self.place.domain.into()
    }
    fn class(&self) -> u32 {
        self.place.class.0.into()
    }
    fn pid_tgid(&self) -> u64 {
        1 << 32 | u64::from(self.tid)
    }
    fn tag(&self, tid: u32) -> u64 {
        person(tid).map_or(0, |person| person.tag)
    }
    fn prio(&self, tid: u32) -> i32 {
        person(tid).map_or(0, |person| person.prio)
    }
    fn touches(&self, address: usize, writes: bool) {
        let mut lines = self.lines.borrow_mut();
        match lines.iter_mut().find(|(line, _)| *line == address / LINE) {
            Some((_, written)) => *written |= writes,
            None => lines.push((address / LINE, writes)),
        }
    }
}

/// The thread with this id; its number is one less.
fn person(tid: u32) -> Option<Person> {
    engine().threads.get(tid.checked_sub(1)? as usize).map(|thread| thread.person)
}

/// The hooks of the policy in this slot.
pub(crate) fn hooks(slot: u32) -> u32 {
    engine().policies.at(slot).map_or(0, Policy::hooks)
}

/// Asks the policy in this slot, on the running thread.
pub(crate) fn ask(slot: u32, hook: Hook, context: &Context) -> u64 {
    let e = engine();
    let (me, cpu, now) = (e.me(), e.my_cpu(), e.now / 1000);
    e.threads[me as usize].person.hears(hook, now);
    let place = place(cpu);
    let compute = e.cpus[cpu as usize].compute;
    let Some(policy) = e.policies.at(slot).filter(|policy| policy.hooks() & hook.bit() != 0) else {
        return 0;
    };
    let (lines, clocks) = (RefCell::default(), Cell::default());
    let asker = Asker { now, place, tid: me + 1, lines, clocks };
    let answer = policy.ask(hook, context, &asker);
    for (line, written) in asker.lines.take() {
        let access = if written { Access::Store } else { Access::Load };
        advance(reach(line * LINE, access), Activity::Work);
    }
    let clocks = asker.clocks.get() * engine().cpus[cpu as usize].clock;
    advance(ps((CALL_NS + INSN_NS * f64::from(answer.insns)) * compute) + clocks, Activity::Work);
    answer.value
}

fn place(cpu: u32) -> Place {
    let known = &engine().cpus[cpu as usize];
    let class = u8::try_from(known.class).unwrap_or(u8::MAX);
    Place { cpu, class: lockwright_platform::Class(class), domain: known.domain }
}
