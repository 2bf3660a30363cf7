//! What each instruction does, against values that were worked out by hand. Each engine must agree.

use super::*;
use Operand::{Number, Register};
use lockwright_contract::programs::helpers::{LOG2, NOW, PRIO, TAG};

/// What these instructions leave in r0.
fn r0(ops: &[Op]) -> u64 {
    let mut all = vec![store(8, 10, -512, 1)]; // so that r1 survives
    all.extend_from_slice(ops);
    all.extend([value(1, 0), store(8, 1, 0, 0), mov(0, 0), Op::Exit]);
    let maps = [named("out", MapKind::Array, 4, 16, 1)];
    let object = object(Hook::CmpNode, &all, &maps);
    let context =
        Context { nwaiters: 0xf2f3_f4f5, now_ns: 0x8182_8384_8586_8788, ..Context::default() };
    super::both(&object, Hook::CmpNode, &context)
}

/// r0 after one operation on these two numbers.
fn calculate(alu: Alu, wide: bool, a: u64, b: u64) -> u64 {
    // By two registers, and, if the number fits, by one register and a constant; and with each register that machines treat apart.
    let mut results = Vec::new();
    for (dst, src) in [(0, 1), (1, 0), (2, 3), (3, 2), (4, 0), (0, 4), (4, 3), (3, 4), (9, 6)] {
        let op = Op::Alu { alu, wide, dst, operand: Register(src) };
        results.push(r0(&[number(dst, a), number(src, b), op, copy(0, dst)]));
        // The second operand stays.
        assert_eq!(r0(&[number(dst, a), number(src, b), op, copy(0, src)]), b, "{op:?}");
    }
    let is_shift = matches!(alu, Alu::Lsh | Alu::Rsh | Alu::Arsh);
    let width = if wide { 64 } else { 32 };
    if i64::from(b as i32).cast_unsigned() == b && (!is_shift || b < width) {
        for dst in [0, 2, 3, 4, 8] {
            let op = Op::Alu { alu, wide, dst, operand: Number(b as i32) };
            results.push(r0(&[number(dst, a), op, copy(0, dst)]));
        }
    }
    if a == b {
        let op = Op::Alu { alu, wide, dst: 3, operand: Register(3) };
        results.push(r0(&[number(3, a), op, copy(0, 3)]));
    }
    assert!(results.iter().all(|result| *result == results[0]), "{alu:?} {a:x} {b:x} {results:x?}");
    results[0]
}

const MIN: u64 = 1 << 63;
const ALL: u64 = u64::MAX;

#[test]
fn sums_differences_products() {
    assert_eq!(calculate(Alu::Add, true, ALL, 2), 1);
    assert_eq!(calculate(Alu::Add, false, 0xffff_ffff, 2), 1);
    assert_eq!(calculate(Alu::Add, true, 5, -7_i64 as u64), -2_i64 as u64);
    assert_eq!(calculate(Alu::Add, false, 5, -7_i64 as u64), 0xffff_fffe);
    assert_eq!(calculate(Alu::Sub, true, 5, 7), -2_i64 as u64);
    assert_eq!(calculate(Alu::Sub, false, 5, 7), 0xffff_fffe);
    assert_eq!(calculate(Alu::Sub, true, MIN, MIN), 0);
    assert_eq!(calculate(Alu::Mul, true, MIN, ALL), MIN);
    assert_eq!(calculate(Alu::Mul, true, 0x1_0000_0001, 0x1_0000_0001), 0x2_0000_0001);
    assert_eq!(calculate(Alu::Mul, false, 0x1_0001_0000, 0x1_0001), 0x0001_0000);
    assert_eq!(calculate(Alu::Mul, true, 7, 7), 49);
}

