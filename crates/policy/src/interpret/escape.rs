//! What a program did that no verified program can do.

use crate::op::BadOp;
use lockwright_contract::programs::helpers::Helper;
use std::fmt;

/// A program escaped at this instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escape {
    /// The instruction.
    pub insn: usize,
    /// What it did.
    pub deed: Deed,
}

/// What it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is no instruction.
    Op(BadOp),
    /// The code ends before.
    End,
    /// It was still running after [`LIMIT`](super::LIMIT) instructions.
    Endless,
    /// It read a register that nobody had written.
    Register(u8),
    /// It accessed memory that isn't its own: this many bytes at this address of the interpreter's.
    Outside(u64, u32),
    /// It read a byte of the stack that nobody had written, this far from the frame pointer.
    Uninitialised(i64),
    /// It wrote what is only to be read.
    ReadOnly,
    /// An atomic operation on an address that is no multiple of its size.
    Misaligned(u64),
    /// A pointer left the program: as answer, into a map or ring, or by a comparison.
    Leak,
    /// There is no such map.
    Map(u32),
    /// There is no such helper.
    Helper(u32),
    /// This argument, from 1, is not what this helper takes.
    Argument(&'static Helper, usize),
    /// An answer above the hook's largest.
    Answer(u64),
    /// The policy has no such hook.
    Hook,
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "instruction {}: ", self.insn)?;
        match &self.deed {
            Deed::Op(why) => write!(f, "{why}"),
            Deed::End => write!(f, "the code ends before"),
            Deed::Endless => write!(f, "still running after {} instructions", super::LIMIT),
            Deed::Register(number) => write!(f, "reads r{number}, which was never written"),
            Deed::Outside(address, size) => {
                write!(f, "accesses {size} bytes at {address:#x}, which isn't the policy's memory")
            }
            Deed::Uninitialised(offset) => {
                write!(f, "reads the stack at r10{offset:+}, which was never written")
            }
            Deed::ReadOnly => write!(f, "writes the context"),
            Deed::Misaligned(address) => {
                write!(f, "an atomic operation at {address:#x}, no multiple of its size")
            }
            Deed::Leak => write!(f, "lets a pointer out"),
            Deed::Map(number) => write!(f, "there is no map {number}"),
            Deed::Helper(id) => write!(f, "there is no helper {id}"),
            Deed::Argument(helper, number) => {
                write!(f, "argument {number} of {} is not what that takes", helper.name)
            }
            Deed::Answer(value) => write!(f, "the answer {value} is out of range"),
            Deed::Hook => write!(f, "the policy has no such hook"),
        }
    }
}

impl std::error::Error for Escape {}
