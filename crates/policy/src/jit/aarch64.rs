//! eBPF to AArch64, an instruction at a time. Version 8.0 of the architecture: atomic operations are loops.
//!
//! ```text
//!   r0 x7    r1 x0   r2 x1   r3 x2   r4 x3   r5 x4        a call needs one move; x7 becomes x0 at the end
//!   r6 x19   r7 x20  r8 x21  r9 x22  env x23              saved if they are used
//!   r10      sp + the frame's size: an address, in no register
//!   x9 to x13                                             for a moment; x5 is env, when a helper is called
//! ```

mod encode;

use super::{CantCompile, HookProgram, Inline};
use crate::op::{Alu, Atomic, Condition, Constant, FRAME, Op, Operand};
use encode::*;
use lockwright_contract::programs::env::Env;
use lockwright_contract::programs::helpers;
use std::mem::offset_of;

/// Where r0 to r9 are.
const REGISTERS: [Reg; 10] =
    [Reg(7), Reg(0), Reg(1), Reg(2), Reg(3), Reg(4), Reg(19), Reg(20), Reg(21), Reg(22)];
/// Those that a function must leave as they were.
const SAVED: [u8; 4] = [6, 7, 8, 9];
const R0: Reg = REGISTERS[0];
const ENV: Reg = Reg(23);
/// Where a helper finds it.
const SIXTH: Reg = Reg(5);
const FRAME_RECORD: Reg = Reg(29);
const LINK: Reg = Reg(30);
const X9: Reg = Reg(9);
const X10: Reg = Reg(10);
const X11: Reg = Reg(11);
const X12: Reg = Reg(12);
const X13: Reg = Reg(13);

/// Translates a hook.
pub(super) fn translate(program: &HookProgram) -> Result<Vec<u8>, CantCompile> {
    let mut translation = Translation::of(program);
    for (jump, to) in std::mem::take(&mut translation.jumps) {
        let to = translation.starts.get(to).copied().flatten().ok_or(CantCompile::Jump)?;
        translation.code.land(jump, to);
    }
    Ok(translation.code.0.iter().flat_map(|word| word.to_le_bytes()).collect())
}

struct Translation<'a> {
    program: &'a HookProgram<'a>,
    code: Code,
    /// Where each instruction begins.
    starts: Vec<Option<usize>>,
    /// Jumps, and the instructions to which they go.
    jumps: Vec<(usize, usize)>,
    /// What is pushed, in pairs.
    saved: Vec<(Reg, Reg)>,
    /// By how much the stack pointer is lowered: so far above it is r10.
    frame: i32,
}

impl<'a> Translation<'a> {
    fn of(program: &'a HookProgram<'a>) -> Self {
        let used = SAVED.into_iter().filter(|register| program.uses(*register));
        let mut single: Vec<Reg> = used.map(|used| REGISTERS[usize::from(used)]).collect();
        if program.needs_env {
            single.push(ENV);
        }
        let mut saved: Vec<(Reg, Reg)> = Vec::new();
        if program.calls {
            saved.push((FRAME_RECORD, LINK));
        }
        saved.extend(single.chunks(2).map(|pair| (pair[0], *pair.get(1).unwrap_or(&ZERO))));
        let mut translation = Self {
            program,
            code: Code::default(),
            starts: vec![None; program.len],
            jumps: Vec::new(),
            saved,
            // The stack pointer is always a multiple of 16.
            frame: i32::try_from(program.depth.next_multiple_of(16)).unwrap_or(0),
        };
        translation.enter();
        for (index, (at, op)) in program.ops.iter().enumerate() {
            translation.starts[*at] = Some(translation.code.0.len());
            translation.op(index, *at, *op);
        }
        translation
    }

    fn enter(&mut self) {
        for (a, b) in self.saved.clone() {
            self.code.push(a, b);
        }
        if self.program.calls {
            self.code.add_small(true, FRAME_RECORD, SP, 0);
        }
        if self.frame > 0 {
            self.code.add_small(true, SP, SP, -self.frame);
        }
        if self.program.needs_env {
            self.code.mov(true, ENV, Reg(1));
        }
    }

    fn leave(&mut self) {
        self.code.mov(true, Reg(0), R0);
        if self.frame > 0 {
            self.code.add_small(true, SP, SP, self.frame);
        }
        for (a, b) in self.saved.clone().into_iter().rev() {
            self.code.pop(a, b);
        }
        self.code.ret();
    }

    /// The machine's register; r10's address is put into `scratch`.
    fn register(&mut self, register: u8, scratch: Reg) -> Reg {
        if register == FRAME {
            self.code.add_small(true, scratch, SP, self.frame);
            scratch
        } else {
            REGISTERS[usize::from(register)]
        }
    }

    /// The operand's register; a number is put into `scratch`.
    fn operand(&mut self, operand: Operand, scratch: Reg) -> Reg {
        match operand {
            Operand::Register(register) => self.register(register, scratch),
            Operand::Number(0) => ZERO,
            Operand::Number(number) => {
                self.code.number(scratch, i64::from(number).cast_unsigned());
                scratch
            }
        }
    }