#[test]
fn quotients_and_remainders_are_unsigned_and_know_zero() {
    assert_eq!(calculate(Alu::Div, true, MIN, ALL), 0); // not i64::MIN / -1
    assert_eq!(calculate(Alu::Mod, true, MIN, ALL), MIN);
    assert_eq!(calculate(Alu::Div, true, ALL, 2), ALL >> 1);
    assert_eq!(calculate(Alu::Div, false, 0xffff_ffff_8000_0000, 0xffff_ffff), 0);
    assert_eq!(calculate(Alu::Mod, false, 0xffff_ffff_8000_0000, 0xffff_ffff), 0x8000_0000);
    assert_eq!(calculate(Alu::Div, false, 0xf_0000_0064, 0x7_0000_0007), 14);
    assert_eq!(calculate(Alu::Mod, false, 0xf_0000_0064, 0x7_0000_0007), 2);
    assert_eq!(calculate(Alu::Div, true, 7, 0), 0);
    assert_eq!(calculate(Alu::Mod, true, ALL, 0), ALL);
    assert_eq!(calculate(Alu::Div, false, 7, 0), 0);
    // Of 32 bits, the upper half becomes zero even then; and a divisor's lower half counts.
    assert_eq!(calculate(Alu::Mod, false, 0xffff_ffff_0000_0007, 0x5_0000_0000), 7);
    assert_eq!(calculate(Alu::Div, false, 0xffff_ffff_0000_0007, 0x5_0000_0000), 0);
    assert_eq!(calculate(Alu::Div, true, 9, 9), 1);
    assert_eq!(calculate(Alu::Mod, true, 9, 9), 0);
    assert_eq!(calculate(Alu::Div, true, 0, 0), 0);
}

#[test]
fn bits() {
    assert_eq!(calculate(Alu::Or, true, 0xf0, -16_i64 as u64), -16_i64 as u64);
    assert_eq!(calculate(Alu::Or, false, 0xf_0000_000f, 0xf0), 0xff);
    assert_eq!(calculate(Alu::And, true, ALL, -16_i64 as u64), -16_i64 as u64);
    assert_eq!(calculate(Alu::And, false, ALL, -16_i64 as u64), 0xffff_fff0);
    assert_eq!(calculate(Alu::Xor, true, 0xff, ALL), !0xff);
    assert_eq!(calculate(Alu::Xor, false, 0xff_0000_00ff, ALL), 0xffff_ff00);
    assert_eq!(r0(&[number(0, 1), Op::Neg { wide: true, dst: 0 }]), ALL);
    assert_eq!(r0(&[number(0, MIN), Op::Neg { wide: true, dst: 0 }]), MIN);
    assert_eq!(r0(&[number(8, ALL), Op::Neg { wide: false, dst: 8 }, copy(0, 8)]), 1);
    assert_eq!(r0(&[number(0, 5 << 32), Op::Neg { wide: false, dst: 0 }]), 0);
}

#[test]
fn shifts_count_modulo_the_width() {
    assert_eq!(calculate(Alu::Lsh, true, 3, 63), MIN);
    assert_eq!(calculate(Alu::Lsh, true, 3, 64), 3);
    assert_eq!(calculate(Alu::Lsh, true, 3, ALL), MIN);
    assert_eq!(calculate(Alu::Lsh, false, 3, 31), 0x8000_0000);
    assert_eq!(calculate(Alu::Lsh, false, 0x9_0000_0003, 32), 3);
    assert_eq!(calculate(Alu::Rsh, true, MIN, 63), 1);
    assert_eq!(calculate(Alu::Rsh, true, MIN, 64), MIN);
    assert_eq!(calculate(Alu::Rsh, false, 0x1_8000_0000, 31), 1);
    assert_eq!(calculate(Alu::Rsh, false, 0x1_8000_0000, 33), 0x4000_0000);
    assert_eq!(calculate(Alu::Arsh, true, MIN, 63), ALL);
    assert_eq!(calculate(Alu::Arsh, true, MIN, 65), 0xc000_0000_0000_0000);
    assert_eq!(calculate(Alu::Arsh, false, 0x8000_0000, 31), 0xffff_ffff);
    assert_eq!(calculate(Alu::Arsh, false, 0xf_4000_0000, 30), 1);
    assert_eq!(calculate(Alu::Lsh, true, 0, 0), 0);
    assert_eq!(calculate(Alu::Lsh, false, 0xffff_ffff_0000_0001, 0), 1);
    assert_eq!(calculate(Alu::Lsh, true, 5, 5), 160);
}

