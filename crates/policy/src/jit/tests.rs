//! Compiled code does what the interpreter does.

use crate::loaded::{Engine, Loaded};
use crate::testing::*;
use crate::verify::verify;
use lockwright_platform::hooks::{Hook, Policy};

/// How many programs are drawn, by default: a second's worth.
const PROGRAMS: u64 = 10_000;

/// How many, as the soak says.
fn programs() -> u64 {
    std::env::var("LOCKWRIGHT_PROGRAMS").map_or(PROGRAMS, |text| text.parse().expect("a number"))
}

#[test]
fn drawn_programs_leave_what_the_interpreter_leaves() {
    if super::HERE.is_none() {
        return;
    }
    let mut random = Random(11);
    let policies = programs() / Hook::ALL.len() as u64;
    let mut rejected = 0;
    for _ in 0..policies {
        let seed = random.next();
        let Ok(verified) = verify(generate::policy(&mut Random(seed), 16)) else {
            rejected += 1;
            continue;
        };
        let interpreted = Loaded::new(&verified, Engine::Interpreter).unwrap();
        let compiled = Loaded::new(&verified, Engine::Jit).unwrap();
        // Maps keep what one hook left for the next.
        for hook in Hook::ALL {
            let context = random.context();
            let expected = interpreted.ask(hook, &context, &Counting::default());
            let answer = compiled.ask(hook, &context, &Counting::default());
            assert_eq!(answer.value, expected.value, "{} of seed {seed}", hook.name());
        }
        assert!(compiled.maps().bytes() == interpreted.maps().bytes(), "seed {seed}");
    }
    assert!(rejected <= policies / 20, "of {policies} drawn policies, {rejected} were rejected");
}

#[test]
fn shipped_policies_leave_what_the_interpreter_leaves() {
    if super::HERE.is_none() {
        return;
    }
    let mut random = Random(13);
    for shipped in crate::shipped::shipped() {
        let object = crate::object::Object::read(shipped.object).unwrap();
        let verified = verify(object).unwrap();
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
