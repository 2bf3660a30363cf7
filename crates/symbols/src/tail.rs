//! Functions that end with a call: they jump, and leave no return address of their own.
//!
//! `void put() { ...; pthread_mutex_unlock(&m); }` is compiled like this. The return address that
//! `pthread_mutex_unlock` finds is in `put`'s caller, after its call of `put`. So if a return address follows a call of
//! some other function, then that function jumped.

use crate::elf::{Elf, SymbolType};
use crate::symboliser::{Module, Symboliser};

/// How much of a function is looked at, bytes. Few are longer, and a file may say any length.
const LOOKED_AT: u64 = 1 << 16;
/// How many functions may jump one to the next.
const DEPTH: usize = 4;

impl Symboliser {
    /// The address of the call that returns to `address`: the byte before it; or, if that calls a function that jumped
    /// on instead of returning, the jump. `is_callee` says, from its symbol, whether a function is the final callee;
    /// functions of other files always are. (On x86-64; elsewhere it is always the byte before.)
    pub fn call_site(&mut self, address: u64, is_callee: impl Fn(&str) -> bool) -> u64 {
        let before = address.saturating_sub(1);
        let Some(mapping) = self.space().mapping(before).cloned() else { return before };
        let Some((module, bias)) = self.module(&mapping) else { return before };
        jump(&module, address.wrapping_sub(bias), &is_callee)
            .map_or(before, |own| own.wrapping_add(bias))
    }
}

impl Symboliser {
    /// Is the instruction that returns to `address` a direct call of the function that contains `callee`? In a program
    /// without frame pointers, a chain of them may be anything. (On x86-64; elsewhere this can't be told.)
    pub fn calls(&mut self, address: u64, callee: u64) -> bool {
        let Some(mapping) = self.space().mapping(address.saturating_sub(1)).cloned() else {
            return false;
        };
        let Some((module, bias)) = self.module(&mapping) else { return false };
        let at = address.wrapping_sub(bias).wrapping_sub(LENGTH);
        let Some(to) = target(&module.elf, at, CALL) else { return false };
        let callee = callee.wrapping_sub(bias).wrapping_sub(1);
        let function = module.symbols().find(SymbolType::Code, callee);
        function.is_some_and(|function| function.range().contains(&to))
    }
}

/// `call` and `jmp`, with the distance in the next four bytes.
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
const LENGTH: u64 = 5;

/// Where the call or jump at `at` leads.
fn target(elf: &Elf, at: u64, code: u8) -> Option<u64> {
    let bytes = elf.code(at, LENGTH)?;
    let distance = i32::from_le_bytes(bytes[1..].try_into().ok()?);
    (bytes[0] == code).then(|| at.wrapping_add(LENGTH).wrapping_add_signed(distance.into()))
}

/// The jump that left the function called right before `returns`.
fn jump(module: &Module, returns: u64, is_callee: &impl Fn(&str) -> bool) -> Option<u64> {
    let elf = &module.elf;
    let mut to = target(elf, returns.checked_sub(LENGTH)?, CALL)?;
    let mut site = None;
    for _ in 0..DEPTH {
        if elf.section_at(to).is_none_or(|section| section.name.starts_with(".plt")) {
            return site;
        }
        let function =
            module.symbols().find(SymbolType::Code, to).filter(|known| known.start == to)?;
        if is_callee(&function.name) {
            return site;
        }
        let range = function.range();
        let jumps =
            |at: u64| target(elf, at, JUMP).filter(|to| !range.contains(to) && leads(elf, *to));
        let near = range.start..range.end.min(range.start.saturating_add(LOOKED_AT));
        let all: Vec<_> = near.filter_map(|at| jumps(at).map(|to| (at, to))).collect();
        // It may leave by several: one of them to the final callee.
        let is_final = |(_, to): &&(u64, u64)| {
            let callee = module.symbols().find(SymbolType::Code, *to);
            callee.is_some_and(|known| known.start == *to && is_callee(&known.name))
        };
        let &(at, next) = all.iter().find(is_final).or(all.first())?;
        (site, to) = (Some(at), next);
    }
    site
}

/// Is there code at an address?
fn leads(elf: &Elf, address: u64) -> bool {
    let is_code = |name: &str| name.starts_with(".text") || name.starts_with(".plt");
    elf.section_at(address).is_some_and(|section| is_code(&section.name))
}