#[test]
fn moves() {
    assert_eq!(calculate(Alu::Mov, true, 0, -1_i64 as u64), ALL);
    assert_eq!(calculate(Alu::Mov, false, ALL, -1_i64 as u64), 0xffff_ffff);
    assert_eq!(calculate(Alu::Mov, false, ALL, 0x5_0000_0006), 6);
    assert_eq!(calculate(Alu::Mov, true, ALL, 0), 0);
    assert_eq!(calculate(Alu::Mov, false, ALL, ALL), 0xffff_ffff);
    assert_eq!(r0(&[number(0, 0x1234_5678_9abc_def0)]), 0x1234_5678_9abc_def0);
    for small in [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, ALL << 31, ALL << 32] {
        assert_eq!(r0(&[number(7, small), copy(0, 7)]), small);
    }
}

#[test]
fn orders_of_bytes() {
    let swap = |big, bits| {
        let given = 0x0102_0304_0506_0708;
        let by = |dst| r0(&[number(dst, given), Op::Swap { big, bits, dst }, copy(0, dst)]);
        assert_eq!(by(0), by(7));
        assert_eq!(by(4), by(7));
        by(0)
    };
    assert_eq!(swap(true, 16), 0x0807);
    assert_eq!(swap(true, 32), 0x0807_0605);
    assert_eq!(swap(true, 64), 0x0807_0605_0403_0201);
    assert_eq!(swap(false, 16), 0x0708);
    assert_eq!(swap(false, 32), 0x0506_0708);
    assert_eq!(swap(false, 64), 0x0102_0304_0506_0708);
}

#[test]
fn branches() {
    use Condition::*;
    let taken = |condition, wide, a, b: u64| {
        let by = |first: u8, second: u8, operand| {
            let jump = Op::Branch { condition, wide, dst: first, operand, off: 1 };
            r0(&[mov(9, 1), number(first, a), number(second, b), jump, mov(9, 0), copy(0, 9)])
        };
        let results = [by(2, 8, Register(8)), by(0, 1, Register(1)), by(4, 3, Register(3))];
        let same = i64::from(b as i32).cast_unsigned() == b;
        let by_number = if same { by(7, 6, Number(b as i32)) } else { results[0] };
        assert!(results.iter().all(|taken| *taken == by_number), "{condition:?} {a:x} {b:x}");
        by_number == 1
    };
    let minus = |n: i64| (-n).cast_unsigned();
    // Condition, 64 bits, first operand; second operand; as 64 and as 32 bits.
    for (condition, a, b, wide, narrow) in [
        (Eq, 5, 5, true, true),
        (Eq, 5 << 32 | 5, 5, false, true),
        (Eq, minus(1), minus(1), true, true),
        (Ne, 5 << 32 | 5, 5, true, false),
        (Ne, 5, 6, true, true),
        (Gt, minus(1), 5, true, true),
        (Gt, 5, 5, false, false),
        (Gt, 1 << 32, 5, true, false),
        (Ge, 5, 5, true, true),
        (Ge, 4, minus(5), false, false),
        (Lt, 4, minus(5), true, true),
        (Lt, 5, 5, false, false),
        (Le, 5, 5, true, true),
        (Le, 1 << 32 | 4, 5, false, true),
        (Set, 6, 3, true, true),
        (Set, 4, 3, false, false),
        (Set, 1 << 40, minus(1), true, false),
        (Sgt, 5, minus(5), true, true),
        (Sgt, minus(6), minus(5), false, false),
        (Sgt, 0x8000_0000, 5, true, false),
        (Sge, minus(5), minus(5), true, true),
        (Sge, 0xffff_ffff, 0, true, false),
        (Slt, minus(6), minus(5), true, true),
        (Slt, 0x8000_0000, 0, false, true),
        (Slt, 5, 5, false, false),
        (Sle, 5, 5, true, true),
        (Sle, MIN, 0, true, true),
        (Sle, 1, 0, false, false),
    ] {
        assert_eq!(taken(condition, true, a, b), wide, "{condition:?} {a:x} {b:x}");
        assert_eq!(taken(condition, false, a, b), narrow, "{condition:?} {a:x} {b:x}, 32 bits");
    }
}

#[test]
fn a_loop_counts() {
    let ops = [
        mov(0, 0),
        mov(6, 10),
        alu(Alu::Add, 0, Register(6)),
        alu(Alu::Sub, 6, Number(1)),
        branch(Condition::Ne, 6, Number(0), -3),
    ];
    assert_eq!(r0(&ops), 55);
}

