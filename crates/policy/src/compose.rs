//! Several policies as one: each hook asks them in order, and the first answer that isn't 0 counts.
//!
//! ```text
//!   r10-512 = ctx │ policy 1 │ r0 != 0: done │ r1 = ctx │ policy 2 │ r0 != 0: done │ ... │ exit
//! ```
//!
//! Where a policy ends, the next one begins; nothing else changes in its code. The whole is verified as any other policy, so a mistake here
//! can't harm anybody.

use crate::object::{HookCode, Insn, NamedMap, Object, SourceLine};
use crate::op::{Constant, FRAME, Op, STACK, decode};
use lockwright_platform::hooks::Hook;

/// Why policies can't be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CantCompose {
    /// There are none.
    #[error("no policy is named")]
    None,
    /// Jumps don't reach that far.
    #[error("{} has more than 32767 instructions together", hook.name())]
    Long {
        /// The hook.
        hook: Hook,
    },
}

/// A policy and its name.
pub type Part<'a> = (&'a str, &'a Object);

const STORE_CONTEXT: Insn = Insn { code: 0x7b, dst: FRAME, src: 1, off: -(STACK as i16), imm: 0 };
const LOAD_CONTEXT: Insn = Insn { code: 0x79, dst: 1, src: FRAME, off: -(STACK as i16), imm: 0 };
const EXIT: Insn = Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 };
const JUMP: u8 = 0x05;
const IF_ANSWERED: u8 = 0x55; // r0 != 0

