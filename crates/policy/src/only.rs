//! A hook of readers-writer locks that is for some locks only: a few instructions in front of its code say for all others that it isn't for
//! them.
//!
//! ```text
//!   r2 = ctx->lock_id │ is r2 in the first range? to the code │ in the second one? to the code │ ... │ answer 3 │ code
//! ```
//!
//! The whole is verified as any other policy, so a mistake here can't harm anybody.

use crate::object::{HookCode, Insn, Object, SourceLine};
use lockwright_platform::hooks::{Context, Hook};
use std::mem::offset_of;
use std::ops::Range;

/// `r2 = ctx->lock_id`.
const LOAD_LOCK: Insn =
    Insn { code: 0x79, dst: 2, src: 1, off: offset_of!(Context, lock_id) as i16, imm: 0 };
/// If r2 is below r3, unsigned.
const IF_BELOW: Insn = Insn { code: 0xad, dst: 2, src: 3, off: 0, imm: 0 };
const ANSWER: [Insn; 2] = [
    Insn { code: 0xb7, dst: 0, src: 0, off: 0, imm: Hook::NOT_FOR_IT as i32 },
    Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 },
];
/// Instructions for a range.
const EACH: usize = 6;

/// The policy, whose hook `rw_bias` isn't for locks that don't lie in one of these ranges. If there are none, it loses the hook.
pub fn only_for(object: &Object, locks: &[Range<u64>]) -> Object {
    let mut only = object.clone();
    match only.hooks.iter_mut().find(|code| code.hook == Hook::RwBias) {
        Some(code) if !locks.is_empty() => guard(code, locks),
        _ => only.hooks.retain(|code| code.hook != Hook::RwBias),
    }
    only
}

fn guard(code: &mut HookCode, locks: &[Range<u64>]) {
    let begin = 1 + EACH * locks.len() + ANSWER.len();
    let mut insns = vec![LOAD_LOCK];
    for range in locks {
        insns.extend(load(range.start));
        insns.push(Insn { off: 3, ..IF_BELOW }); // to the next range
        insns.extend(load(range.end));
        let off = begin - insns.len() - 1;
        insns.push(Insn { off: i16::try_from(off).unwrap_or(i16::MAX), ..IF_BELOW });
    }
    insns.extend(ANSWER);
    insns.append(&mut code.insns);
    code.insns = insns;
    for SourceLine { insn, .. } in &mut code.lines {
        *insn += begin;
    }
}

/// `r3 = number`, which takes two places.
fn load(number: u64) -> [Insn; 2] {
    let half = |code, half: u64| Insn { code, dst: 3, src: 0, off: 0, imm: half as u32 as i32 };
    [half(0x18, number), Insn { dst: 0, ..half(0, number >> 32) }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loaded::{Engine, Loaded};
    use crate::op::Op;
    use crate::testing::*;
    use crate::verify::verify;
    use lockwright_platform::hooks::Policy;

    #[test]
    fn other_locks_are_for_another_policy() {
        let mut object = object(Hook::RwBias, &[mov(0, 1), Op::Exit], &[]);
        object.hooks[0].lines = vec![SourceLine { number: 7, ..SourceLine::default() }];
        let high = 0x7fff_8000_0000;
        let ranges = [0x100..0x138, high..high + 0x38];
        let only = only_for(&object, &ranges);
        let line = |insn| only.hooks[0].line(insn).map(|line| line.number);
        let begin = only.hooks[0].insns.len() - 2;
        assert_eq!((line(begin - 1), line(begin)), (None, Some(7)));
        let verified = verify(only).unwrap();
        let engines = [Engine::Interpreter, Engine::Jit];
        for engine in engines.into_iter().take(1 + usize::from(crate::jit::HERE.is_some())) {
            let loaded = Loaded::new(&verified, engine).unwrap();
            let answer = |lock_id| {
                let context = Context { lock_id, ..Context::default() };
                loaded.ask(Hook::RwBias, &context, &Counting::default()).value
            };
            let ids = [0, 0xff, 0x100, 0x137, 0x138, high - 1, high, high + 0x37, high + 0x38];
            assert_eq!(ids.map(answer), [3, 3, 1, 1, 3, 3, 1, 1, 3]);
            assert_eq!(answer(u64::MAX), Hook::NOT_FOR_IT);
        }
        assert!(only_for(&object, &[]).hooks.is_empty());
        let other = crate::testing::object(Hook::CmpNode, &[mov(0, 1), Op::Exit], &[]);
        assert_eq!(only_for(&other, &ranges), other);
    }
}
