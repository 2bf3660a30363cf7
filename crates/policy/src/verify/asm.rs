//! Instructions as people read them, in the kernel's notation.

use crate::op::{Alu, Atomic, Condition, Constant, Op, Operand};
use lockwright_contract::programs::helpers;
use std::fmt;

/// An instruction, and the place that it has in its hook: jumps show where they go.
pub struct Text<'a>(pub &'a Op, pub usize);

/// A register: `w3` stands for the lower half of `r3`.
struct Name(u8, bool);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", if self.1 { 'r' } else { 'w' }, self.0)
    }
}

/// The second operand.
struct Second(Operand, bool);

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Operand::Register(number) => Name(number, self.1).fmt(f),
            Operand::Number(number) => number.fmt(f),
        }
    }
}

/// `*(u32 *)(r1 + 8)`.
struct Access(u8, u8, i16);

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(size, register, off) = *self;
        let sign = if off < 0 { '-' } else { '+' };
        write!(f, "*(u{} *)(r{register} {sign} {})", 8 * u32::from(size), off.unsigned_abs())
    }
}

fn sign(alu: Alu) -> &'static str {
    match alu {
        Alu::Add => "+=",
        Alu::Sub => "-=",
        Alu::Mul => "*=",
        Alu::Div => "/=",
        Alu::Or => "|=",
        Alu::And => "&=",
        Alu::Lsh => "<<=",
        Alu::Rsh => ">>=",
        Alu::Mod => "%=",
        Alu::Xor => "^=",
        Alu::Mov => "=",
        Alu::Arsh => "s>>=",
    }
}

/// A condition as it stands between its operands.
pub(super) fn comparison(condition: Condition) -> &'static str {
    match condition {
        Condition::Eq => "==",
        Condition::Gt => ">",
        Condition::Ge => ">=",
        Condition::Set => "&",
        Condition::Ne => "!=",
        Condition::Sgt => "s>",
        Condition::Sge => "s>=",
        Condition::Lt => "<",
        Condition::Le => "<=",
        Condition::Slt => "s<",
        Condition::Sle => "s<=",
    }
}

/// Where a jump goes.
fn target(at: usize, off: i16) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX).saturating_add(1 + i64::from(off))
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(op, at) = *self;
        match *op {
            Op::Alu { alu, wide, dst, operand } => {
                write!(f, "{} {} {}", Name(dst, wide), sign(alu), Second(operand, wide))
            }
            Op::Neg { wide, dst } => {
                let name = Name(dst, wide);
                write!(f, "{name} = -{name}")
            }
            Op::Swap { big, bits, dst } => {
                write!(f, "r{dst} = {}{bits} r{dst}", if big { "be" } else { "le" })
            }
            Op::Load64 { dst, constant } => match constant {
                Constant::Number(value) => write!(f, "r{dst} = {value:#x} ll"),
                Constant::Map(map) => write!(f, "r{dst} = map {map}"),
                Constant::Value(map, off) => write!(f, "r{dst} = map {map} value + {off}"),
            },
            Op::Load { size, dst, src, off } => write!(f, "r{dst} = {}", Access(size, src, off)),
            Op::Store { size, dst, off, operand } => {
                write!(f, "{} = {}", Access(size, dst, off), Second(operand, true))
            }
            Op::Atomic { atomic, fetch, wide, dst, off, src } => {
                let place = Access(if wide { 8 } else { 4 }, dst, off);
                let sign = match atomic {
                    Atomic::Add => "+=",
                    Atomic::Or => "|=",
                    Atomic::And => "&=",
                    Atomic::Xor => "^=",
                    Atomic::Exchange => return write!(f, "r{src} = xchg({place}, r{src})"),
                    Atomic::CompareExchange => {
                        return write!(f, "r0 = cmpxchg({place}, r0, r{src})");
                    }
                };
                let fetched = if fetch { format!("r{src} = fetch ") } else { String::new() };
                write!(f, "{fetched}lock {place} {sign} r{src}")
            }
            Op::Jump { off } => write!(f, "goto {}", target(at, off)),
            Op::Branch { condition, wide, dst, operand, off } => write!(
                f,
                "if {} {} {} goto {}",
                Name(dst, wide),
                comparison(condition),
                Second(operand, wide),
                target(at, off)
            ),
            Op::Call { helper } => match helpers::find(helper) {
                Some(helper) => write!(f, "call {}", helper.name),
                None => write!(f, "call {helper}"),
            },
            Op::Exit => f.write_str("exit"),
        }
    }
}
