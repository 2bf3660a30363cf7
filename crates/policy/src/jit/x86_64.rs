//! eBPF to x86-64, an instruction at a time.
//!
//! ```text
//!   r0 rax   r1 rdi   r2 rsi   r3 rdx   r4 rcx   r5 r8        as the calling convention has them: a call needs no moves
//!   r6 rbx   r7 rbp   r8 r13   r9 r14   env r12               saved if they are used
//!   r10      rsp + the frame's size: an address, in no register
//!   r9, r10, r11 of the machine                               for a moment; r9 is env, when a helper is called
//! ```

mod encode;

use super::{CantCompile, HookProgram, Inline};
use crate::op::{Alu, Atomic, Condition, Constant, FRAME, Op, Operand};
use encode::*;
use lockwright_contract::programs::env::Env;
use lockwright_contract::programs::helpers;
use std::mem::offset_of;

/// Where r0 to r9 are.
const REGISTERS: [Reg; 10] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, RBP, R13, R14];
/// Those that a function must leave as they were.
const SAVED: [u8; 4] = [6, 7, 8, 9];
const ENV: Reg = R12;
/// What leaf functions may use below the stack pointer.
const RED_ZONE: usize = 128;

/// Translates a hook.
pub(super) fn translate(program: &HookProgram) -> Result<Vec<u8>, CantCompile> {
    let jumps = program.ops.iter().filter(|(_, op)| jump(op).is_some()).count();
    let mut short = vec![false; jumps];
    // Jumps begin long. Those that turn out to be short make others shorter, never longer.
    loop {
        let Translation { starts, jumps, code: Code(mut code), .. } =
            Translation::of(program, &short);
        let before = short.clone();
        for (jump, short) in jumps.iter().zip(&mut short) {
            let to = starts.get(jump.to).copied().flatten().ok_or(CantCompile::Jump)?;
            let width = if *short { 1 } else { 4 };
            let distance = to as i64 - (jump.at + width) as i64;
            code[jump.at..jump.at + width].copy_from_slice(&distance.to_le_bytes()[..width]);
            *short |= i8::try_from(distance).is_ok();
        }
        if short == before {
            return Ok(code);
        }
    }
}

/// By how much an instruction may jump.
fn jump(op: &Op) -> Option<i16> {
    match op {
        Op::Jump { off } | Op::Branch { off, .. } => Some(*off),
        _ => None,
    }
}

/// A jump whose distance is filled in at the end.
struct Jump {
    /// Where the distance stands.
    at: usize,
    /// The instruction to which it goes.
    to: usize,
}

struct Translation<'a> {
    program: &'a HookProgram<'a>,
    short: &'a [bool],
    code: Code,
    /// Where each instruction begins.
    starts: Vec<Option<usize>>,
    jumps: Vec<Jump>,
    /// What is pushed.
    saved: Vec<Reg>,
    /// By how much the stack pointer is lowered: so far above it is r10.
    frame: i32,
}

impl<'a> Translation<'a> {
    fn of(program: &'a HookProgram<'a>, short: &'a [bool]) -> Self {
        let mut saved: Vec<Reg> = SAVED
            .into_iter()
            .filter(|register| program.uses(*register))
            .map(|register| REGISTERS[usize::from(register)])
            .collect();
        if program.needs_env {
            saved.push(ENV);
        }
        let lowered = if program.calls {
            // The return address and what is pushed lie below a multiple of 16; calls want one again.
            let above = 8 + 8 * saved.len();
            (above + program.depth.next_multiple_of(8)).next_multiple_of(16) - above
        } else if program.depth > RED_ZONE {
            program.depth.next_multiple_of(8)
        } else {
            0
        };
        let mut translation = Self {
            program,
            short,
            code: Code::default(),
            starts: vec![None; program.len],
            jumps: Vec::new(),
            saved,
            frame: lowered as i32, // 512 and a little
        };
        translation.enter();
        for (index, (at, op)) in program.ops.iter().enumerate() {
            translation.starts[*at] = Some(translation.code.0.len());
            translation.op(index, *at, *op);
        }
        translation
    }

