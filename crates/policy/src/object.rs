//! A policy as its object file has it, before anybody has checked it.

use lockwright_platform::hooks::Hook;
use lockwright_programs::maps::MapSpec;

/// An instruction of eBPF. One that loads 64 bits takes two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    /// Class, operation, source.
    pub code: u8,
    /// The register that it writes.
    pub dst: u8,
    /// The register that it reads. In a load of 64 bits: 0 a number; 1 the address of the map with the number `imm`; 2 the address
    /// of that map's first value plus the second half's `imm`.
    pub src: u8,
    /// An offset.
    pub off: i16,
    /// A constant.
    pub imm: i32,
}

/// A line of the policy's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The first instruction that belongs to it.
    pub insn: usize,
    /// The file.
    pub file: String,
    /// Its number, from 1.
    pub number: u32,
    /// The line itself.
    pub text: String,
}

/// A hook's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCode {
    /// The hook.
    pub hook: Hook,
    /// Its instructions.
    pub insns: Vec<Insn>,
    /// Where they come from, in the order of the instructions; empty: the object doesn't say.
    pub lines: Vec<Line>,
}

/// A map's name, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedMap {
    /// Its name in the source.
    pub name: String,
    /// The rest.
    pub spec: MapSpec,
    /// The first value, if it has one: a section of variables.
    pub initial: Vec<u8>,
}

/// A policy that nobody has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its hooks, each at most once.
    pub hooks: Vec<HookCode>,
    /// Its maps; instructions name them by their places here.
    pub maps: Vec<NamedMap>,
}
