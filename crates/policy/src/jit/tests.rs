//! Compiled code does what the interpreter does.

use crate::loaded::Loaded;
use crate::testing::*;
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
    for _ in 0..programs() / Hook::ALL.len() as u64 {
        let seed = random.next();
        let object = generate::policy(&mut Random(seed), 16);
        let interpreted = Loaded::interpreted(&object).unwrap();
        let compiled = compiled(&object).unwrap();
        // Maps keep what one hook left for the next.
        for hook in Hook::ALL {
            let context = random.context();
            let expected = interpreted.ask(hook, &context, &Counting::default());
            let answer = compiled.ask(hook, &context, &Counting::default());
            assert_eq!(answer.value, expected.value, "{} of seed {seed}", hook.name());
        }
        assert!(compiled.maps().bytes() == interpreted.maps().bytes(), "seed {seed}");
    }
}
