//! Compiled code does what the interpreter does.

use crate::loaded::{Engine, Loaded};
use crate::object::Object;
use crate::op::{Alu, Atomic, Op, Operand};
use crate::testing::*;
use crate::verify::{Verified, verify};
use lockwright_contract::programs::helpers::UPDATE;
use lockwright_contract::programs::maps::MapKind;
use lockwright_platform::hooks::{Context, Hook, Policy};

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

/// Bytes of the map's value in which a step leaves the registers: a mark, a place that isn't used, r9 to r0.
const LEFT: u32 = 96;
/// Offsets that fit in 8 bits, and some that don't, from the middle of a value of 1024 bytes.
const OFFSETS: [i16; 9] = [0, 8, 120, 128, 504, -8, -128, -136, -512];

/// Does this with registers that have any numbers, and leaves all of them in the next entry of the first map.
fn step(ops: &mut Vec<Op>, entry: i32, random: &mut Random, what: &[Op]) {
    ops.extend((0..10).map(|register| number(register, random.number())));
    ops.extend([put(8, 10, -96, 0), put(8, 10, -88, 0)]);
    ops.extend(what);
    ops.extend((0..10).map(|register| store(8, 10, -80 + 8 * i16::from(register), register)));
    ops.extend([put(4, 10, -104, entry), map(1, 0), copy(2, 10), copy(3, 10), mov(4, 0)]);
    let add = |register, number| alu(Alu::Add, register, Operand::Number(number));
    ops.extend([add(2, -104), add(3, -96), call(UPDATE)]);
}

/// All that can be done with these two registers.
fn all_with(dst: u8, src: u8, wide: bool, random: &mut Random) -> Vec<Vec<Op>> {
    let mut all = Vec::new();
    let register = Operand::Register(src);
    for alu in ALUS {
        let is_shift = matches!(alu, Alu::Lsh | Alu::Rsh | Alu::Arsh);
        let number = match random.number() as i32 {
            number if is_shift => number & 31,
            0 if matches!(alu, Alu::Div | Alu::Mod) => 1,
            number => number,
        };
        for operand in [register, Operand::Number(number)] {
            all.push(vec![Op::Alu { alu, wide, dst, operand }]);
        }
    }
    for condition in CONDITIONS {
        for operand in [register, Operand::Number(random.number() as i32)] {
            let branch = Op::Branch { condition, wide, dst, operand, off: 1 };
            all.push(vec![branch, put(8, 10, -96, 1)]);
        }
    }
    all.push(vec![Op::Neg { wide, dst }]);
    all.extend([16, 32, 64].map(|bits| vec![Op::Swap { big: wide, bits, dst }]));
    let middle = |register| [value(register, 1), alu(Alu::Add, register, Operand::Number(512))];
    for size in [1, 2, 4, 8] {
        let (off, low) = (random.pick(&OFFSETS), -512 + 8 * random.below(48) as i16);
        let [first, second] = middle(src);
        let mut read = vec![first, second, load(size, dst, src, off)];
        if dst != src {
            read.push(mov(src, 7)); // an address is the engine's own
        }
        all.push(read);
        all.push(vec![store(size, 10, low, src), load(size, dst, 10, low)]);
        let [first, second] = middle(dst);
        all.push(vec![first, second, put(size, dst, off, random.number() as i32), mov(dst, 7)]);
        if dst != src {
            all.push(vec![first, second, store(size, dst, off, src), mov(dst, 7)]);
        }
    }
    if dst == src {
        return all;
    }
    for atomic in ATOMICS {
        let exchanges = matches!(atomic, Atomic::Exchange | Atomic::CompareExchange);
        for fetch in [false, true] {
            if exchanges && !fetch || atomic == Atomic::CompareExchange && dst == 0 {
                continue;
            }
            let [first, second] = middle(dst);
            let off = random.pick(&OFFSETS);
            let mut change = vec![first, second];
            if dst != 0 && random.one_in(2) {
                change.push(store(8, dst, off, 0)); // as r0 expects it
            }
            change.push(Op::Atomic { atomic, fetch, wide, dst, off, src });
            change.push(mov(dst, 7));
            all.push(change);
        }
    }
    all
}

#[test]
fn each_instruction_with_each_register_leaves_what_the_interpreter_leaves() {
    if super::HERE.is_none() {
        return;
    }
    let mut random = Random(23);
    for _ in 0..programs(PROGRAMS).div_ceil(PROGRAMS) {
        for (dst, src) in (0..10).flat_map(|dst| (0..10).map(move |src| (dst, src))) {
            for wide in [false, true] {
                let (mut ops, mut entries) = (Vec::new(), 0);
                for what in all_with(dst, src, wide, &mut random) {
                    step(&mut ops, entries, &mut random, &what);
                    entries += 1;
                }
                ops.extend([mov(0, 0), Op::Exit]);
                let out = named("out", MapKind::Array, 4, LEFT, entries as u32);
                let maps = [out, named("memory", MapKind::Array, 4, 1024, 1)];
                let policy = object(Hook::CmpNode, &ops, &maps);
                // The verifier knows best that it does no harm.
                let verified = verify(policy.clone()).unwrap_or_else(|bad| panic!("{bad}"));
                assert!(verified.reports()[0].longest as usize > ops.len() / 2);
                both(&policy, Hook::CmpNode, &Context::default());
            }
        }
    }
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
