//! All paths through a hook.
//!
//! A path is followed, with what is known on it, until it ends or comes where a known state covers its own. Loops are followed as often as
//! they run.
//!
//! ```text
//!   branch: both can be ─► one is followed, the other waits in `left`
//!   target of a jump    ─► a `Node`: this state, and what hangs below it
//!   path ends           ─► its node counts down; at 0 everything below has been followed, and nothing was wrong: `Done`
//! ```
//!
//! If there are too many states, a second walk takes them together where paths meet, and knows less of their numbers.
//!
//! **Only a state that is done may end another path.** A state that is still on the path (a loop's head) proves nothing: `for (;;)` comes back
//! to it for ever. A state that is done has ended on every way, within the instructions that it notes.

use super::HookReport;
use super::asm::Text;
use super::done::{AllDone, Done};
use super::fault::{Complaint, Fault, Wrong};
use super::flow::Flow;
use super::state::{Known, Reg};
use super::step::Next;
use crate::object::{HookCode, Insn, LONGEST, NamedMap, Object};
use crate::op::Op;
use lockwright_contract::programs::helpers::Helper;
use lockwright_platform::hooks::Hook;

/// The most instructions that are looked at, over all paths of a hook.
const WORK: u32 = 200_000;

/// A state, and the paths below it.
struct Node {
    parent: Option<usize>,
    at: usize,
    state: Known,
    /// Instructions executed before.
    before: u32,
    /// Paths below that haven't ended.
    open: u32,
    /// The longest way from here to an end, in instructions.
    longest: u32,
    /// The slots of the stack that were read below.
    read: u64,
}

/// A path to be followed.
struct Path {
    at: usize,
    state: Known,
    before: u32,
    node: Option<usize>,
}

pub(super) struct Walk<'a> {
    object: &'a Object,
    code: &'a HookCode,
    flow: Flow,
    left: Vec<Path>,
    nodes: Vec<Node>,
    free: Vec<usize>,
    done: AllDone,
    work: u32,
    identities: u32,
    /// The slots that the path in hand has read since its last node.
    read: u64,
    deepest: usize,
    /// Takes states together where there are many.
    blurs: bool,
    report: HookReport,
}

/// Checks a hook: with all that can be known, and if that is too much, with less.
pub(super) fn check(object: &Object, code: &HookCode) -> Result<HookReport, Box<Complaint>> {
    match walk(object, code, false) {
        Err(complaint) if complaint.fault == Fault::Complex => {
            walk(object, code, true).map_err(|_| complaint)
        }
        outcome => outcome,
    }
}

pub(super) fn walk(
    object: &Object,
    code: &HookCode,
    blurs: bool,
) -> Result<HookReport, Box<Complaint>> {
    let flow = match Flow::new(code, &object.maps) {
        Ok(flow) => flow,
        Err((at, wrong)) => {
            let decoded = crate::op::decode(code.insns.get(at..).unwrap_or_default());
            return Err(complaint(object, code, at, decoded.ok().as_ref(), wrong, None));
        }
    };
    let count = flow.ops.len();
    let mut walk = Walk {
        object,
        code,
        flow,
        left: Vec::new(),
        nodes: Vec::new(),
        free: Vec::new(),
        done: AllDone::default(),
        work: 0,
        identities: 0,
        read: 0,
        deepest: 0,
        blurs,
        report: HookReport::new(code.hook, count),
    };
    match walk.all() {
        Ok(()) => {
            walk.report.stack = 8 * walk.deepest;
            walk.report.maps.sort_unstable();
            Ok(walk.report)
        }
        Err(stop) => {
            let (at, wrong, state) = *stop;
            let op = walk.flow.op(at);
            Err(complaint(object, code, at, Some(&op), wrong, state.as_ref()))
        }
    }
}

/// Where a walk ended, why, and what was known.
type Stop = Box<(usize, Wrong, Option<Known>)>;

fn complaint(
    object: &Object,
    code: &HookCode,
    at: usize,
    op: Option<&Op>,
    wrong: Wrong,
    state: Option<&Known>,
) -> Box<Complaint> {
    let register = wrong.register.zip(state).map(|(register, state)| {
        format!("r{register} {}", described(&object.maps, &state.reg(register)))
    });
    let raw = || match code.insns.get(at) {
        Some(Insn { code, dst, src, off, imm }) => {
            format!("code {code:#04x}, dst {dst}, src {src}, off {off}, imm {imm}")
        }
        None => "(the end)".to_owned(),
    };
    Box::new(Complaint {
        hook: code.hook,
        insn: at,
        assembly: op.map_or_else(raw, |op| Text(op, at).to_string()),
        line: code.line(at).cloned(),
        fault: wrong.fault,
        what: wrong.what,
        register,
        hint: wrong.hint,
    })
}

/// What a register holds, for people.
fn described(maps: &[NamedMap], reg: &Reg) -> String {
    let name = |map: u32| maps.get(map as usize).map_or("?", |map| map.name.as_str());
    match reg {
        Reg::Nothing => "has no value".into(),
        Reg::Number(number) => match number.constant() {
            Some(_) => format!("is {number}"),
            None => format!("is a number: {number}"),
        },
        Reg::Context(off) => format!("is the context + {off}"),
        Reg::Stack(off) => format!("is the stack's end + {off}"),
        Reg::Map(map) => format!("is the map '{}'", name(*map)),
        Reg::Value { map, off } => format!("is a value of '{}' + {off}", name(*map)),
        Reg::OrNull { map, .. } => format!("is a value of '{}', or NULL", name(*map)),
    }
}