/// Composes policies. A map whose name occurs twice gets its policy's name in front, and so do its constants.
pub fn compose(parts: &[Part<'_>]) -> Result<Object, CantCompose> {
    let objects: Vec<&Object> = match parts {
        [] => return Err(CantCompose::None),
        [(_, one)] => return Ok((*one).clone()),
        parts => parts.iter().map(|(_, object)| *object).collect(),
    };
    let mut maps: Vec<NamedMap> = Vec::new();
    let mut bases = Vec::new();
    for (name, object) in parts {
        bases.push(maps.len());
        for map in &object.maps {
            let others = parts.iter().flat_map(|(_, other)| &other.maps);
            let is_twice = others.filter(|other| other.name == map.name).count() > 1;
            // Sections of variables have a dot already.
            let own = map.name.trim_start_matches('.');
            let mut map = map.clone();
            if is_twice {
                map.name = format!("{name}.{own}");
                for constant in &mut map.constants {
                    constant.name = format!("{name}.{}", constant.name);
                }
            }
            maps.push(map);
        }
    }
    let mut hooks = Vec::new();
    for hook in Hook::ALL {
        let code = |(object, base): (&&Object, &usize)| {
            let code = object.hooks.iter().find(|code| code.hook == hook)?;
            Some((relocated(&code.insns, *base), code.lines.clone()))
        };
        let blocks: Vec<_> = objects.iter().zip(&bases).filter_map(code).collect();
        hooks.extend(chained(hook, blocks)?);
    }
    Ok(Object { hooks, maps })
}

/// Code whose maps are `base` places further on.
fn relocated(insns: &[Insn], base: usize) -> Vec<Insn> {
    let mut moved = insns.to_vec();
    let mut at = 0;
    while at < insns.len() {
        // What can't be decoded stays as it is: the verifier says so.
        let op = decode(&insns[at..]);
        if let Ok(Op::Load64 { constant: Constant::Map(_) | Constant::Value(..), .. }) = op {
            moved[at].imm = moved[at].imm.wrapping_add(base as i32);
        }
        at += op.map_or(1, |op| op.slots());
    }
    moved
}

/// One hook of all policies that have it.
fn chained(
    hook: Hook,
    mut blocks: Vec<(Vec<Insn>, Vec<SourceLine>)>,
) -> Result<Option<HookCode>, CantCompose> {
    if blocks.len() < 2 {
        return Ok(blocks.pop().map(|(insns, lines)| HookCode { hook, insns, lines }));
    }
    // Before the first block, behind each block but the last (two), and the exit.
    let all = 2 * blocks.len() + blocks.iter().map(|(insns, _)| insns.len()).sum::<usize>();
    let far = |from: usize, to: usize| {
        i16::try_from(to as i64 - from as i64 - 1).map_err(|_| CantCompose::Long { hook })
    };
    let mut insns = vec![STORE_CONTEXT];
    let mut lines = Vec::new();
    let count = blocks.len();
    for (number, (block, known)) in blocks.into_iter().enumerate() {
        let begin = insns.len();
        lines.extend(known.into_iter().map(|line| SourceLine { insn: begin + line.insn, ..line }));
        let end = begin + block.len();
        let mut at = 0;
        while at < block.len() {
            let op = decode(&block[at..]);
            let slots = op.map_or(1, |op| op.slots());
            match op {
                Ok(Op::Exit) => {
                    let off = far(begin + at, end)?;
                    insns.push(Insn { code: JUMP, off, ..Insn::default() });
                }
                _ => insns.extend(&block[at..(at + slots).min(block.len())]),
            }
            at += slots;
        }
        if number + 1 < count {
            let off = far(end, all - 1)?;
            insns.extend([Insn { code: IF_ANSWERED, off, ..Insn::default() }, LOAD_CONTEXT]);
        }
    }
    insns.push(EXIT);
    Ok(Some(HookCode { hook, insns, lines }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_contract::programs::maps::{MapKind, MapSpec};

    const fn insn(code: u8, dst: u8, off: i16, imm: i32) -> Insn {
        Insn { code, dst, src: 0, off, imm }
    }

    fn answers(hook: Hook, value: i32) -> HookCode {
        let line = SourceLine { insn: 0, file: "a.c".into(), number: 7, text: "return 1;".into() };
        HookCode { hook, insns: vec![insn(0xb7, 0, 0, value), EXIT], lines: vec![line] }
    }

    fn object(hooks: Vec<HookCode>, maps: &[&str]) -> Object {
        let spec = MapSpec { kind: MapKind::Array, key_size: 4, value_size: 8, max_entries: 1 };
        let map = |name: &&str| NamedMap {
            name: (*name).to_owned(),
            spec,
            initial: Vec::new(),
            constants: Vec::new(),
        };
        Object { hooks, maps: maps.iter().map(map).collect() }
    }

    #[test]
    fn blocks_follow_each_other() {
        let [a, b] = [0, 1].map(|value| object(vec![answers(Hook::CmpNode, value)], &[]));
        let both = compose(&[("a", &a), ("b", &b)]).unwrap();
        let [code] = &both.hooks[..] else { panic!("{both:?}") };
        let expected = vec![
            STORE_CONTEXT,
            insn(0xb7, 0, 0, 0),
            insn(JUMP, 0, 0, 0),
            insn(IF_ANSWERED, 0, 3, 0),
            LOAD_CONTEXT,
            insn(0xb7, 0, 0, 1),
            insn(JUMP, 0, 0, 0),
            EXIT,
        ];
        assert_eq!(code.insns, expected);
        assert_eq!(code.lines.iter().map(|line| line.insn).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn a_hook_that_only_one_has_stays_as_it_is() {
        let a = object(vec![answers(Hook::CmpNode, 2)], &[]);
        let b = object(vec![answers(Hook::SkipShuffle, 1)], &[]);
        let both = compose(&[("a", &a), ("b", &b)]).unwrap();
        assert_eq!(both.hooks, [a.hooks[0].clone(), b.hooks[0].clone()]);
    }

    #[test]
    fn each_policy_keeps_its_own_maps() {
        let map = Insn { code: 0x18, dst: 1, src: 1, off: 0, imm: 0 };
        let uses = |hook| HookCode { insns: vec![map, Insn::default(), EXIT], ..answers(hook, 0) };
        let a = object(vec![uses(Hook::CmpNode)], &["counts"]);
        let b = object(vec![uses(Hook::LockAcquired)], &["counts", "mine"]);
        let both = compose(&[("a", &a), ("b", &b)]).unwrap();
        let names: Vec<_> = both.maps.iter().map(|map| map.name.as_str()).collect();
        assert_eq!(names, ["a.counts", "b.counts", "mine"]);
        assert_eq!(both.hooks.iter().map(|code| code.insns[0].imm).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn jumps_reach_or_it_is_refused() {
        let nothing = vec![insn(0xb7, 0, 0, 0); 20_000];
        let long = |hook| HookCode { insns: nothing.clone(), ..answers(hook, 0) };
        let [a, b] = [0, 1].map(|_| object(vec![long(Hook::CmpNode)], &[]));
        let refused = compose(&[("a", &a), ("b", &b), ("c", &a)]);
        assert_eq!(refused, Err(CantCompose::Long { hook: Hook::CmpNode }));
        assert_eq!(compose(&[]), Err(CantCompose::None));
    }
}
