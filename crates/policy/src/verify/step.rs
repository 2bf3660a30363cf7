//! What one instruction does to what is known.

use super::fault::{Fault, Wrong};
use super::scalar::Scalar;
use super::state::{Known, Reg};
use super::walk::Walk;
use crate::op::{Alu, Condition, Constant, Op, Operand};

/// Pointers stay this close to where they came from, bytes. Sums with an access's offset can't overflow.
pub(super) const FARTHEST: i64 = 1 << 29;

/// Where a path goes on.
pub(super) enum Next {
    /// At the next instruction.
    Falls,
    /// After this many instructions more, or fewer.
    Jumps(i16),
    /// Both may be; the state is that of a jump.
    Both(i16, Box<Known>),
    /// The hook has answered.
    Ends,
}

/// What to say if a value may be null.
pub(super) const NULL_HINT: &str = "check it for NULL first: if (!value) return 0;";

impl Walk<'_> {
    /// Executes an instruction.
    pub(super) fn step(&mut self, state: &mut Known, op: &Op) -> Result<Next, Wrong> {
        match *op {
            Op::Alu { alu: Alu::Mov, wide, dst, operand } => {
                let value = self.moved(state, wide, operand)?;
                state.set(dst, value);
            }
            Op::Alu { alu, wide, dst, operand } => {
                let (left, right) = (read(state, dst)?, second(state, operand)?);
                let value = self.arithmetic(alu, wide, (dst, left), (operand, right))?;
                state.set(dst, value);
            }
            Op::Neg { wide, dst } => {
                let value = number(state, dst, "negates")?.negated(wide);
                state.set(dst, Reg::Number(value));
            }
            Op::Swap { big, bits, dst } => {
                let value = number(state, dst, "swaps the bytes of")?.swapped(big, bits).alone();
                state.set(dst, Reg::Number(value));
            }
            Op::Load64 { dst, constant } => state.set(dst, self.constant(constant)),
            Op::Load { size, dst, src, off } => {
                let value = self.load(state, src, off, size)?;
                state.set(dst, value);
            }
            Op::Store { size, dst, off, operand } => {
                let value = second(state, operand)?;
                self.store(state, (dst, off, size), operand, value)?;
            }
            Op::Atomic { .. } => self.atomic(state, op)?,
            Op::Jump { off } => return Ok(Next::Jumps(off)),
            Op::Branch { condition, wide, dst, operand, off } => {
                let second = second(state, operand)?;
                let left = read(state, dst)?;
                if !self.is_inside(&left) {
                    // So far away, it might even be NULL.
                    let what = "compares a pointer that has left its memory";
                    return Err(Wrong::new(Fault::Comparison, what).by(dst));
                }
                return branch(state, (condition, wide), (dst, left), (operand, second), off);
            }
            Op::Call { helper } => self.call(state, helper)?,
            Op::Exit => {
                self.answer(state)?;
                return Ok(Next::Ends);
            }
        }
        Ok(Next::Falls)
    }

    fn constant(&mut self, constant: Constant) -> Reg {
        match constant {
            Constant::Number(value) => Reg::known(value),
            Constant::Map(map) => {
                self.uses_map(map);
                Reg::Map(map)
            }
            Constant::Value(map, off) => {
                self.uses_map(map);
                Reg::Value { map, off: Scalar::known(u64::from(off)) }
            }
        }
    }

    /// A copy. From now on a branch on one of both tells about the other.
    fn moved(&mut self, state: &mut Known, wide: bool, operand: Operand) -> Result<Reg, Wrong> {
        let (register, value) = match operand {
            Operand::Number(number) => {
                let value = i64::from(number).cast_unsigned();
                let value = if wide { value } else { value & u64::from(u32::MAX) };
                return Ok(Reg::known(value));
            }
            Operand::Register(register) => (register, read(state, register)?),
        };
        match value {
            Reg::Number(number) if wide || number.wide.umax <= u64::from(u32::MAX) => {
                let mut number = number;
                if number.copy == 0 && number.constant().is_none() {
                    number.copy = self.identity();
                    state.set(register, Reg::Number(number));
                }
                Ok(Reg::Number(number))
            }
            Reg::Number(number) => Ok(Reg::Number(number.truncated())),
            pointer if wide => Ok(pointer),
            _ => {
                let what = "takes the lower half of a pointer";
                Err(Wrong::new(Fault::Leak, what).by(register))
            }
        }
    }

    fn arithmetic(
        &self,
        alu: Alu,
        wide: bool,
        (dst, left): (u8, Reg),
        (operand, right): (Operand, Reg),
    ) -> Result<Reg, Wrong> {
        let source = register(operand);
        match (left, right) {
            (Reg::Number(left), Reg::Number(right)) => {
                if let (Alu::Div | Alu::Mod, Operand::Number(0)) = (alu, operand) {
                    return Err(Wrong::new(Fault::Instruction, "divides by zero"));
                }
                Ok(Reg::Number(left.alu(alu, right, wide)))
            }
            (pointer, Reg::Number(number)) if wide && matches!(alu, Alu::Add | Alu::Sub) => {
                let by = source.unwrap_or(dst);
                self.moved_pointer((dst, pointer), alu, (by, number))
            }
            (Reg::Number(number), pointer) if wide && alu == Alu::Add => {
                self.moved_pointer((source.unwrap_or(dst), pointer), alu, (dst, number))
            }
            (left, _) => {
                let register = source.filter(|_| !left.is_pointer()).unwrap_or(dst);
                let what = "computes with a pointer";
                let wrong = Wrong::new(Fault::Arithmetic, what).by(register);
                Err(wrong.hint("only numbers may be added to pointers, or subtracted from them"))
            }
        }
    }

    /// A pointer, plus or minus a number.
    fn moved_pointer(
        &self,
        (register, pointer): (u8, Reg),
        alu: Alu,
        (by, number): (u8, Scalar),
    ) -> Result<Reg, Wrong> {
        let wrong = |what: &str| Wrong::new(Fault::Arithmetic, what);
        let near = |off: Scalar| {
            let is_near = |off: &Scalar| off.wide.smin >= -FARTHEST && off.wide.smax <= FARTHEST;
            if !is_near(&number) {
                let what = match pointer {
                    Reg::Value { map, .. } => {
                        let (name, has) = self.value_of(map);
                        format!("goes {number} bytes into '{name}', which has {has}")
                    }
                    _ => format!("moves a pointer by {number}"),
                };
                return Err(wrong(&what).by(by).hint(self.bound_hint(&pointer, &number)));
            }
            let off = off.alu(alu, number, true);
            if !is_near(&off) {
                let wrong = wrong("moves a pointer too far").by(register);
                return Err(wrong.hint(self.bound_hint(&pointer, &number)));
            }
            Ok(off)
        };
        match pointer {
            Reg::Context(off) => {
                let off = near(Scalar::known(off.cast_unsigned()))?;
                let off = off.constant().ok_or_else(|| {
                    let wrong = wrong("reads the context at a place that is not constant");
                    wrong.by(by).hint("read its members by name")
                })?;
                Ok(Reg::Context(off.cast_signed()))
            }
            Reg::Stack(off) => near(off).map(Reg::Stack),
            Reg::Value { map, off } => near(off).map(|off| Reg::Value { map, off }),
            Reg::OrNull { .. } => {
                let what = "computes with a pointer that may be NULL";
                Err(Wrong::new(Fault::Null, what).by(register).hint(NULL_HINT))
            }
            Reg::Map(_) => Err(wrong("computes with the address of a map").by(register)),
            Reg::Nothing | Reg::Number(_) => {
                Err(wrong("computes with something that isn't a pointer").by(register))
            }
        }
    }

    fn answer(&self, state: &Known) -> Result<(), Wrong> {
        let largest = self.hook().largest();
        let hint = match largest {
            0 => "return 0;".to_owned(),
            most if most > 3 => format!("clamp it: if (ns > {most}) ns = {most};"),
            most => {
                let all: Vec<_> = (0..=most).map(|answer| answer.to_string()).collect();
                format!("return one of {}", all.join(", "))
            }
        };
        let answer = match read(state, 0) {
            Ok(Reg::Number(answer)) => answer,
            Ok(_) => return Err(Wrong::new(Fault::Leak, "answers a pointer").by(0).hint(hint)),
            Err(wrong) => {
                return Err(Wrong { what: "ends without an answer".into(), ..wrong }.hint(hint));
            }
        };
        if answer.wide.umax > largest {
            let name = if largest == 0 { "0".to_owned() } else { format!("0 to {largest}") };
            let what = format!("answers {answer}, but must answer {name}");
            return Err(Wrong::new(Fault::Answer, what).by(0).hint(hint));
        }
        Ok(())
    }
}