#[test]
fn memory_of_each_size() {
    let at = std::mem::offset_of!(Context, now_ns) as i16;
    assert_eq!(r0(&[load(8, 0, 1, at)]), 0x8182_8384_8586_8788);
    assert_eq!(r0(&[load(4, 0, 1, at)]), 0x8586_8788);
    assert_eq!(r0(&[load(2, 0, 1, at)]), 0x8788);
    assert_eq!(r0(&[load(1, 0, 1, at + 7)]), 0x81);
    assert_eq!(r0(&[copy(4, 1), load(1, 4, 4, at + 1), copy(0, 4)]), 0x87);
    let zero = put(8, 10, -8, 0);
    let get = load(8, 0, 10, -8);
    assert_eq!(r0(&[put(8, 10, -8, -2), get]), -2_i64 as u64);
    assert_eq!(r0(&[zero, put(4, 10, -8, -2), get]), 0xffff_fffe);
    assert_eq!(r0(&[zero, put(2, 10, -8, -2), get]), 0xfffe);
    assert_eq!(r0(&[zero, put(1, 10, -7, -2), get]), 0xfe00);
    // Each register, since some need other encodings.
    for register in 0..10 {
        let given = 0x0123_4567_89ab_cdef;
        let ops = |size| [number(register, given), zero, store(size, 10, -8, register), get];
        assert_eq!(r0(&ops(8)), given);
        assert_eq!(r0(&ops(4)), 0x89ab_cdef);
        assert_eq!(r0(&ops(2)), 0xcdef);
        assert_eq!(r0(&ops(1)), 0xef, "r{register}");
        // As an address, near and far.
        for off in [0, 8, -8] {
            let to = value(register, 0);
            let moved = alu(Alu::Sub, register, Number(i32::from(off) - 8));
            let other = if register == 6 { 7 } else { 6 };
            let ops = [
                to,
                moved,
                mov(other, -3),
                store(4, register, off, other),
                load(4, 0, register, off),
            ];
            assert_eq!(r0(&ops), 0xffff_fffd, "r{register}");
        }
        let far = [
            put(2, 10, -400, 0x1234),
            copy(register, 10),
            load(2, register, register, -400),
            copy(0, register),
        ];
        assert_eq!(r0(&far), 0x1234);
    }
}

/// r0, and what memory has then: on the stack and in a map, which must agree.
fn atomically(
    atomic: Atomic,
    fetch: bool,
    wide: bool,
    old: u64,
    operand: u64,
    expected: u64,
) -> [u64; 3] {
    let run = |dst: u8, src: u8, base: Op, beyond: i32, then: Op| {
        let op = Op::Atomic { atomic, fetch, wide, dst, off: -8, src };
        let ops = |last| {
            let address = alu(Alu::Add, dst, Number(beyond));
            let begin =
                [base, address, number(src, old), store(8, dst, -8, src), number(src, operand)];
            let mut ops = begin.to_vec();
            ops.extend([number(0, expected), op, last]);
            ops
        };
        let memory = load(8, 0, dst, -8);
        [r0(&ops(then)), r0(&ops(memory)), r0(&ops(copy(0, src)))]
    };
    let mut results = Vec::new();
    for (dst, src) in [(1, 2), (2, 1), (6, 7), (4, 3), (3, 4), (9, 5)] {
        results.push(run(dst, src, value(dst, 0), 8, copy(0, 0)));
        results.push(run(dst, src, copy(dst, 10), 0, copy(0, 0)));
    }
    results.iter().for_each(|result| assert_eq!(*result, results[0], "{atomic:?}"));
    let [r0, memory, src] = results[0];
    [r0, memory, src]
}

