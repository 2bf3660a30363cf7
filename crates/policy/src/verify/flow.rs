//! What is known of a hook without executing it: its instructions, where it may go, which registers are still needed.

use super::fault::{Fault, Wrong};
use crate::object::{HookCode, LONGEST, NamedMap};
use crate::op::{self, Atomic, BadOp, Constant, Op, Operand};
use lockwright_contract::programs::helpers;
use lockwright_contract::programs::maps::MapKind;

/// A hook's code, as checked.
pub(super) struct Flow {
    /// By place; `None`: the second half of an instruction.
    pub(super) ops: Vec<Option<Op>>,
    /// Where jumps go.
    pub(super) targets: Vec<bool>,
    /// The registers that an instruction or a later one reads, a bit each.
    pub(super) live: Vec<u16>,
    /// What lies between a jump back and its target.
    pub(super) loops: Vec<bool>,
}

/// What is wrong, and where.
pub(super) type At<T> = Result<T, (usize, Wrong)>;

impl Flow {
    pub(super) fn new(code: &HookCode, maps: &[NamedMap]) -> At<Self> {
        let len = code.insns.len();
        if len > LONGEST {
            let what = format!("has {len} instructions, at most {LONGEST} are allowed");
            return Err((LONGEST, Wrong::new(Fault::Length, what)));
        }
        let mut ops = Vec::with_capacity(len);
        while ops.len() < len {
            let at = ops.len();
            let op = op::decode(&code.insns[at..]).map_err(|bad| (at, undecoded(bad)))?;
            constant(&op, maps).map_err(|wrong| (at, wrong))?;
            ops.push(Some(op));
            ops.extend((1..op.slots()).map(|_| None));
        }
        let mut flow =
            Self { ops, targets: vec![false; len], live: vec![0; len], loops: vec![false; len] };
        flow.follow()?;
        flow.needs();
        Ok(flow)
    }

    /// The instruction there. Only places where one begins are asked for.
    pub(super) fn op(&self, at: usize) -> Op {
        self.ops[at].unwrap_or(Op::Exit)
    }

    /// Where execution goes on: the next instruction, and a jump's target.
    fn next(&self, at: usize) -> At<[Option<usize>; 2]> {
        let op = self.op(at);
        let after = at + op.slots();
        let jump = |off: i16| {
            let wrong = |what: &str| {
                (at, Wrong::new(Fault::Jump, format!("jumps {what}: {off:+} instructions")))
            };
            let target = (at + 1).checked_add_signed(isize::from(off));
            match target.and_then(|target| Some((target, self.ops.get(target)?))) {
                None => Err(wrong("out of its code")),
                Some((_, None)) => Err(wrong("into the middle of an instruction")),
                Some((target, Some(_))) => Ok(Some(target)),
            }
        };
        let next = match op {
            Op::Exit => return Ok([None, None]),
            Op::Jump { off } => return Ok([None, jump(off)?]),
            Op::Branch { off, .. } => [Some(after), jump(off)?],
            _ => [Some(after), None],
        };
        if after >= self.ops.len() {
            let wrong = Wrong::new(Fault::End, "runs past its last instruction");
            return Err((at, wrong.hint("end each path with a return")));
        }
        Ok(next)
    }

    /// Marks targets; all instructions must be reachable.
    fn follow(&mut self) -> At<()> {
        let mut reached = vec![false; self.ops.len()];
        let mut left = vec![0];
        if self.ops.is_empty() {
            return Err((0, Wrong::new(Fault::End, "has no instructions")));
        }
        while let Some(at) = left.pop() {
            if std::mem::replace(&mut reached[at], true) {
                continue;
            }
            let [after, target] = self.next(at)?;
            if let Some(target) = target {
                self.targets[target] = true;
                if target <= at {
                    self.loops[target..=at].fill(true);
                }
            }
            left.extend(after.into_iter().chain(target));
        }
        let is_lost = |at: &usize| self.ops[*at].is_some() && !reached[*at];
        match (0..self.ops.len()).find(is_lost) {
            Some(at) => Err((at, Wrong::new(Fault::Unreachable, "has code that is never reached"))),
            None => Ok(()),
        }
    }