    fn enter(&mut self) {
        for register in self.saved.clone() {
            self.code.push(register);
        }
        if self.frame > 0 {
            self.code.two_number(Two::Sub, true, RSP, self.frame);
        }
        if self.program.needs_env {
            self.code.mov(true, ENV, RSI);
        }
    }

    fn leave(&mut self) {
        if self.frame > 0 {
            self.code.two_number(Two::Add, true, RSP, self.frame);
        }
        for register in self.saved.clone().into_iter().rev() {
            self.code.pop(register);
        }
        self.code.ret();
    }

    /// The machine's register; r10's address is put into `scratch`.
    fn register(&mut self, register: u8, scratch: Reg) -> Reg {
        if register == FRAME {
            self.code.lea(scratch, Mem(RSP, self.frame));
            scratch
        } else {
            REGISTERS[usize::from(register)]
        }
    }

    fn at(&self, register: u8, off: i16) -> Mem {
        if register == FRAME {
            Mem(RSP, self.frame + i32::from(off))
        } else {
            Mem(REGISTERS[usize::from(register)], off.into())
        }
    }

    fn op(&mut self, index: usize, at: usize, op: Op) {
        match op {
            Op::Alu { alu, wide, dst, operand } => {
                let dst = REGISTERS[usize::from(dst)];
                match operand {
                    Operand::Register(FRAME) if alu == Alu::Mov && wide => {
                        self.code.lea(dst, Mem(RSP, self.frame));
                    }
                    Operand::Register(src) => {
                        let src = self.register(src, R11);
                        self.alu(alu, wide, dst, src);
                    }
                    Operand::Number(number) => self.alu_number(alu, wide, dst, number),
                }
            }
            Op::Neg { wide, dst } => self.code.neg(wide, REGISTERS[usize::from(dst)]),
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
                self.code.load(size, REGISTERS[usize::from(dst)], self.at(src, off));
            }
            Op::Store { size, dst, off, operand } => {
                let to = self.at(dst, off);
                match operand {
                    Operand::Register(src) => {
                        let src = self.register(src, R11);
                        self.code.store(size, to, src);
                    }
                    Operand::Number(number) => self.code.store_number(size, to, number),
                }
            }
            Op::Atomic { atomic, fetch, wide, dst, off, src } => {
                let to = self.at(dst, off);
                let src = self.register(src, R10);
                self.atomic(atomic, fetch, wide, to, src);
            }
            Op::Jump { off: 0 } => {}
            Op::Jump { off } => self.jump(at, off, None),
            Op::Branch { condition, wide, dst, operand, off } => {
                let dst = self.register(dst, R10);
                let cc = self.compare(condition, wide, dst, operand);
                self.jump(at, off, Some(cc));
            }
            Op::Call { helper } => self.call(helper, self.program.inline[index]),
            Op::Exit => self.leave(),
        }
    }

    /// The address of a byte of the maps' memory.
    fn data(&mut self, dst: Reg, offset: u32) {
        self.code.load(8, dst, Mem(ENV, offset_of!(Env, data) as i32));
        if offset > 0 {
            self.code.two_number(Two::Add, true, dst, offset.cast_signed());
        }
    }

    fn alu(&mut self, alu: Alu, wide: bool, dst: Reg, src: Reg) {
        let code = &mut self.code;
        match alu {
            Alu::Add => code.two(Two::Add, wide, dst, src),
            Alu::Sub => code.two(Two::Sub, wide, dst, src),
            Alu::Or => code.two(Two::Or, wide, dst, src),
            Alu::And => code.two(Two::And, wide, dst, src),
            Alu::Xor => code.two(Two::Xor, wide, dst, src),
            Alu::Mul => code.imul(wide, dst, src),
            Alu::Mov if wide => code.take(dst, src),
            Alu::Mov => code.mov(false, dst, src),
            Alu::Div | Alu::Mod => {
                code.take(R11, src);
                self.divide(alu, wide, dst, true);
            }
            Alu::Lsh => self.shift(Shift::Left, wide, dst, src),
            Alu::Rsh => self.shift(Shift::Right, wide, dst, src),
            Alu::Arsh => self.shift(Shift::Signed, wide, dst, src),
        }
    }

    fn alu_number(&mut self, alu: Alu, wide: bool, dst: Reg, number: i32) {
        let code = &mut self.code;
        match alu {
            Alu::Add => code.two_number(Two::Add, wide, dst, number),
            Alu::Sub => code.two_number(Two::Sub, wide, dst, number),
            Alu::Or => code.two_number(Two::Or, wide, dst, number),
            Alu::And => code.two_number(Two::And, wide, dst, number),
            Alu::Xor => code.two_number(Two::Xor, wide, dst, number),
            Alu::Mul => code.imul_number(wide, dst, dst, number),
            Alu::Mov => code.number(dst, extended(wide, number)),
            Alu::Div if number == 0 => code.number(dst, 0),
            Alu::Mod if number == 0 => {
                if !wide {
                    code.mov(false, dst, dst);
                }
            }
            Alu::Div if number > 0 && number.count_ones() == 1 => {
                code.shift_number(Shift::Right, wide, dst, number.trailing_zeros() as u8);
            }
            Alu::Mod if number > 0 && number.count_ones() == 1 => {
                code.two_number(Two::And, wide, dst, number - 1);
            }
            Alu::Div | Alu::Mod => {
                code.number(R11, extended(wide, number));
                self.divide(alu, wide, dst, false);
            }
            Alu::Lsh => code.shift_number(Shift::Left, wide, dst, number as u8),
            Alu::Rsh => code.shift_number(Shift::Right, wide, dst, number as u8),
            Alu::Arsh => code.shift_number(Shift::Signed, wide, dst, number as u8),
        }
    }

    /// Divides `dst` by R11, which may be zero, or not.
    fn divide(&mut self, alu: Alu, wide: bool, dst: Reg, zero: bool) {
        let code = &mut self.code;
        let by_zero = zero.then(|| {
            code.test(wide, R11, R11);
            code.ahead(Some(Cc::Equal))
        });
        if dst != RAX {
            code.mov(true, R10, RAX);
            code.mov(true, RAX, dst);
        }
        if dst != RDX {
            code.mov(true, R9, RDX);
        }
        code.number(RDX, 0);
        code.div(wide, R11);
        let result = if alu == Alu::Div { RAX } else { RDX };
        code.mov(wide, R11, result);
        if dst != RDX {
            code.mov(true, RDX, R9);
        }
        if dst != RAX {
            code.mov(true, RAX, R10);
        }
        code.mov(true, dst, R11);
        if let Some(by_zero) = by_zero {
            let over = code.ahead(None);
            code.here(by_zero);
            if alu == Alu::Div {
                code.number(dst, 0);
            } else if !wide {
                code.mov(false, dst, dst);
            }
            code.here(over);
        }
    }

    /// The machine shifts by CL, and takes the count modulo the width, too.
    fn shift(&mut self, shift: Shift, wide: bool, dst: Reg, src: Reg) {
        let code = &mut self.code;
        if src == RCX {
            code.shift(shift, wide, dst);
        } else if dst == RCX {
            code.mov(true, R10, RCX);
            code.mov(true, RCX, src);
            code.shift(shift, wide, R10);
            code.mov(true, RCX, R10);
        } else {
            code.mov(true, R10, RCX);
            code.mov(true, RCX, src);
            code.shift(shift, wide, dst);
            code.mov(true, RCX, R10);
        }
    }

    fn swap(&mut self, big: bool, bits: u8, dst: Reg) {
        let code = &mut self.code;
        match (bits, big) {
            (16, true) => {
                code.swap16(dst);
                code.extend16(dst);
            }
            (16, false) => code.extend16(dst),
            (32, true) => code.bswap(false, dst),
            (32, false) => code.mov(false, dst, dst),
            (_, true) => code.bswap(true, dst),
            (_, false) => {}
        }
    }

    fn atomic(&mut self, atomic: Atomic, fetch: bool, wide: bool, to: Mem, src: Reg) {
        let code = &mut self.code;
        let op = match atomic {
            Atomic::Exchange => return code.xchg(wide, to, src),
            Atomic::CompareExchange => {
                code.locked_cmpxchg(wide, to, src);
                if !wide {
                    // If it succeeds, the machine leaves the upper half as it was.
                    code.mov(false, RAX, RAX);
                }
                return;
            }
            Atomic::Add if fetch => return code.locked_xadd(wide, to, src),
            Atomic::Add => Two::Add,
            Atomic::Or => Two::Or,
            Atomic::And => Two::And,
            Atomic::Xor => Two::Xor,
        };
        if !fetch {
            return code.locked(op, wide, to, src);
        }
        // The machine can't fetch what it changes this way: try until nobody came between.
        code.lea(R11, to);
        code.mov(true, R10, src);
        let new = if src == RAX {
            R9
        } else {
            code.mov(true, R9, RAX);
            src
        };
        code.load(if wide { 8 } else { 4 }, RAX, Mem(R11, 0));
        let again = code.0.len();
        code.mov(wide, new, RAX);
        code.two(op, wide, new, R10);
        code.locked_cmpxchg(wide, Mem(R11, 0), new);
        code.back(Cc::NotEqual, again);
        if src != RAX {
            code.mov(wide, src, RAX);
            code.mov(true, RAX, R9);
        }
    }

    /// Sets the flags.
    fn compare(&mut self, condition: Condition, wide: bool, a: Reg, operand: Operand) -> Cc {
        let set = condition == Condition::Set;
        match operand {
            Operand::Register(register) => {
                let b = self.register(register, R11);
                if set {
                    self.code.test(wide, a, b);
                } else {
                    self.code.two(Two::Cmp, wide, a, b);
                }
            }
            Operand::Number(number) if set => self.code.test_number(wide, a, number),
            Operand::Number(0) => self.code.test(wide, a, a), // nothing is carried, as with a comparison
            Operand::Number(number) => self.code.two_number(Two::Cmp, wide, a, number),
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
        let at = self.code.jump(when, self.short[self.jumps.len()]);
        self.jumps.push(Jump { at, to });
    }

    fn call(&mut self, helper: u32, inline: Option<Inline>) {
        match inline {
            Some(Inline::Log2) => {
                // The place of the highest bit of n | 1 is 0 for 0, and n's for all others.
                self.code.mov(true, RAX, RDI);
                self.code.two_number(Two::Or, true, RAX, 1);
                self.code.bsr(RAX, RAX);
            }
            Some(Inline::Array(map)) => self.element(map),
            None => {
                let index = helpers::find(helper).map_or(0, helpers::Helper::index);
                self.code.mov(true, R9, ENV);
                let at = offset_of!(Env, helpers) + 8 * index;
                self.code.call(Mem(ENV, at as i32));
            }
        }
    }

    /// r0 = the value of an array at r1 whose number r2 points to, or null.
    fn element(&mut self, map: u32) {
        let map = &self.program.maps[map as usize];
        let code = &mut self.code;
        if map.entries == 1 {
            code.number(RAX, 0);
            code.compare_memory32(Mem(RSI, 0), 0);
            let none = code.ahead(Some(Cc::NotEqual));
            code.lea(RAX, Mem(RDI, map.first.cast_signed()));
            code.here(none);
            return;
        }
        code.load(4, RAX, Mem(RSI, 0));
        code.two_number(Two::Cmp, false, RAX, map.entries.cast_signed());
        let none = code.ahead(Some(Cc::AboveEqual));
        let scale = if map.stride == 8 {
            8
        } else {
            code.imul_number(true, RAX, RAX, map.stride.cast_signed());
            1
        };
        code.lea_scaled(RAX, RDI, RAX, scale, map.first.cast_signed());
        let over = code.ahead(None);
        code.here(none);
        code.number(RAX, 0);
        code.here(over);
    }
}

/// What a move of this number leaves in a register.
fn extended(wide: bool, number: i32) -> u64 {
    if wide { i64::from(number).cast_unsigned() } else { number.cast_unsigned().into() }
}
