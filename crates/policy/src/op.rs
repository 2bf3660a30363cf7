//! Instructions of eBPF, decoded: what verifier, interpreter and compiler agree on. Version 3 of the instruction set
//! (`clang -mcpu=v3`, RFC 9669's base64, atomic64 and divmul64 groups); no packet access, no calls of other functions.

use crate::object::Insn;
use std::fmt;

/// The registers' number: r0 to r10.
pub const REGISTERS: usize = 11;
/// The frame pointer, which no instruction may write.
pub const FRAME: u8 = 10;
/// Bytes of the stack below the frame pointer.
pub const STACK: usize = 512;

/// What an operation does with two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient, unsigned; by zero: 0.
    Div,
    /// Bits in either.
    Or,
    /// Bits in both.
    And,
    /// Shift to the left, by the count modulo the width.
    Lsh,
    /// Shift to the right, zeroes come in.
    Rsh,
    /// Remainder, unsigned; by zero: the number as it was.
    Mod,
    /// Bits in one of both.
    Xor,
    /// The second number.
    Mov,
    /// Shift to the right, the sign comes in.
    Arsh,
}

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Equal.
    Eq,
    /// Greater, unsigned.
    Gt,
    /// Greater or equal, unsigned.
    Ge,
    /// They have a bit in common.
    Set,
    /// Not equal.
    Ne,
    /// Greater, signed.
    Sgt,
    /// Greater or equal, signed.
    Sge,
    /// Less, unsigned.
    Lt,
    /// Less or equal, unsigned.
    Le,
    /// Less, signed.
    Slt,
    /// Less or equal, signed.
    Sle,
}

/// What an atomic operation does with memory and a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds.
    Add,
    /// Bits in either.
    Or,
    /// Bits in both.
    And,
    /// Bits in one of both.
    Xor,
    /// Exchanges.
    Exchange,
    /// Writes, if memory has the value of r0; r0 gets what was there.
    CompareExchange,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(u8),
    /// A number of 32 bits, its sign extended to 64.
    Number(i32),
}

/// What a load of 64 bits yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// A number.
    Number(u64),
    /// A map.
    Map(u32),
    /// This byte of a map's first value.
    Value(u32, u32),
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `dst = dst op operand`; of 32 bits, if not `wide`: then the upper half becomes 0.
    Alu {
        /// The operation.
        alu: Alu,
        /// 64 bits.
        wide: bool,
        /// The register.
        dst: u8,
        /// The second operand.
        operand: Operand,
    },
    /// `dst = -dst`.
    Neg {
        /// 64 bits.
        wide: bool,
        /// The register.
        dst: u8,
    },
    /// The lower bits in the order of big-endian or little-endian machines; the others become 0.
    Swap {
        /// Big-endian.
        big: bool,
        /// 16, 32, 64.
        bits: u8,
        /// The register.
        dst: u8,
    },
    /// `dst =` a constant. The next instruction is its second half.
    Load64 {
        /// The register.
        dst: u8,
        /// The constant.
        constant: Constant,
    },
    /// `dst = *(src + off)`, zero-extended.
    Load {
        /// Bytes: 1, 2, 4, 8.
        size: u8,
        /// The register.
        dst: u8,
        /// The address.
        src: u8,
        /// Added to it.
        off: i16,
    },
    /// `*(dst + off) = operand`.
    Store {
        /// Bytes: 1, 2, 4, 8.
        size: u8,
        /// The address.
        dst: u8,
        /// Added to it.
        off: i16,
        /// What is written.
        operand: Operand,
    },
    /// `*(dst + off) = *(dst + off) op src`, at once.
    Atomic {
        /// The operation.
        atomic: Atomic,
        /// `src` gets what was there; `CompareExchange`: r0 does.
        fetch: bool,
        /// 64 bits; else 32, and what is fetched is zero-extended.
        wide: bool,
        /// The address.
        dst: u8,
        /// Added to it.
        off: i16,
        /// The register.
        src: u8,
    },
    /// Goes on at the instruction after the next `off`.
    Jump {
        /// Instructions, forward or back.
        off: i16,
    },
    /// As [`Jump`](Self::Jump), if the condition holds.
    Branch {
        /// The condition.
        condition: Condition,
        /// Compares 64 bits.
        wide: bool,
        /// The first operand.
        dst: u8,
        /// The second operand.
        operand: Operand,
        /// Instructions, forward or back.
        off: i16,
    },
    /// Calls a helper with r1 to r5; r0 gets its answer, and r1 to r5 are lost.
    Call {
        /// Its number.
        helper: u32,
    },
    /// Answers r0.
    Exit,
}