    fn at(&self, register: u8, off: i16) -> Mem {
        if register == FRAME {
            Mem(SP, self.frame + i32::from(off))
        } else {
            Mem(REGISTERS[usize::from(register)], off.into())
        }
    }

    fn op(&mut self, index: usize, at: usize, op: Op) {
        match op {
            Op::Alu { alu, wide, dst, operand } => self.alu(alu, wide, dst, operand),
            Op::Neg { wide, dst } => {
                let dst = REGISTERS[usize::from(dst)];
                self.code.three(Three::Sub, wide, dst, ZERO, dst);
            }
            Op::Swap { big, bits, dst } => self.swap(big, bits, REGISTERS[usize::from(dst)]),
            Op::Load64 { dst, constant } => {
                let dst = REGISTERS[usize::from(dst)];
                match constant {
                    Constant::Number(number) => self.code.number(dst, number),
                    Constant::Map(map) => self.data(dst, self.program.maps[map as usize].offset),
                    Constant::Value(map, at) => {
                        let map = &self.program.maps[map as usize];
                        self.data(dst, map.offset + map.first + at);
                    }
                }
            }
            Op::Load { size, dst, src, off } => {
                self.code.load(size, REGISTERS[usize::from(dst)], self.at(src, off), X9);
            }
            Op::Store { size, dst, off, operand } => {
                let src = self.operand(operand, X10);
                self.code.store(size, self.at(dst, off), src, X9);
            }
            Op::Atomic { atomic, fetch, wide, dst, off, src } => {
                let base = self.register(dst, X9);
                let src = self.register(src, X12);
                self.add(X9, base, off.into());
                self.atomic(atomic, fetch, wide, src);
            }
            Op::Jump { off: 0 } => {}
            Op::Jump { off } => self.jump(at, off, None),
            Op::Branch { condition, wide, dst, operand, off } => {
                let dst = self.register(dst, X9);
                let cc = self.compare(condition, wide, dst, operand);
                self.jump(at, off, Some(cc));
            }
            Op::Call { helper } => self.call(helper, self.program.inline[index]),
            Op::Exit => self.leave(),
        }
    }

    /// `d = a + number`. Needs X10, if the number is large.
    fn add(&mut self, d: Reg, a: Reg, number: i32) {
        if number.unsigned_abs() < 4096 {
            self.code.add_small(true, d, a, number);
        } else {
            self.code.number(X10, i64::from(number).cast_unsigned());
            self.code.three(Three::Add, true, d, a, X10);
        }
    }

    /// The address of a byte of the maps' memory.
    fn data(&mut self, dst: Reg, offset: u32) {
        self.code.load(8, dst, Mem(ENV, offset_of!(Env, data) as i32), X9);
        self.add(dst, dst, offset.cast_signed());
    }

    fn alu(&mut self, alu: Alu, wide: bool, dst: u8, operand: Operand) {
        let dst = REGISTERS[usize::from(dst)];
        let code = &mut self.code;
        // What a number makes simpler.
        match (alu, operand) {
            (Alu::Mov, Operand::Number(number)) => {
                let number = if wide {
                    i64::from(number).cast_unsigned()
                } else {
                    number.cast_unsigned().into()
                };
                return code.number(dst, number);
            }
            (Alu::Mov, Operand::Register(FRAME)) if wide => {
                return code.add_small(true, dst, SP, self.frame);
            }
            (Alu::Add, Operand::Number(number)) if number.unsigned_abs() < 4096 => {
                return code.add_small(wide, dst, dst, number);
            }
            (Alu::Sub, Operand::Number(number)) if number.unsigned_abs() < 4096 => {
                return code.add_small(wide, dst, dst, -number);
            }
            (Alu::Lsh, Operand::Number(count)) => {
                return code.shift_left(wide, dst, dst, count.cast_unsigned());
            }
            (Alu::Rsh, Operand::Number(count)) => {
                return code.shift_right(wide, dst, dst, count.cast_unsigned());
            }
            (Alu::Arsh, Operand::Number(count)) => {
                return code.shift_signed(wide, dst, dst, count.cast_unsigned());
            }
            _ => {}
        }
        let src = self.operand(operand, X9);
        let code = &mut self.code;
        let op = match alu {
            Alu::Mov => return code.mov(wide, dst, src),
            Alu::Mul => return code.multiply_add(wide, dst, dst, src, ZERO),
            Alu::Mod => {
                // A quotient by zero is 0 here, too; so the remainder is the number as it was.
                code.three(Three::Div, wide, X10, dst, src);
                return code.multiply_sub(wide, dst, X10, src, dst);
            }
            Alu::Add => Three::Add,
            Alu::Sub => Three::Sub,
            Alu::Or => Three::Or,
            Alu::And => Three::And,
            Alu::Xor => Three::Xor,
            Alu::Div => Three::Div,
            Alu::Lsh => Three::ShiftLeft,
            Alu::Rsh => Three::ShiftRight,
            Alu::Arsh => Three::ShiftSigned,
        };
        code.three(op, wide, dst, dst, src);
    }

