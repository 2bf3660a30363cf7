//! Programs by chance: whatever the verifier accepts keeps its word in the interpreter, which checks everything.

use super::*;
use crate::object::Insn;
use crate::op::decode;
use crate::testing::{encode, generate};

/// How many programs the tests draw; `LOCKWRIGHT_PROGRAMS` says another number.
const PROGRAMS: u64 = 100_000;

fn programs() -> u64 {
    let said = std::env::var("LOCKWRIGHT_PROGRAMS").ok().and_then(|number| number.parse().ok());
    said.unwrap_or(PROGRAMS)
}

#[derive(Default, Debug)]
pub(super) struct Tally {
    pub(super) drawn: u64,
    pub(super) accepted: u64,
    pub(super) blurred: u64,
    pub(super) runs: u64,
    pub(super) faults: std::collections::BTreeMap<Fault, u64>,
}

/// Changes an instruction or a few. Most of the new ones are instructions.
fn mutate(random: &mut Random, insns: &mut Vec<Insn>) {
    for _ in 0..1 + random.below(3) {
        let before = insns.clone();
        change(random, insns);
        let (mut at, mut is_code) = (0, true);
        while is_code && at < insns.len() {
            let op = decode(&insns[at..]);
            is_code = op.is_ok();
            at += op.map_or(0, |op| op.slots());
        }
        if !is_code && !random.one_in(16) {
            *insns = before;
        }
    }
}

fn change(random: &mut Random, insns: &mut Vec<Insn>) {
    let at = random.below(insns.len() as u64) as usize;
    let other = random.below(insns.len() as u64) as usize;
    let is_alone = insns.len() == 1;
    let insn = &mut insns[at];
    let has_register = insn.code & 8 != 0 && matches!(insn.code & 7, 4..=7);
    let is_jump = matches!(insn.code & 7, 5 | 6);
    let is_memory = matches!(insn.code & 7, 1..=3);
    match random.below(16) {
        0 => insn.code = random.next() as u8,
        1 => insn.code ^= 1 << random.below(8),
        // Between 64 and 32 bits.
        2 if is_jump => insn.code ^= 5 ^ 6,
        2 if insn.code & 7 >= 4 => insn.code ^= 7 ^ 4,
        // Another operation, condition or size.
        3 | 4 if is_memory => insn.code ^= random.pick(&[0x08, 0x10, 0x18]),
        3 | 4 if insn.code & 7 >= 4 => insn.code ^= random.pick(&[0x10, 0x20, 0x30, 0x60, 0x70]),
        5 | 6 => insn.dst = random.below(10) as u8,
        7 | 8 if has_register || is_memory => insn.src = random.below(10) as u8,
        9 if is_jump => insn.off = random.below(12) as i16 - 4,
        9 | 10 if is_memory => insn.off += random.pick(&[-8, -4, -1, 1, 4, 8]),
        11 if !has_register => insn.imm = random.number() as i32,
        12 if !has_register => insn.imm = insn.imm.wrapping_add(random.pick(&[-8, -1, 1, 8])),
        13 => insns[at] = insns[other],
        14 => insns.swap(at, other),
        // Without its effect, or gone.
        15 if random.one_in(2) => *insn = Insn { code: 0xb7, dst: insn.dst, ..Insn::default() },
        15 if !is_alone => drop(insns.remove(at)),
        _ => insn.dst ^= 1,
    }
}

/// Where programs come from.
pub(super) struct Seeds(Vec<Object>);

impl Seeds {
    /// The corpora, and what we ship.
    fn new() -> Self {
        let corpora = [include_str!("bad.txt"), include_str!("good.txt")];
        let corpora = corpora.into_iter().flat_map(corpus).map(|program| program.object);
        let shipped = crate::shipped::shipped().iter();
        let shipped = shipped.map(|policy| Object::read(policy.object).unwrap());
        Self(corpora.chain(shipped).collect())
    }

    /// A policy, changed or not.
    fn draw(&self, random: &mut Random) -> Object {
        let is_drawn = random.one_in(3);
        let mut object = if is_drawn {
            let statements = 2 + random.below(14);
            generate::policy(random, statements)
        } else {
            self.0[random.below(self.0.len() as u64) as usize].clone()
        };
        if !is_drawn || !random.one_in(4) {
            for code in object.hooks.iter_mut().filter(|code| !code.insns.is_empty()) {
                mutate(random, &mut code.insns);
            }
        }
        object
    }
}

/// Draws a policy, verifies it, and lets it run if it is accepted.
pub(super) fn one(random: &mut Random, seeds: &Seeds, tally: &mut Tally) {
    let Object { hooks, maps } = seeds.draw(random);
    for code in hooks {
        tally.drawn += 1;
        let hook = code.hook;
        let alone = Object { hooks: vec![code], maps: maps.clone() };
        if random.one_in(4)
            && let Ok(report) = walk::walk(&alone, &alone.hooks[0], true)
        {
            // To know less accepts less, and keeps its word, too.
            tally.blurred += 1;
            let longest = report.longest;
            let known = verify(alone.clone()).map(|verified| verified.reports()[0].longest);
            assert!(known.is_ok_and(|known| known <= longest), "{}", shown(&alone));
        }
        let verified = match verify(alone) {
            Ok(verified) => verified,
            Err(rejected) => {
                *tally.faults.entry(rejected.complaints()[0].fault).or_default() += 1;
                continue;
            }
        };
        tally.accepted += 1;
        let longest = verified.reports()[0].longest;
        assert!(longest as usize <= LONGEST);
        let interpreter = interpreter(verified.object());
        for _ in 0..2 {
            let context = random.context();
            tally.runs += 1;
            let answer = interpreter.ask(hook, &context, &Counting::default());
            let text = || shown(verified.object());
            match answer {
                Ok(answer) => assert!(
                    answer.insns <= longest && answer.value <= hook.largest(),
                    "{answer:?}, at most {longest} instructions\n{}",
                    text()
                ),
                Err(escape) => panic!("accepted, and then: {escape}\n{context:?}\n{}", text()),
            }
        }
    }
}

fn shown(object: &Object) -> String {
    let insns = &object.hooks[0].insns;
    let (mut text, mut at) = (object.hooks[0].hook.name().to_owned() + "\n", 0);
    while at < insns.len() {
        let op = decode(&insns[at..]).unwrap();
        text += &format!("{at:4}: {}\n", Text(&op, at));
        at += encode(op).len();
    }
    text
}

#[test]
fn accepted_programs_keep_their_word() {
    let mut random = Random(11);
    let (seeds, mut tally) = (Seeds::new(), Tally::default());
    while tally.drawn < programs() {
        one(&mut random, &seeds, &mut tally);
    }
    println!("{tally:#?}");
    assert!(tally.accepted > tally.drawn / 10, "a search that finds nothing to run: {tally:?}");
}