impl Walk<'_> {
    pub(super) fn hook(&self) -> Hook {
        self.code.hook
    }

    pub(super) fn map_at(&self, map: u32) -> Option<&NamedMap> {
        self.object.maps.get(map as usize)
    }

    /// A map's name, and its value's bytes.
    pub(super) fn value_of(&self, map: u32) -> (&str, u32) {
        self.map_at(map).map_or(("?", 0), |map| (&map.name, map.spec.value_size))
    }

    pub(super) fn uses_map(&mut self, map: u32) {
        if !self.report.maps.contains(&map) {
            self.report.maps.push(map);
        }
    }

    pub(super) fn reads(&mut self, what: u32) {
        self.report.reads |= what;
    }

    pub(super) fn uses_helper(&mut self, helper: &'static Helper) {
        if !self.report.helpers.contains(&helper) {
            self.report.helpers.push(helper);
        }
    }

    pub(super) fn read_slot(&mut self, slot: usize) {
        self.read |= 1 << slot;
    }

    /// A number that nothing else has.
    pub(super) fn identity(&mut self) -> u32 {
        self.identities += 1;
        self.identities
    }

    fn all(&mut self) -> Result<(), Stop> {
        self.left.push(Path { at: 0, state: Known::start(), before: 0, node: None });
        while let Some(path) = self.left.pop() {
            self.follow(path)?;
        }
        Ok(())
    }

    fn follow(&mut self, path: Path) -> Result<(), Stop> {
        let Path { mut at, mut state, mut before, mut node } = path;
        self.read = 0;
        loop {
            if self.flow.targets[at] {
                state.forget(self.flow.live[at]);
                state.lonely();
                let mut known = self.known(at, &state, before);
                if self.blurs
                    && known.is_none()
                    && let Some(newest) = self.done.newest(at)
                {
                    state.blur(&newest.state, self.flow.loops[at]);
                    state.lonely();
                    known = self.known(at, &state, before);
                }
                if let Some(end) = known {
                    self.end(node, before + end);
                    return Ok(());
                }
                node = Some(self.enter(node, at, &state, before));
            }
            let stop = |wrong, state| Box::new((at, wrong, state));
            self.work += 1;
            if self.work > WORK {
                return Err(stop(complex(), None));
            }
            if before as usize >= LONGEST {
                return Err(stop(endless(), None));
            }
            before += 1;
            let op = self.flow.op(at);
            let next = match self.step(&mut state, &op) {
                Ok(next) => next,
                Err(wrong) => return Err(stop(wrong, Some(state))),
            };
            self.deepest = self.deepest.max(state.stack.len());
            let target = |off: i16| (at + 1).wrapping_add_signed(isize::from(off));
            match next {
                Next::Falls => at += op.slots(),
                Next::Jumps(off) => at = target(off),
                Next::Both(off, taken) => {
                    if let Some(node) = node {
                        self.nodes[node].open += 1;
                        self.nodes[node].read |= self.read;
                    }
                    self.left.push(Path { at: target(off), state: *taken, before, node });
                    at += op.slots();
                }
                Next::Ends => {
                    self.end(node, before);
                    return Ok(());
                }
            }
        }
    }

    /// Does a state that is done cover this one? Then as many instructions are left, at most.
    fn known(&mut self, at: usize, state: &Known, before: u32) -> Option<u32> {
        let left = (LONGEST as u32).checked_sub(before)?;
        let done = self.done.find(at, state, left)?;
        self.read |= done.read;
        Some(done.longest)
    }

    fn enter(&mut self, parent: Option<usize>, at: usize, state: &Known, before: u32) -> usize {
        if let Some(parent) = parent {
            self.nodes[parent].read |= self.read;
        }
        self.read = 0;
        let node = Node { parent, at, state: state.clone(), before, open: 1, longest: 0, read: 0 };
        match self.free.pop() {
            Some(place) => {
                self.nodes[place] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// A path below a node has ended, after this many instructions from the hook's start.
    fn end(&mut self, mut place: Option<usize>, mut total: u32) {
        let mut read = self.read;
        while let Some(number) = place {
            let node = &mut self.nodes[number];
            node.longest = node.longest.max(total - node.before);
            node.read |= read;
            node.open -= 1;
            if node.open > 0 {
                return;
            }
            (total, read, place) = (node.before + node.longest, node.read, node.parent);
            let mut state = node.state.clone();
            state.forget_stack(read);
            state.lonely();
            let done = Done { state, longest: node.longest, read };
            self.done.add(node.at, done);
            self.free.push(number);
        }
        self.report.longest = self.report.longest.max(total);
    }
}

fn endless() -> Wrong {
    let what = format!("may execute more than {LONGEST} instructions");
    Wrong::new(Fault::Endless, what).hint("bound the loop: for (int i = 0; i < 16; i++)")
}

fn complex() -> Wrong {
    let what = format!("has too many paths: {WORK} instructions were looked at");
    Wrong::new(Fault::Complex, what).hint("have fewer branches in loops, or shorter loops")
}
