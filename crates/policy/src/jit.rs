//! eBPF to the machine's code. Only verified programs are compiled, so no access is checked again. The code has no addresses in it:
//! maps lie at offsets from [`Env::data`](lockwright_contract::programs::env::Env::data), helpers at places of that environment. Any process may map
//! it anywhere.
//!
//! The encoder is our own: an instruction of eBPF is one or two of the machine, and its tests are the interpreter.

mod aarch64;
mod x86_64;

use crate::maps::Maps;
use crate::object::HookCode;
use crate::op::{BadOp, Constant, FRAME, Op, Operand, STACK, decode};
use lockwright_contract::programs::helpers::{LOG2, LOOKUP};
use lockwright_contract::programs::image::Architecture;
use lockwright_contract::programs::maps::MapKind;

/// The machine on which we are; `None`: there is no compiler for it.
pub const HERE: Option<Architecture> = if cfg!(target_arch = "x86_64") {
    Some(Architecture::X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(Architecture::Aarch64)
} else {
    None
};

/// Why a program was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CantCompile {
    /// This machine has no compiler.
    #[error(
        "policies can't be compiled for this machine: only x86-64 and AArch64 have a compiler; `lockwright policy run` works everywhere"
    )]
    Machine,
    /// What no verified program has.
    #[error("instruction {0}: {1}")]
    Op(usize, BadOp),
    /// What no verified program does.
    #[error("a jump that leaves the program")]
    Jump,
}

/// Compiles a hook. `depth`: how many bytes of its stack it uses.
pub(crate) fn compile(
    architecture: Architecture,
    hook: &HookCode,
    maps: &Maps,
    depth: usize,
) -> Result<Vec<u8>, CantCompile> {
    let maps = places(maps);
    let program = HookProgram::new(hook, &maps, depth)?;
    match architecture {
        Architecture::X86_64 => x86_64::translate(&program),
        Architecture::Aarch64 => aarch64::translate(&program),
    }
}

/// Where a map is.
struct MapPlace {
    kind: MapKind,
    /// From the maps' memory to the map.
    offset: u32,
    /// From there to the first value.
    first: u32,
    stride: u32,
    entries: u32,
}

/// Where the maps are. They have 64 MiB at most, so 32 bits are enough.
fn places(maps: &Maps) -> Vec<MapPlace> {
    let place = |number| {
        let map = maps.map(number);
        MapPlace {
            kind: MapKind::of(map.kind).unwrap_or(MapKind::Ring),
            offset: maps.offset(number) as u32,
            first: map.first,
            stride: map.stride,
            entries: map.max_entries,
        }
    };
    (0..maps.len()).map(place).collect()
}

/// A call that is a few instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inline {
    /// `lw_log2`.
    Log2,
    /// `lw_lookup` in this array.
    Array(u32),
}

/// A hook, and what its translation needs to know of it.
struct HookProgram<'a> {
    /// Its instructions, each with its place.
    ops: Vec<(usize, Op)>,
    /// How many places there are.
    len: usize,
    /// For each of `ops`: a call that is none.
    inline: Vec<Option<Inline>>,
    maps: &'a [MapPlace],
    /// Does it call helpers?
    calls: bool,
    /// Does it call helpers, or use maps?
    needs_env: bool,
    /// Bytes of the stack.
    depth: usize,
    /// The registers that it uses, a bit each.
    used: u16,
}

impl<'a> HookProgram<'a> {
    fn new(hook: &HookCode, maps: &'a [MapPlace], depth: usize) -> Result<Self, CantCompile> {
        let (mut ops, mut at) = (Vec::new(), 0);
        while at < hook.insns.len() {
            let op = decode(&hook.insns[at..]).map_err(|why| CantCompile::Op(at, why))?;
            ops.push((at, op));
            at += op.slots();
        }
        let inline = inlined(&ops, maps);
        let calls = ops.iter().zip(&inline);
        let calls =
            calls.filter(|((_, op), inline)| matches!(op, Op::Call { .. }) && inline.is_none());
        let calls = calls.count() > 0;
        let is_map = |op: &Op| {
            matches!(op, Op::Load64 { constant: Constant::Map(_) | Constant::Value(..), .. })
        };
        let needs_env = calls || ops.iter().any(|(_, op)| is_map(op));
        let used = ops.iter().fold(0, |used, (_, op)| used | registers(op));
        let depth = if used & 1 << FRAME == 0 { 0 } else { depth.min(STACK) };
        Ok(Self { ops, len: hook.insns.len(), inline, maps, calls, needs_env, depth, used })
    }

    fn uses(&self, register: u8) -> bool {
        self.used & 1 << register != 0
    }
}

/// The registers that an instruction names.
fn registers(op: &Op) -> u16 {
    let of = |operand: &Operand| match operand {
        Operand::Register(register) => 1 << register,
        Operand::Number(_) => 0,
    };
    match op {
        Op::Alu { dst, operand, .. } | Op::Branch { dst, operand, .. } => 1 << dst | of(operand),
        Op::Store { dst, operand, .. } => 1 << dst | of(operand),
        Op::Neg { dst, .. } | Op::Swap { dst, .. } | Op::Load64 { dst, .. } => 1 << dst,
        Op::Load { dst, src, .. } | Op::Atomic { dst, src, .. } => 1 << dst | 1 << src,
        Op::Jump { .. } | Op::Call { .. } | Op::Exit => 0,
    }
}

/// Which calls are none. A look-up is one in an array if r1 surely has that array: since then nothing else was written there, and no jump
/// leads between.
fn inlined(ops: &[(usize, Op)], maps: &[MapPlace]) -> Vec<Option<Inline>> {
    let target = |(at, op): &(usize, Op)| match op {
        Op::Jump { off } | Op::Branch { off, .. } => (at + 1).checked_add_signed((*off).into()),
        _ => None,
    };
    let targets: std::collections::BTreeSet<usize> = ops.iter().filter_map(target).collect();
    let mut first = None;
    let mut inline = Vec::with_capacity(ops.len());
    for (at, op) in ops {
        if targets.contains(at) {
            first = None;
        }
        inline.push(match (op, first) {
            (Op::Call { helper: LOG2 }, _) => Some(Inline::Log2),
            (Op::Call { helper: LOOKUP }, Some(map)) => {
                let place = maps.get(map as usize);
                place.filter(|place| place.kind == MapKind::Array).map(|_| Inline::Array(map))
            }
            _ => None,
        });
        match op {
            Op::Load64 { dst: 1, constant: Constant::Map(map) } => first = Some(*map),
            Op::Alu { dst: 1, .. }
            | Op::Neg { dst: 1, .. }
            | Op::Swap { dst: 1, .. }
            | Op::Load64 { dst: 1, .. }
            | Op::Load { dst: 1, .. }
            | Op::Atomic { src: 1, .. }
            | Op::Call { .. } => first = None,
            _ => {}
        }
    }
    inline
}

#[cfg(test)]
mod tests;
