//! Each way to escape is found, and what is none isn't.

use super::*;
use crate::op::{Alu, BadOp};
use crate::testing::*;
use Operand::{Number, Register};
use lockwright_contract::programs::helpers::{LOOKUP, REPORT, STORAGE, TAG, UPDATE};

fn ask(ops: &[Op]) -> Result<u64, Deed> {
    ask_in(&Counting::default(), ops)
}

fn ask_in(world: &Counting, ops: &[Op]) -> Result<u64, Deed> {
    let maps = [
        named("array", MapKind::Array, 4, 16, 2),
        named("hash", MapKind::Hash, 8, 8, 4),
        named("ring", MapKind::Ring, 0, 0, 4096),
        named("cpus", MapKind::PerCpuArray, 4, 16, 2),
    ];
    let object = object(Hook::ScheduleWaiter, ops, &maps);
    let answer = interpreter(&object).ask(Hook::ScheduleWaiter, &Context::default(), world);
    answer.map(|answer| answer.value).map_err(|escape| escape.deed)
}

/// These, and then the answer 0.
fn deed(ops: &[Op]) -> Deed {
    let mut ops = ops.to_vec();
    ops.extend([mov(0, 0), Op::Exit]);
    ask(&ops).expect_err("an escape")
}

fn outside(ops: &[Op]) {
    let deed = deed(ops);
    assert!(matches!(deed, Deed::Outside(..)), "{deed:?} by {ops:?}");
}

/// r0 is this entry of a map.
fn look_up(number: u32, key: i32) -> Vec<Op> {
    vec![
        put(8, 10, -8, key),
        copy(2, 10),
        alu(Alu::Add, 2, Number(-8)),
        map(1, number),
        call(LOOKUP),
        branch(Condition::Ne, 0, Number(0), 1),
        Op::Exit,
    ]
}

#[test]
fn the_context_is_only_read_and_only_within() {
    assert_eq!(ask(&[load(8, 0, 1, 280), Op::Exit]), Ok(0));
    outside(&[load(8, 0, 1, 0)]); // reserved
    outside(&[load(8, 0, 1, 4)]);
    outside(&[load(8, 0, 1, 281)]);
    outside(&[load(1, 0, 1, -1)]);
    outside(&[load(1, 0, 1, 288)]);
    assert_eq!(deed(&[put(8, 1, 8, 0)]), Deed::ReadOnly);
    let add = Op::Atomic { atomic: Atomic::Add, fetch: false, wide: true, dst: 1, off: 8, src: 3 };
    assert_eq!(deed(&[mov(3, 0), add]), Deed::ReadOnly);
}

#[test]
fn the_stack_is_read_where_it_was_written() {
    assert_eq!(ask(&[put(8, 10, -512, 3), load(8, 0, 10, -512), Op::Exit]), Ok(3));
    outside(&[put(1, 10, -513, 0)]);
    outside(&[put(1, 10, 0, 0)]);
    outside(&[put(8, 10, -4, 0)]);
    assert_eq!(deed(&[load(1, 0, 10, -1)]), Deed::Uninitialised(-1));
    assert_eq!(deed(&[put(4, 10, -8, 0), load(8, 0, 10, -8)]), Deed::Uninitialised(-4));
    let deed = deed(&[
        put(4, 10, -8, 0),
        copy(2, 10),
        alu(Alu::Add, 2, Number(-8)),
        map(1, 1),
        call(LOOKUP),
    ]);
    assert_eq!(deed, Deed::Uninitialised(-4));
}

#[test]
fn values_end_where_they_end_and_the_next_one_is_no_neighbour() {
    for (number, size) in [(0, 16), (1, 8), (3, 16)] {
        let storage = |mut ops: Vec<Op>| {
            if number == 1 {
                ops[4] = call(STORAGE);
            }
            ops
        };
        let inside = [look_up(number, 1), vec![put(8, 0, size - 8, 1)]].concat();
        assert_eq!(ask(&[storage(inside), vec![mov(0, 2), Op::Exit]].concat()), Ok(2));
        for off in [size, size - 7, -1, -8, 24, 48, 32000, -32000] {
            outside(&storage([look_up(number, 0), vec![put(8, 0, off, 1)]].concat()));
        }
        // Far away there is nothing either.
        for far in [1 << 20, 1 << 22, -(1 << 22)] {
            let moved = [alu(Alu::Add, 0, Number(far)), load(1, 0, 0, 0)];
            outside(&storage([look_up(number, 0), moved.to_vec()].concat()));
        }
    }
    let variable =
        |at| [Op::Load64 { dst: 1, constant: Constant::Value(0, at) }, load(1, 0, 1, 0), Op::Exit];
    assert_eq!(ask(&variable(15)), Ok(0));
    assert!(matches!(ask(&variable(16)), Err(Deed::Outside(..))));
    assert_eq!(ask(&look_up(0, 2)), Ok(0)); // there is none
    assert_eq!(deed(&[map(1, 4)]), Deed::Map(4));
    assert_eq!(deed(&[value(1, 9)]), Deed::Map(9));
    outside(&[map(1, 0), load(8, 0, 1, 0)]);
    outside(&[value(1, 2), load(8, 0, 1, 0)]); // a ring has no values
}