/// What a register holds.
pub(super) fn read(state: &Known, register: u8) -> Result<Reg, Wrong> {
    match state.reg(register) {
        Reg::Nothing => {
            let what = format!("uses r{register}, which has no value here");
            let wrong = Wrong::new(Fault::Uninitialised, what).by(register);
            Err(wrong.hint("give the variable a value on every path"))
        }
        reg => Ok(reg),
    }
}

fn register(operand: Operand) -> Option<u8> {
    match operand {
        Operand::Register(register) => Some(register),
        Operand::Number(_) => None,
    }
}

fn second(state: &Known, operand: Operand) -> Result<Reg, Wrong> {
    match operand {
        Operand::Register(register) => read(state, register),
        Operand::Number(number) => Ok(Reg::known(i64::from(number).cast_unsigned())),
    }
}

fn number(state: &Known, register: u8, does: &str) -> Result<Scalar, Wrong> {
    match read(state, register)? {
        Reg::Number(number) => Ok(number),
        _ => Err(Wrong::new(Fault::Arithmetic, format!("{does} a pointer")).by(register)),
    }
}

/// A branch: which ways can be taken, and what is known then.
fn branch(
    state: &mut Known,
    (condition, wide): (Condition, bool),
    (dst, left): (u8, Reg),
    (operand, right): (Operand, Reg),
    off: i16,
) -> Result<Next, Wrong> {
    let source = register(operand);
    let (one, other) = match (left, right) {
        (Reg::Number(one), Reg::Number(other)) => (one, other),
        (pointer, _) if operand == Operand::Number(0) => {
            return null_check(state, (condition, wide), (dst, pointer), off);
        }
        (left, _) => {
            let register = if left.is_pointer() { dst } else { source.unwrap_or(dst) };
            let wrong = Wrong::new(Fault::Comparison, "compares a pointer").by(register);
            return Err(wrong.hint("pointers may only be compared with NULL"));
        }
    };
    let way = |state: &mut Known, holds: bool| {
        let Some((left, right)) = one.refined(other, condition, holds, wide) else { return false };
        learn(state, dst, one, left);
        if let Some(source) = source {
            learn(state, source, other, right);
        }
        true
    };
    let mut taken = state.clone();
    match (way(&mut taken, true), way(state, false)) {
        (true, true) => Ok(Next::Both(off, Box::new(taken))),
        (true, false) => {
            *state = taken;
            Ok(Next::Jumps(off))
        }
        // If neither can be, no execution comes here.
        (false, _) => Ok(Next::Falls),
    }
}