#[test]
fn atomic_operations() {
    use Atomic::*;
    let old = 0xf0f0_f0f0_0000_00ff;
    let given = 0x0000_0001_0000_0f01;
    let high = old & !0xffff_ffff;
    // r0 (the expected value, unless it is what the instruction writes), memory, the register.
    for (op, new) in [(Add, old + given), (Or, old | given), (And, old & given), (Xor, old ^ given)]
    {
        let new32 = high | new & 0xffff_ffff;
        assert_eq!(atomically(op, false, true, old, given, 7), [7, new, given], "{op:?}");
        assert_eq!(atomically(op, true, true, old, given, 7), [7, new, old], "{op:?}");
        assert_eq!(atomically(op, false, false, old, given, 7), [7, new32, given], "{op:?}");
        assert_eq!(atomically(op, true, false, old, given, 7), [7, new32, 0xff], "{op:?}");
    }
    assert_eq!(atomically(Exchange, true, true, old, given, 7), [7, given, old]);
    assert_eq!(atomically(Exchange, true, false, old, given, 7), [7, high | 0xf01, 0xff]);
    let compare = |wide, expected| atomically(CompareExchange, true, wide, old, given, expected);
    assert_eq!(compare(true, old), [old, given, given]);
    assert_eq!(compare(true, 0xff), [old, old, given]);
    assert_eq!(compare(false, 0xff), [0xff, high | 0xf01, given]);
    assert_eq!(compare(false, 0x1_0000_00ff), [0xff, high | 0xf01, given]); // the lower half counts
    assert_eq!(compare(false, 0xfe), [0xff, old, given]); // r0 is zero-extended if it fails, too
}

#[test]
fn r0_as_an_operand_of_an_atomic_operation() {
    let atomic = |atomic, fetch, src| {
        let op = Op::Atomic { atomic, fetch, wide: true, dst: 10, off: -8, src };
        [put(8, 10, -8, 5), mov(0, 3), op]
    };
    assert_eq!(r0(&atomic(Atomic::Add, true, 0)), 5);
    assert_eq!(r0(&atomic(Atomic::And, true, 0)), 5);
    assert_eq!(r0(&atomic(Atomic::Exchange, true, 0)), 5);
    assert_eq!(r0(&atomic(Atomic::CompareExchange, true, 0)), 5);
    // The address is in r0, and so it is the expected value: a stack's address, which isn't there.
    let ops = [
        put(8, 10, -8, 5),
        copy(0, 10),
        Op::Atomic { atomic: Atomic::Xor, fetch: false, wide: false, dst: 0, off: -8, src: 0 },
    ];
    assert_ne!(r0_of_leak(&ops), Ok(()));
    let address = [
        value(0, 0),
        mov(6, 9),
        Op::Atomic { atomic: Atomic::Add, fetch: true, wide: true, dst: 0, off: 8, src: 6 },
        load(8, 0, 0, 8),
    ];
    assert_eq!(r0(&address), 9);
    let same = Op::Atomic { atomic: Atomic::Or, fetch: true, wide: true, dst: 0, off: 0, src: 6 };
    assert_eq!(
        r0(&[
            put(8, 10, -8, 5),
            copy(0, 10),
            alu(Alu::Sub, 0, Number(8)),
            mov(6, 2),
            same,
            load(8, 0, 10, -8)
        ]),
        7
    );
}

/// A pointer on the stack is none of anybody's numbers.
fn r0_of_leak(ops: &[Op]) -> Result<(), crate::interpret::Deed> {
    let mut ops = ops.to_vec();
    ops.extend([load(4, 0, 10, -8), Op::Exit]);
    let object = object(Hook::CmpNode, &ops, &[]);
    let answer = interpreter(&object).ask(Hook::CmpNode, &Context::default(), &Counting::default());
    answer.map(drop).map_err(|escape| escape.deed)
}

#[test]
fn helpers_of_numbers() {
    for (given, log) in [(0, 0), (1, 0), (2, 1), (3, 1), (1 << 40, 40), (ALL, 63)] {
        assert_eq!(r0(&[number(1, given), call(LOG2)]), log);
    }
    assert_eq!(r0(&[call(NOW), copy(6, 0), call(NOW), alu(Alu::Sub, 0, Register(6))]), 1_000_000);
    assert_eq!(r0(&[mov(1, 5), call(TAG)]), 5 * 0x0001_0001_0001);
    assert_eq!(r0(&[mov(1, 5), call(PRIO)]), -5_i64 as u64);
    // Registers that a helper must leave alone.
    let kept = |register| [mov(register, 77), mov(1, 5), call(PRIO), copy(0, register)];
    for register in 6..10 {
        assert_eq!(r0(&kept(register)), 77);
    }
}