    /// Which registers are needed where.
    fn needs(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for at in (0..self.ops.len()).rev() {
                let Some(op) = &self.ops[at] else { continue };
                let (reads, writes) = uses(op);
                let next = self.next(at).unwrap_or_default();
                let after = next.iter().flatten().fold(0, |all, next| all | self.live[*next]);
                let live = after & !writes | reads;
                changed |= std::mem::replace(&mut self.live[at], live) != live;
            }
        }
    }
}

/// The registers that an instruction reads, and those whose old values are lost.
fn uses(op: &Op) -> (u16, u16) {
    let bit = |register: u8| 1_u16 << register;
    let second = |operand: Operand| match operand {
        Operand::Register(register) => bit(register),
        Operand::Number(_) => 0,
    };
    match *op {
        Op::Alu { alu: op::Alu::Mov, dst, operand, .. } => (second(operand), bit(dst)),
        Op::Alu { dst, operand, .. } => (bit(dst) | second(operand), 0),
        Op::Neg { dst, .. } | Op::Swap { dst, .. } => (bit(dst), 0),
        Op::Load64 { dst, .. } => (0, bit(dst)),
        Op::Load { dst, src, .. } => (bit(src), bit(dst)),
        Op::Store { dst, operand, .. } => (bit(dst) | second(operand), 0),
        Op::Atomic { atomic: Atomic::CompareExchange, dst, src, .. } => {
            (bit(dst) | bit(src) | bit(0), 0)
        }
        Op::Atomic { dst, src, .. } => (bit(dst) | bit(src), 0),
        Op::Jump { .. } => (0, 0),
        Op::Branch { dst, operand, .. } => (bit(dst) | second(operand), 0),
        Op::Call { helper } => {
            let args = helpers::find(helper).map_or(0, |helper| helper.args.len());
            ((2 << args) - 2, 0b11_1111)
        }
        Op::Exit => (bit(0), 0),
    }
}

fn undecoded(bad: BadOp) -> Wrong {
    let what = match bad {
        BadOp::Function => {
            let wrong = Wrong::new(Fault::Helper, "calls another function of the object");
            return wrong.hint("declare it: static inline __attribute__((always_inline))");
        }
        BadOp::Frame => "writes r10, the frame pointer".to_owned(),
        BadOp::Half => "has only half of a 64-bit load".to_owned(),
        BadOp::Unknown(code) => format!("has an unknown instruction: {code:#04x}"),
        BadOp::Reserved => "has an instruction with a field that must be zero".to_owned(),
        BadOp::Register(number) => format!("names r{number}, and there is no such register"),
        BadOp::Width(bits) => format!("shifts or swaps by {bits} bits"),
    };
    let hint = "compile for version 3: clang -target bpf -mcpu=v3";
    Wrong::new(Fault::Instruction, what).hint(hint)
}

/// Maps and helpers exist, even if no execution comes here.
fn constant(op: &Op, maps: &[NamedMap]) -> Result<(), Wrong> {
    let found = |map: u32| {
        let found = maps.get(map as usize);
        let count = maps.len();
        found.ok_or_else(|| {
            Wrong::new(Fault::Map, format!("uses map {map}, but the policy has {count} maps"))
        })
    };
    match *op {
        Op::Load64 { constant: Constant::Map(map), .. } => found(map).map(|_| ()),
        Op::Load64 { constant: Constant::Value(map, off), .. } => {
            let NamedMap { name, spec, .. } = found(map)?;
            if spec.kind != MapKind::Array {
                let what = format!("takes the address of '{name}', which isn't a variable");
                return Err(Wrong::new(Fault::Map, what).hint("look it up: lw_lookup(&map, &key)"));
            }
            if off >= spec.value_size {
                let size = spec.value_size;
                let what = format!("takes the address of byte {off} of '{name}', which has {size}");
                return Err(Wrong::new(Fault::Map, what));
            }
            Ok(())
        }
        Op::Call { helper } if helpers::find(helper).is_none() => Err(no_helper(helper)),
        _ => Ok(()),
    }
}

fn no_helper(number: u32) -> Wrong {
    let names: Vec<_> = helpers::ALL.iter().map(|helper| helper.name).collect();
    let what = format!("calls helper {number}, which policies don't have");
    Wrong::new(Fault::Helper, what).hint(format!("the helpers are {}", names.join(", ")))
}