/// A register's number, and all its copies, are known better now.
fn learn(state: &mut Known, register: u8, before: Scalar, now: Scalar) {
    state.set(register, Reg::Number(now));
    if before.copy != 0 {
        state.each(|reg| match reg {
            Reg::Number(copy) if copy.copy == before.copy => Reg::Number(now),
            reg => reg,
        });
    }
}

/// A pointer is compared with 0.
fn null_check(
    state: &mut Known,
    (condition, wide): (Condition, bool),
    (register, pointer): (u8, Reg),
    off: i16,
) -> Result<Next, Wrong> {
    let equal = match condition {
        Condition::Eq if wide => true,
        Condition::Ne if wide => false,
        _ => {
            let what = "compares a pointer with 0 in another way than == or !=";
            return Err(Wrong::new(Fault::Comparison, what).by(register));
        }
    };
    let Reg::OrNull { map, id } = pointer else {
        return Ok(if equal { Next::Falls } else { Next::Jumps(off) });
    };
    let mut taken = state.clone();
    let (null, value) = if equal { (&mut taken, state) } else { (state, &mut taken) };
    let all = |to: Reg| move |reg| if reg == (Reg::OrNull { map, id }) { to } else { reg };
    null.each(all(Reg::known(0)));
    value.each(all(Reg::Value { map, off: Scalar::known(0) }));
    Ok(Next::Both(off, Box::new(taken)))
}
