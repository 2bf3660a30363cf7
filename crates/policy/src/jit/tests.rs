//! Compiled code does what the interpreter does.

use crate::loaded::{Engine, Loaded};
use crate::object::Object;
use crate::testing::*;
use crate::verify::{Verified, verify};
use lockwright_platform::hooks::{Hook, Policy};

/// How many programs are drawn, by default: a second's worth.
const PROGRAMS: u64 = 10_000;

/// Both engines do the same, one hook after the other: maps keep what one left for the next.
fn compare(verified: &Verified, random: &mut Random, what: &str) {
    let interpreted = Loaded::new(verified, Engine::Interpreter).unwrap();
    let compiled = Loaded::new(verified, Engine::Jit).unwrap();
    for report in verified.reports() {
        let context = random.context();
        let expected = interpreted.ask(report.hook, &context, &Counting::default());
        let answer = compiled.ask(report.hook, &context, &Counting::default());
        assert_eq!(answer.value, expected.value, "{} of {what}", report.hook.name());
        assert!(expected.insns <= report.longest, "{what}: {}", expected.insns);
    }
    assert!(compiled.maps().bytes() == interpreted.maps().bytes(), "{what}");
}

#[test]
fn drawn_programs_leave_what_the_interpreter_leaves() {
    if super::HERE.is_none() {
        return;
    }
    let mut random = Random(11);
    let policies = programs(PROGRAMS) / Hook::ALL.len() as u64;
    let mut rejected = 0;
    for _ in 0..policies {
        let seed = random.next();
        match verify(generate::policy(&mut Random(seed), 16)) {
            Ok(verified) => compare(&verified, &mut random, &format!("seed {seed}")),
            Err(_) => rejected += 1,
        }
    }
    assert!(rejected <= policies / 20, "of {policies} drawn policies, {rejected} were rejected");
}

/// What was changed by chance and is accepted still does what no compiler of C would write.
#[test]
fn changed_programs_leave_what_the_interpreter_leaves() {
    if super::HERE.is_none() {
        return;
    }
    let mut random = Random(19);
    let (mut accepted, mut all) = (0, 0);
    while all < programs(PROGRAMS) / 2 {
        let seed = random.next();
        let mut changes = Random(seed);
        let Object { hooks, maps } = generate::policy(&mut changes, 6);
        for mut hook in hooks {
            all += 1;
            mutate(&mut changes, &mut hook.insns);
            let what = format!("{} of seed {seed}", hook.hook.name());
            if let Ok(verified) = verify(Object { hooks: vec![hook], maps: maps.clone() }) {
                accepted += 1;
                compare(&verified, &mut random, &what);
            }
        }
    }
    assert!(accepted > all / 20, "{accepted} of {all}");
}

#[test]
fn shipped_policies_leave_what_the_interpreter_leaves() {
    if super::HERE.is_none() {
        return;
    }
    let mut random = Random(13);
    for shipped in crate::shipped::shipped() {
        let verified = verify(Object::read(shipped.object).unwrap()).unwrap();
        let interpreted = Loaded::new(&verified, Engine::Interpreter).unwrap();
        let compiled = Loaded::new(&verified, Engine::Jit).unwrap();
        for round in 0..300 {
            let context = random.context();
            for report in verified.reports() {
                let expected = interpreted.ask(report.hook, &context, &Counting::default());
                let answer = compiled.ask(report.hook, &context, &Counting::default());
                let place = format!("{} {} round {round}", shipped.name, report.hook.name());
                assert_eq!(answer.value, expected.value, "{place}");
                assert!(expected.insns <= report.longest, "{place}: {}", expected.insns);
            }
        }
        assert!(compiled.maps().bytes() == interpreted.maps().bytes(), "{}", shipped.name);
    }
}