/// Why an instruction is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOp {
    /// No such instruction in version 3.
    Unknown(u8),
    /// A field that must be zero is not.
    Reserved,
    /// There is no such register.
    Register(u8),
    /// The frame pointer is only to be read.
    Frame,
    /// A number by which no shift, or no swap, is possible.
    Width(i32),
    /// The second half of a load of 64 bits is missing, or is none.
    Half,
    /// A call of another function of the object.
    Function,
}

impl fmt::Display for BadOp {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Unknown(code) => {
                write!(f, "no instruction of eBPF version 3 has the code {code:#04x}")
            }
            Self::Reserved => write!(f, "a field that the instruction doesn't use is not zero"),
            Self::Register(number) => write!(f, "there is no register r{number}"),
            Self::Frame => write!(f, "r10 is only to be read"),
            Self::Width(width) => write!(f, "{width} bits are no width for this instruction"),
            Self::Half => write!(f, "half of a 64-bit load is missing"),
            Self::Function => write!(f, "functions are not called: declare them __always_inline"),
        }
    }
}

impl std::error::Error for BadOp {}

impl Op {
    /// How many instructions it takes in the code: 2 for a load of 64 bits.
    pub fn slots(&self) -> usize {
        if matches!(self, Self::Load64 { .. }) { 2 } else { 1 }
    }
}

/// Decodes the instruction that begins at `insns[0]`.
pub fn decode(insns: &[Insn]) -> Result<Op, BadOp> {
    let insn = insns.first().ok_or(BadOp::Half)?;
    for register in [insn.dst, insn.src] {
        if usize::from(register) >= REGISTERS {
            return Err(BadOp::Register(register));
        }
    }
    let op = match insn.code & 7 {
        0 => load64(insns)?,
        1 => load(insn)?,
        2 | 3 => store(insn)?,
        4 | 7 => alu(insn)?,
        _ => jump(insn)?,
    };
    let writes = match op {
        Op::Alu { dst, .. }
        | Op::Neg { dst, .. }
        | Op::Swap { dst, .. }
        | Op::Load64 { dst, .. }
        | Op::Load { dst, .. } => dst,
        Op::Atomic { atomic, fetch: true, src, .. } if atomic != Atomic::CompareExchange => src,
        _ => 0,
    };
    if writes == FRAME { Err(BadOp::Frame) } else { Ok(op) }
}

fn zero(unused: bool) -> Result<(), BadOp> {
    if unused { Ok(()) } else { Err(BadOp::Reserved) }
}

fn load64(insns: &[Insn]) -> Result<Op, BadOp> {
    let insn = insns[0];
    if insn.code != 0x18 {
        return Err(BadOp::Unknown(insn.code));
    }
    let half = *insns.get(1).ok_or(BadOp::Half)?;
    if half.code != 0 || half.dst != 0 || half.src != 0 || half.off != 0 {
        return Err(BadOp::Half);
    }
    let (low, high) = (insn.imm.cast_unsigned(), half.imm.cast_unsigned());
    zero(insn.off == 0)?;
    let constant = match insn.src {
        0 => Constant::Number(u64::from(high) << 32 | u64::from(low)),
        1 if high == 0 => Constant::Map(low),
        2 => Constant::Value(low, high),
        _ => return Err(BadOp::Reserved),
    };
    Ok(Op::Load64 { dst: insn.dst, constant })
}

