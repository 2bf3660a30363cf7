//! Programs by chance: whatever the verifier accepts keeps its word in the interpreter, which checks everything.

use super::*;
use crate::op::decode;
use crate::testing::{encode, generate, mutate, programs};

/// How many programs the tests draw, by default.
const PROGRAMS: u64 = 100_000;

#[derive(Default, Debug)]
pub(super) struct Harvest {
    pub(super) drawn: u64,
    pub(super) accepted: u64,
    pub(super) blurred: u64,
    pub(super) runs: u64,
    pub(super) faults: std::collections::BTreeMap<Fault, u64>,
}

/// Where programs come from.
pub(crate) struct Seeds(Vec<Object>);

impl Seeds {
    /// The corpora, and what we ship.
    pub(crate) fn new() -> Self {
        let corpora = [include_str!("bad.txt"), include_str!("good.txt")];
        let corpora = corpora.into_iter().flat_map(corpus).map(|program| program.object);
        let shipped = crate::shipped::shipped().iter();
        let shipped = shipped.map(|policy| Object::read(policy.object).unwrap());
        Self(corpora.chain(shipped).collect())
    }

    /// A policy, changed or not.
    pub(crate) fn draw(&self, random: &mut Random) -> Object {
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
pub(super) fn one(random: &mut Random, seeds: &Seeds, tally: &mut Harvest) {
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

/// Its first hook, for people.
pub(crate) fn shown(object: &Object) -> String {
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
    let (seeds, mut tally) = (Seeds::new(), Harvest::default());
    while tally.drawn < programs(PROGRAMS) {
        one(&mut random, &seeds, &mut tally);
    }
    println!("{tally:#?}");
    assert!(tally.accepted > tally.drawn / 10, "a search that finds nothing to run: {tally:?}");
}
