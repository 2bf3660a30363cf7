//! What instructions do with numbers. Total: there is an answer for each input.

use crate::op::{Alu, Atomic, Condition};

/// `a op b`.
pub(crate) fn alu(alu: Alu, wide: bool, a: u64, b: u64) -> u64 {
    if wide { alu64(alu, a, b) } else { u64::from(alu32(alu, low(a), low(b))) }
}

macro_rules! alu {
    ($name:ident, $number:ty) => {
        fn $name(alu: Alu, a: $number, b: $number) -> $number {
            let count = b as u32;
            match alu {
                Alu::Add => a.wrapping_add(b),
                Alu::Sub => a.wrapping_sub(b),
                Alu::Mul => a.wrapping_mul(b),
                Alu::Div => a.checked_div(b).unwrap_or(0),
                Alu::Mod => a.checked_rem(b).unwrap_or(a),
                Alu::Or => a | b,
                Alu::And => a & b,
                Alu::Xor => a ^ b,
                Alu::Mov => b,
                Alu::Lsh => a.wrapping_shl(count),
                Alu::Rsh => a.wrapping_shr(count),
                Alu::Arsh => a.cast_signed().wrapping_shr(count).cast_unsigned(),
            }
        }
    };
}

alu!(alu64, u64);
alu!(alu32, u32);

/// `-a`.
pub(crate) fn neg(wide: bool, a: u64) -> u64 {
    if wide { a.wrapping_neg() } else { u64::from(low(a).wrapping_neg()) }
}

/// The lower bits in that order of bytes; the others are 0.
pub(crate) fn swap(big: bool, bits: u8, a: u64) -> u64 {
    match (bits, big) {
        (16, true) => u64::from((a as u16).to_be()),
        (16, false) => u64::from((a as u16).to_le()),
        (32, true) => u64::from(low(a).to_be()),
        (32, false) => u64::from(low(a).to_le()),
        (_, true) => a.to_be(),
        (_, false) => a.to_le(),
    }
}

/// Is the condition true?
pub(crate) fn holds(condition: Condition, wide: bool, a: u64, b: u64) -> bool {
    // Of 32 bits, the signs are extended for signed comparisons, and unsigned ones don't mind.
    let extend = |n: u64| i64::from(low(n).cast_signed());
    let (signed_a, signed_b) =
        if wide { (a.cast_signed(), b.cast_signed()) } else { (extend(a), extend(b)) };
    let (a, b) = if wide { (a, b) } else { (u64::from(low(a)), u64::from(low(b))) };
    match condition {
        Condition::Eq => a == b,
        Condition::Ne => a != b,
        Condition::Gt => a > b,
        Condition::Ge => a >= b,
        Condition::Lt => a < b,
        Condition::Le => a <= b,
        Condition::Set => a & b != 0,
        Condition::Sgt => signed_a > signed_b,
        Condition::Sge => signed_a >= signed_b,
        Condition::Slt => signed_a < signed_b,
        Condition::Sle => signed_a <= signed_b,
    }
}

/// What an atomic operation leaves in memory where `old` was. `expected` is r0.
pub(crate) fn atomic(atomic: Atomic, wide: bool, old: u64, operand: u64, expected: u64) -> u64 {
    let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
    mask & match atomic {
        Atomic::Add => old.wrapping_add(operand),
        Atomic::Or => old | operand,
        Atomic::And => old & operand,
        Atomic::Xor => old ^ operand,
        Atomic::Exchange => operand,
        Atomic::CompareExchange if old & mask == expected & mask => operand,
        Atomic::CompareExchange => old,
    }
}

/// The lower half.
pub(crate) fn low(n: u64) -> u32 {
    n as u32
}