#[test]
fn numbers_are_no_addresses() {
    outside(&[mov(3, 0), load(8, 0, 3, 0)]);
    outside(&[number(3, 0x7fff_ffff_ffff), load(1, 0, 3, 0)]);
    outside(&[mov(3, -8), put(8, 3, 0, 0)]);
    // Half a pointer.
    outside(&[
        Op::Alu { alu: Alu::Mov, wide: false, dst: 3, operand: Register(10) },
        put(8, 3, -8, 0),
    ]);
}

#[test]
fn registers_are_read_when_written() {
    assert_eq!(deed(&[copy(0, 2)]), Deed::Register(2));
    assert_eq!(ask(&[Op::Exit]), Err(Deed::Register(0)));
    assert_eq!(deed(&[alu(Alu::Add, 3, Number(1))]), Deed::Register(3));
    assert_eq!(deed(&[mov(1, 1), call(TAG), copy(0, 1)]), Deed::Register(1)); // lost by the call
    assert_eq!(deed(&[call(TAG), mov(1, 1), mov(2, 0), call(TAG), copy(0, 5)]), Deed::Leak); // r1: the context
    assert_eq!(
        deed(&[Op::Branch {
            condition: Condition::Eq,
            wide: false,
            dst: 7,
            operand: Number(1),
            off: 0
        }]),
        Deed::Register(7)
    );
}

#[test]
fn pointers_stay_inside() {
    assert_eq!(ask(&[copy(0, 1), Op::Exit]), Err(Deed::Leak));
    assert_eq!(deed(&[value(2, 0), store(8, 2, 0, 1)]), Deed::Leak);
    assert_eq!(
        deed(&[value(2, 0), copy(3, 10), alu(Alu::Rsh, 3, Number(3)), store(1, 2, 0, 3)]),
        Deed::Leak
    );
    let spilled = [store(8, 10, -8, 1), load(4, 3, 10, -8), value(2, 0), store(4, 2, 0, 3)];
    assert_eq!(deed(&spilled), Deed::Leak);
    let overwritten = [store(8, 10, -8, 1), put(8, 10, -8, 1), load(4, 0, 10, -8), Op::Exit];
    assert_eq!(ask(&overwritten), Ok(1));
    assert_eq!(deed(&[branch(Condition::Gt, 1, Register(10), 0)]), Deed::Leak);
    assert_eq!(deed(&[branch(Condition::Eq, 1, Number(5), 0)]), Deed::Leak);
    let exchange =
        Op::Atomic { atomic: Atomic::Exchange, fetch: true, wide: true, dst: 2, off: 0, src: 1 };
    assert_eq!(deed(&[value(2, 0), exchange]), Deed::Leak);
    let key =
        [store(8, 10, -8, 1), copy(2, 10), alu(Alu::Add, 2, Number(-8)), map(1, 1), call(LOOKUP)];
    assert_eq!(deed(&key), Deed::Leak);
}

#[test]
fn helpers_get_what_they_take() {
    let argument = |ops: &[Op], expected| match deed(ops) {
        Deed::Argument(_, number) => assert_eq!(number, expected),
        other => panic!("{other:?} by {ops:?}"),
    };
    let memory = [put(8, 10, -8, 0), copy(2, 10), alu(Alu::Add, 2, Number(-8))];
    let with = |ops: &[Op]| [&memory, ops].concat();
    argument(&with(&[mov(1, 0), call(LOOKUP)]), 1);
    argument(&with(&[map(1, 2), call(LOOKUP)]), 1); // a ring
    argument(&with(&[map(1, 0), call(STORAGE)]), 1); // no hash
    argument(&with(&[map(1, 1), mov(3, 8), mov(4, 0), call(REPORT)]), 1);
    argument(&with(&[map(1, 2), mov(3, 0), mov(4, 0), call(REPORT)]), 3);
    argument(&with(&[map(1, 2), mov(3, 513), mov(4, 0), call(REPORT)]), 3);
    assert!(matches!(
        deed(&with(&[map(1, 2), mov(3, 9), mov(4, 0), call(REPORT)])),
        Deed::Outside(..)
    ));
    outside(&[mov(2, 0), map(1, 0), call(LOOKUP)]);
    // The array's values have 16 bytes, and here are 8.
    outside(&with(&[copy(3, 2), map(1, 0), mov(4, 0), call(UPDATE)]));
    assert_eq!(deed(&[call(4)]), Deed::Helper(4));
    // Values may be what helpers read.
    let from_value = with(&[value(3, 0), map(1, 0), mov(4, 0), call(UPDATE), mov(0, 1), Op::Exit]);
    assert_eq!(ask(&from_value), Ok(1));
}