fn size(code: u8) -> u8 {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

fn load(insn: &Insn) -> Result<Op, BadOp> {
    if insn.code & 0xe0 != 0x60 {
        return Err(BadOp::Unknown(insn.code));
    }
    zero(insn.imm == 0)?;
    Ok(Op::Load { size: size(insn.code), dst: insn.dst, src: insn.src, off: insn.off })
}

fn store(insn: &Insn) -> Result<Op, BadOp> {
    let &Insn { code, dst, src, off, imm } = insn;
    let size = size(code);
    match (code & 0xe0, code & 7) {
        (0x60, 2) => {
            zero(src == 0)?;
            Ok(Op::Store { size, dst, off, operand: Operand::Number(imm) })
        }
        (0x60, 3) => {
            zero(imm == 0)?;
            Ok(Op::Store { size, dst, off, operand: Operand::Register(src) })
        }
        (0xc0, 3) if size >= 4 => {
            let (atomic, fetch) = match imm {
                0x00 | 0x01 => (Atomic::Add, imm & 1 != 0),
                0x40 | 0x41 => (Atomic::Or, imm & 1 != 0),
                0x50 | 0x51 => (Atomic::And, imm & 1 != 0),
                0xa0 | 0xa1 => (Atomic::Xor, imm & 1 != 0),
                0xe1 => (Atomic::Exchange, true),
                0xf1 => (Atomic::CompareExchange, true),
                _ => return Err(BadOp::Reserved),
            };
            Ok(Op::Atomic { atomic, fetch, wide: size == 8, dst, off, src })
        }
        _ => Err(BadOp::Unknown(code)),
    }
}

/// The second operand of arithmetic and branches; the other field is zero.
fn operand(insn: &Insn) -> Result<Operand, BadOp> {
    if insn.code & 8 != 0 {
        zero(insn.imm == 0)?;
        Ok(Operand::Register(insn.src))
    } else {
        zero(insn.src == 0)?;
        Ok(Operand::Number(insn.imm))
    }
}

fn alu(insn: &Insn) -> Result<Op, BadOp> {
    let &Insn { code, dst, src, off, imm } = insn;
    let wide = code & 7 == 7;
    zero(off == 0)?;
    let alu = match code & 0xf0 {
        0x00 => Alu::Add,
        0x10 => Alu::Sub,
        0x20 => Alu::Mul,
        0x30 => Alu::Div,
        0x40 => Alu::Or,
        0x50 => Alu::And,
        0x60 => Alu::Lsh,
        0x70 => Alu::Rsh,
        0x80 => {
            zero(code & 8 == 0 && src == 0 && imm == 0)?;
            return Ok(Op::Neg { wide, dst });
        }
        0x90 => Alu::Mod,
        0xa0 => Alu::Xor,
        0xb0 => Alu::Mov,
        0xc0 => Alu::Arsh,
        0xd0 if !wide => {
            zero(src == 0)?;
            let bits = match imm {
                16 => 16,
                32 => 32,
                64 => 64,
                _ => return Err(BadOp::Width(imm)),
            };
            return Ok(Op::Swap { big: code & 8 != 0, bits, dst });
        }
        _ => return Err(BadOp::Unknown(code)),
    };
    let operand = operand(insn)?;
    if let (Alu::Lsh | Alu::Rsh | Alu::Arsh, Operand::Number(count)) = (alu, operand)
        && !(0..if wide { 64 } else { 32 }).contains(&count)
    {
        return Err(BadOp::Width(count));
    }
    Ok(Op::Alu { alu, wide, dst, operand })
}

fn jump(insn: &Insn) -> Result<Op, BadOp> {
    let &Insn { code, dst, src, off, imm } = insn;
    let wide = code & 7 == 5;
    let condition = match code & 0xf0 {
        0x10 => Condition::Eq,
        0x20 => Condition::Gt,
        0x30 => Condition::Ge,
        0x40 => Condition::Set,
        0x50 => Condition::Ne,
        0x60 => Condition::Sgt,
        0x70 => Condition::Sge,
        0xa0 => Condition::Lt,
        0xb0 => Condition::Le,
        0xc0 => Condition::Slt,
        0xd0 => Condition::Sle,
        _ => {
            return match code {
                0x05 => {
                    zero(dst == 0 && src == 0 && imm == 0)?;
                    Ok(Op::Jump { off })
                }
                0x85 if src == 1 => Err(BadOp::Function),
                0x85 => {
                    zero(dst == 0 && src == 0 && off == 0)?;
                    Ok(Op::Call { helper: imm.cast_unsigned() })
                }
                0x95 => {
                    zero(dst == 0 && src == 0 && off == 0 && imm == 0)?;
                    Ok(Op::Exit)
                }
                _ => Err(BadOp::Unknown(code)),
            };
        }
    };
    Ok(Op::Branch { condition, wide, dst, operand: operand(insn)?, off })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Result<Op, BadOp> {
        decode(&[Insn { code, dst, src, off, imm }, Insn::default()])
    }

    #[test]
    fn instructions_as_clang_writes_them() {
        use Operand::{Number, Register};
        let add = Op::Alu { alu: Alu::Add, wide: true, dst: 1, operand: Number(-8) };
        assert_eq!(one(0x07, 1, 0, 0, -8), Ok(add));
        let mov = Op::Alu { alu: Alu::Mov, wide: false, dst: 2, operand: Register(3) };
        assert_eq!(one(0xbc, 2, 3, 0, 0), Ok(mov));
        assert_eq!(one(0x61, 0, 1, 60, 0), Ok(Op::Load { size: 4, dst: 0, src: 1, off: 60 }));
        let store = Op::Store { size: 1, dst: 10, off: -1, operand: Number(7) };
        assert_eq!(one(0x72, 10, 0, -1, 7), Ok(store));
        let add =
            Op::Atomic { atomic: Atomic::Add, fetch: false, wide: true, dst: 0, off: 8, src: 1 };
        assert_eq!(one(0xdb, 0, 1, 8, 0), Ok(add));
        let less = Condition::Slt;
        let less =
            Op::Branch { condition: less, wide: false, dst: 1, operand: Register(2), off: -3 };
        assert_eq!(one(0xce, 1, 2, -3, 0), Ok(less));
        assert_eq!(one(0xdc, 1, 0, 0, 16), Ok(Op::Swap { big: true, bits: 16, dst: 1 }));
        assert_eq!(one(0x85, 0, 0, 0, 0x10002), Ok(Op::Call { helper: 0x10002 }));
        let map = Op::Load64 { dst: 1, constant: Constant::Map(3) };
        assert_eq!(one(0x18, 1, 1, 0, 3), Ok(map));
        assert_eq!((one(0x05, 0, 0, 0, 0).unwrap().slots(), map.slots()), (1, 2));
    }

    #[test]
    fn what_is_no_instruction() {
        assert_eq!(one(0x8d, 0, 1, 0, 0), Err(BadOp::Unknown(0x8d))); // a call by register
        assert_eq!(one(0x20, 0, 0, 0, 0), Err(BadOp::Unknown(0x20))); // packet access
        assert_eq!(one(0x81, 0, 1, 0, 0), Err(BadOp::Unknown(0x81))); // version 4: sign-extending load
        assert_eq!(one(0x3f, 1, 2, 1, 0), Err(BadOp::Reserved)); // version 4: signed division
        assert_eq!(one(0xd7, 1, 0, 0, 16), Err(BadOp::Unknown(0xd7))); // version 4: bswap
        assert_eq!(one(0xc3 & !0x18 | 0x10, 1, 0, 0, 0), Err(BadOp::Unknown(0xd3))); // a byte, atomically
        assert_eq!(one(0xdb, 1, 0, 0, 0xe0), Err(BadOp::Reserved));
        assert_eq!(one(0x07, 11, 0, 0, 0), Err(BadOp::Register(11)));
        assert_eq!(one(0x07, 10, 0, 0, 0), Err(BadOp::Frame));
        assert_eq!(one(0xdb, 1, 10, 0, 1), Err(BadOp::Frame)); // fetches into r10
        assert_eq!(one(0x0f, 1, 2, 0, 5), Err(BadOp::Reserved));
        assert_eq!(one(0x67, 1, 0, 0, 64), Err(BadOp::Width(64)));
        assert_eq!(one(0x64, 1, 0, 0, 32), Err(BadOp::Width(32)));
        assert_eq!(one(0x77, 1, 0, 0, -1), Err(BadOp::Width(-1)));
        assert_eq!(one(0xd4, 1, 0, 0, 8), Err(BadOp::Width(8)));
        assert_eq!(one(0x85, 0, 1, 0, 4), Err(BadOp::Function));
        assert_eq!(decode(&[Insn { code: 0x18, ..Insn::default() }]), Err(BadOp::Half));
        let wrong =
            [Insn { code: 0x18, ..Insn::default() }, Insn { code: 0x95, ..Insn::default() }];
        assert_eq!(decode(&wrong), Err(BadOp::Half));
        assert_eq!(decode(&[]), Err(BadOp::Half));
    }
}