    fn swap(&mut self, big: bool, bits: u8, dst: Reg) {
        let code = &mut self.code;
        match (bits, big) {
            (16, true) => {
                code.reverse16(dst, dst);
                code.extend16(dst, dst);
            }
            (16, false) => code.extend16(dst, dst),
            (32, false) => code.mov(false, dst, dst),
            (32, true) => code.reverse(false, dst, dst),
            (_, true) => code.reverse(true, dst, dst),
            (_, false) => {}
        }
    }

    /// At the address in X9.
    fn atomic(&mut self, atomic: Atomic, fetch: bool, wide: bool, src: Reg) {
        let code = &mut self.code;
        let again = code.0.len();
        code.load_exclusive(wide, X10, X9);
        let new = match atomic {
            Atomic::Exchange | Atomic::CompareExchange => src,
            Atomic::Add | Atomic::Or | Atomic::And | Atomic::Xor => {
                let op = match atomic {
                    Atomic::Or => Three::Or,
                    Atomic::And => Three::And,
                    Atomic::Xor => Three::Xor,
                    _ => Three::Add,
                };
                code.three(op, wide, X11, X10, src);
                X11
            }
        };
        let differs = (atomic == Atomic::CompareExchange).then(|| {
            code.three(Three::Subs, wide, ZERO, X10, R0);
            code.jump(Some(Cc::NotEqual))
        });
        code.store_exclusive(wide, X13, new, X9);
        code.back_if_not_zero(X13, again);
        if let Some(differs) = differs {
            code.land(differs, code.0.len());
        }
        if fetch {
            code.barrier();
            code.mov(wide, if differs.is_some() { R0 } else { src }, X10);
        }
    }

    /// Sets the flags.
    fn compare(&mut self, condition: Condition, wide: bool, a: Reg, operand: Operand) -> Cc {
        match operand {
            Operand::Number(number)
                if number.unsigned_abs() < 4096 && number != 0 && condition != Condition::Set =>
            {
                self.code.compare_small(wide, a, number);
            }
            _ => {
                let op = if condition == Condition::Set { Three::Ands } else { Three::Subs };
                let b = self.operand(operand, X10);
                self.code.three(op, wide, ZERO, a, b);
            }
        }
        match condition {
            Condition::Eq => Cc::Equal,
            Condition::Ne | Condition::Set => Cc::NotEqual,
            Condition::Gt => Cc::Above,
            Condition::Ge => Cc::AboveEqual,
            Condition::Lt => Cc::Below,
            Condition::Le => Cc::BelowEqual,
            Condition::Sgt => Cc::Greater,
            Condition::Sge => Cc::GreaterEqual,
            Condition::Slt => Cc::Less,
            Condition::Sle => Cc::LessEqual,
        }
    }

    fn jump(&mut self, at: usize, off: i16, when: Option<Cc>) {
        // A target before the first instruction, or far behind the last, has no place, and is found to be none.
        let to = (at + 1).checked_add_signed(off.into()).unwrap_or(usize::MAX);
        let jump = self.code.jump(when);
        self.jumps.push((jump, to));
    }

    fn call(&mut self, helper: u32, inline: Option<Inline>) {
        let code = &mut self.code;
        match inline {
            Some(Inline::Log2) => {
                // The place of the highest bit of n | 1 is 0 for 0, and n's for all others.
                code.or_one(R0, REGISTERS[1]);
                code.leading_zeroes(R0, R0);
                code.number(X9, 63);
                code.three(Three::Sub, true, R0, X9, R0);
            }
            Some(Inline::Array(map)) => self.element(map),
            None => {
                let index = helpers::find(helper).map_or(0, helpers::Helper::index);
                code.mov(true, SIXTH, ENV);
                let at = offset_of!(Env, helpers) + 8 * index;
                code.load(8, X9, Mem(ENV, at as i32), X9);
                code.call(X9);
                code.mov(true, R0, Reg(0));
            }
        }
    }

    /// r0 = the value of an array at r1 whose number r2 points to, or null.
    fn element(&mut self, map: u32) {
        let map = &self.program.maps[map as usize];
        let code = &mut self.code;
        code.load(4, X9, Mem(REGISTERS[2], 0), X10);
        code.number(R0, 0);
        code.number(X10, map.entries.into());
        code.three(Three::Subs, false, ZERO, X9, X10);
        let none = code.jump(Some(Cc::AboveEqual));
        code.number(X10, map.stride.into());
        code.multiply_add(true, R0, X9, X10, REGISTERS[1]);
        let first = map.first.cast_signed();
        self.add(R0, R0, first);
        let here = self.code.0.len();
        self.code.land(none, here);
    }
}