#[test]
fn the_world_is_told_which_of_its_memory_a_policy_touches() {
    let touched = |ops: &[Op]| {
        let world = Counting::default();
        ask_in(&world, ops).unwrap();
        world.touched.into_inner()
    };
    let end = [mov(0, 0), Op::Exit];
    assert_eq!(touched(&[&[put(8, 10, -8, 1), load(8, 3, 1, 8)], &end[..]].concat()), []);
    let [looked, read, written] =
        touched(&[&look_up(0, 1)[..], &[load(8, 3, 0, 8), put(8, 0, 8, 1)], &end].concat())[..]
    else {
        panic!("a look-up, a read, a write")
    };
    assert_eq!([read, written], [(looked.0 + 8, false), (looked.0 + 8, true)]);
    assert!(!looked.1, "a look-up writes nothing");
    assert_eq!(touched(&look_up(0, 2)), [], "there is no such entry");
    let report = [put(8, 10, -8, 1), map(1, 2), copy(2, 10), alu(Alu::Add, 2, Number(-8))];
    let report = [&report[..], &[mov(3, 8), mov(4, 0), call(REPORT)], &end].concat();
    assert!(matches!(touched(&report)[..], [(_, true)]), "a report moves the ring's end");
}

#[test]
fn there_is_an_end() {
    assert_eq!(deed(&[Op::Jump { off: -1 }]), Deed::Endless);
    assert_eq!(ask(&[mov(0, 0)]), Err(Deed::End));
    assert_eq!(deed(&[Op::Jump { off: 100 }]), Deed::End);
    assert_eq!(deed(&[Op::Jump { off: -100 }]), Deed::End);
    assert_eq!(deed(&[Op::Jump { off: 1 }, number(3, 5)]), Deed::Op(BadOp::Unknown(0))); // into the middle
    let nested = [
        mov(0, 0),
        mov(6, 100),
        mov(7, 100),
        alu(Alu::Sub, 7, Number(1)),
        branch(Condition::Ne, 7, Number(0), -2),
        alu(Alu::Sub, 6, Number(1)),
        branch(Condition::Ne, 6, Number(0), -5),
    ];
    assert_eq!(deed(&nested), Deed::Endless);
    // The last instruction that may be is.
    let long = |turns| {
        let turn = [alu(Alu::Sub, 6, Number(1)), branch(Condition::Ne, 6, Number(0), -2)];
        ask(&[&[mov(6, turns), mov(0, 0)], &turn[..], &[mov(0, 1), Op::Exit]].concat())
    };
    assert_eq!((long(2046), long(2047)), (Ok(1), Err(Deed::Endless)));
}

#[test]
fn answers_are_in_range_and_instructions_are_counted() {
    assert_eq!(ask(&[mov(0, 3), Op::Exit]), Ok(3));
    assert_eq!(ask(&[mov(0, 4), Op::Exit]), Err(Deed::Answer(4)));
    assert_eq!(ask(&[mov(0, -1), Op::Exit]), Err(Deed::Answer(u64::MAX)));
    let object = object(Hook::CmpNode, &[number(0, 1), Op::Jump { off: 0 }, Op::Exit], &[]);
    let (context, world) = (Context::default(), Counting::default());
    let answer = interpreter(&object).ask(Hook::CmpNode, &context, &world);
    assert_eq!(answer, Ok(Answer { value: 1, insns: 3 }));
    let other = interpreter(&object).ask(Hook::RwBias, &context, &world);
    assert_eq!(other, Err(Escape { insn: 0, deed: Deed::Hook }));
}

#[test]
fn an_atomic_operation_is_aligned() {
    let add =
        |off| Op::Atomic { atomic: Atomic::Add, fetch: false, wide: true, dst: 2, off, src: 3 };
    let misaligned = deed(&[value(2, 0), mov(3, 1), add(4)]);
    assert!(matches!(misaligned, Deed::Misaligned(_)));
    assert_eq!(ask(&[value(2, 0), mov(3, 1), add(8), load(8, 0, 2, 8), Op::Exit]), Ok(1));
}

/// Programs that nobody has verified do no harm: whatever they do is an answer or an escape.
#[test]
fn any_instructions_at_all_do_no_harm() {
    let mut random = Random(3);
    let (mut escapes, mut answers) = (0, 0);
    for _ in 0..1500 {
        let mut object = generate::policy(&mut random, 8);
        for hook in &mut object.hooks {
            mutate(&mut random, &mut hook.insns);
        }
        let interpreter = interpreter(&object);
        for hook in &object.hooks {
            match interpreter.ask(hook.hook, &random.context(), &Counting::default()) {
                Ok(_) => answers += 1,
                Err(escape) => {
                    escapes += 1;
                    assert!(!escape.to_string().is_empty());
                }
            }
        }
    }
    assert!(escapes > 2000 && answers > 2000, "{escapes} {answers}");
}
