//! Policies that program simulated locks: which there are, what asking one costs, and what a policy sees of the thread that asks.
//!
//! A call takes 2 ns, and an instruction of the policy 0.35 ns, both on the fastest class, and longer on others in proportion to their
//! speed. (A compiled policy on a 3 GHz core: about one instruction a cycle.) Reading the clock takes as long as it takes the lock. Each
//! cache line of its maps and variables that an answer touches is fetched, once, as the lock's own are; the answer itself doesn't wait for
//! that. Boosts have no effect: simulated threads have no priorities.

use crate::engine::{advance, engine, ps};
use crate::lines::{Access, LINE, reach};
use crate::platform::Sim;
use crate::timeline::Activity;
use lockwright_platform::hooks::{Context, Hook, IN_EPOCH, Node, Policy, World};
use lockwright_platform::{Learning, Place, Platform};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

/// What a call takes, ns.
const CALL_NS: f64 = 2.0;

/// What an instruction takes, ns.
const INSN_NS: f64 = 0.35;

/// The number of slots, with slot 0, which has no policy.
pub const SLOTS: usize = 16;

/// A policy for a lock of a run. Each run makes its own instance.
#[derive(Clone)]
pub struct SlotPolicy {
    name: String,
    make: Arc<dyn Fn() -> Box<dyn Policy> + Send + Sync>,
}

impl SlotPolicy {
    /// The policy that `make` makes. `name` tells it from others: runs that differ only in their policies differ by their names.
    pub fn new(
        name: impl Into<String>,
        make: impl Fn() -> Box<dyn Policy> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), make: Arc::new(make) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for SlotPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotPolicy").field(&self.name).finish()
    }
}

/// A machine's policies, by slot.
#[derive(Default)]
pub(crate) struct Policies([Option<Box<dyn Policy>>; SLOTS]);

impl Policies {
    /// New instances of these.
    pub(crate) fn of<'a>(programs: impl Iterator<Item = (u32, &'a SlotPolicy)>) -> Self {
        let mut policies = Self::default();
        for (slot, program) in programs {
            policies.0[slot as usize] = Some((program.make)());
        }
        policies
    }

    fn at(&self, slot: u32) -> Option<&dyn Policy> {
        self.0.get(slot as usize)?.as_deref()
    }
}

/// What policies see of a thread, beyond its core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Person {
    /// The SLO of its epoch, ns; 0: none.
    pub(crate) slo_ns: u64,
    pub(crate) in_epoch: bool,
    pub(crate) tag: u64,
    pub(crate) prio: i32,
    /// How many programmed locks it holds.
    held: u32,
    /// Since when it holds one, ns.
    since: u64,
    /// How long it has held some, ns.
    total: u64,
}

impl Person {
    fn hears(&mut self, hook: Hook, now: u64) {
        match hook {
            Hook::LockAcquired => {
                if self.held == 0 {
                    self.since = now;
                }
                self.held += 1;
            }
            Hook::LockRelease if self.held > 0 => {
                self.held -= 1;
                if self.held == 0 {
                    self.total += now - self.since;
                }
            }
            _ => {}
        }
    }
}

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

/// Describes the running thread.
pub(crate) fn describe() -> Node {
    let place = Sim::place(); // this takes its time
    let e = engine();
    let me = e.me();
    let thread = &e.threads[me as usize];
    let Person { slo_ns, in_epoch, tag, prio, held, since, total } = thread.person;
    let now = e.now / 1000;
    Node {
        tid: me + 1,
        cpu: place.cpu,
        numa: place.domain.into(),
        core_class: place.class.0.into(),
        prio,
        flags: if in_epoch { IN_EPOCH } else { 0 },
        speed: Sim::speed(place.class),
        cs_total_ns: total + if held > 0 { now - since } else { 0 },
        held_locks: held,
        window_ns: thread.window_ns,
        slo_ns,
        tag,
        ..Node::default()
    }
}
