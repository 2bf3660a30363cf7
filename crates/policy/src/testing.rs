//! What the tests of this crate share: programs by hand, programs by chance, a world whose answers repeat.

pub(crate) mod generate;
mod semantics;

use crate::interpret::Interpreter;
use crate::jit::HERE;
use crate::loaded::Loaded;
use crate::maps::Maps;
use crate::object::{HookCode, Insn, NamedMap, Object};
use crate::op::{Alu, Atomic, Condition, Constant, Op, Operand, STACK, decode};
use lockwright_contract::programs::maps::{MapKind, MapSpec, View};
use lockwright_platform::hooks::{Context, Hook, Node, Policy, World};
use std::cell::{Cell, RefCell};

/// An instruction as the object file has it.
pub(crate) fn encode(op: Op) -> Vec<Insn> {
    let insn = |code: u8, dst: u8, src: u8, off: i16, imm: i32| Insn { code, dst, src, off, imm };
    let source = |operand| match operand {
        Operand::Register(src) => (8, src, 0),
        Operand::Number(imm) => (0, 0, imm),
    };
    let size = |bytes| match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    };
    vec![match op {
        Op::Alu { alu, wide, dst, operand } => {
            let (bit, src, imm) = source(operand);
            let code = match alu {
                Alu::Add => 0x00,
                Alu::Sub => 0x10,
                Alu::Mul => 0x20,
                Alu::Div => 0x30,
                Alu::Or => 0x40,
                Alu::And => 0x50,
                Alu::Lsh => 0x60,
                Alu::Rsh => 0x70,
                Alu::Mod => 0x90,
                Alu::Xor => 0xa0,
                Alu::Mov => 0xb0,
                Alu::Arsh => 0xc0,
            };
            insn(code | bit | if wide { 7 } else { 4 }, dst, src, 0, imm)
        }
        Op::Neg { wide, dst } => insn(if wide { 0x87 } else { 0x84 }, dst, 0, 0, 0),
        Op::Swap { big, bits, dst } => {
            insn(if big { 0xdc } else { 0xd4 }, dst, 0, 0, i32::from(bits))
        }
        Op::Load64 { dst, constant } => {
            let (src, low, high) = match constant {
                Constant::Number(number) => (0, number as u32, (number >> 32) as u32),
                Constant::Map(map) => (1, map, 0),
                Constant::Value(map, at) => (2, map, at),
            };
            let half = insn(0, 0, 0, 0, high.cast_signed());
            return vec![insn(0x18, dst, src, 0, low.cast_signed()), half];
        }
        Op::Load { size: bytes, dst, src, off } => insn(0x61 | size(bytes), dst, src, off, 0),
        Op::Store { size: bytes, dst, off, operand } => {
            let (bit, src, imm) = source(operand);
            insn(if bit == 0 { 0x62 } else { 0x63 } | size(bytes), dst, src, off, imm)
        }
        Op::Atomic { atomic, fetch, wide, dst, off, src } => {
            let imm = match atomic {
                Atomic::Add => 0x00,
                Atomic::Or => 0x40,
                Atomic::And => 0x50,
                Atomic::Xor => 0xa0,
                Atomic::Exchange => 0xe0,
                Atomic::CompareExchange => 0xf0,
            };
            insn(if wide { 0xdb } else { 0xc3 }, dst, src, off, imm | i32::from(fetch))
        }
        Op::Jump { off } => insn(0x05, 0, 0, off, 0),
        Op::Branch { condition, wide, dst, operand, off } => {
            let (bit, src, imm) = source(operand);
            let code = match condition {
                Condition::Eq => 0x10,
                Condition::Gt => 0x20,
                Condition::Ge => 0x30,
                Condition::Set => 0x40,
                Condition::Ne => 0x50,
                Condition::Sgt => 0x60,
                Condition::Sge => 0x70,
                Condition::Lt => 0xa0,
                Condition::Le => 0xb0,
                Condition::Slt => 0xc0,
                Condition::Sle => 0xd0,
            };
            insn(code | bit | if wide { 5 } else { 6 }, dst, src, off, imm)
        }
        Op::Call { helper } => insn(0x85, 0, 0, 0, helper.cast_signed()),
        Op::Exit => insn(0x95, 0, 0, 0, 0),
    }]
}

/// A policy with one hook.
pub(crate) fn object(hook: Hook, ops: &[Op], maps: &[NamedMap]) -> Object {
    let insns = ops.iter().flat_map(|op| encode(*op)).collect();
    Object { hooks: vec![HookCode { hook, insns, lines: Vec::new() }], maps: maps.to_vec() }
}

/// A map.
pub(crate) fn named(name: &str, kind: MapKind, key: u32, value: u32, entries: u32) -> NamedMap {
    let spec = MapSpec { kind, key_size: key, value_size: value, max_entries: entries };
    NamedMap { name: name.to_owned(), spec, initial: Vec::new(), constants: Vec::new() }
}

/// An interpreter.
pub(crate) fn interpreter(object: &Object) -> Interpreter {
    Interpreter::new(object, Maps::new(&object.maps, 4).unwrap())
}

// Instructions, in short.

pub(crate) fn alu(alu: Alu, dst: u8, operand: Operand) -> Op {
    Op::Alu { alu, wide: true, dst, operand }
}

pub(crate) fn number(dst: u8, number: u64) -> Op {
    Op::Load64 { dst, constant: Constant::Number(number) }
}

pub(crate) fn mov(dst: u8, number: i32) -> Op {
    alu(Alu::Mov, dst, Operand::Number(number))
}

pub(crate) fn copy(dst: u8, src: u8) -> Op {
    alu(Alu::Mov, dst, Operand::Register(src))
}

pub(crate) fn map(dst: u8, map: u32) -> Op {
    Op::Load64 { dst, constant: Constant::Map(map) }
}

pub(crate) fn value(dst: u8, map: u32) -> Op {
    Op::Load64 { dst, constant: Constant::Value(map, 0) }
}

pub(crate) fn load(size: u8, dst: u8, src: u8, off: i16) -> Op {
    Op::Load { size, dst, src, off }
}

pub(crate) fn store(size: u8, dst: u8, off: i16, src: u8) -> Op {
    Op::Store { size, dst, off, operand: Operand::Register(src) }
}

pub(crate) fn put(size: u8, dst: u8, off: i16, number: i32) -> Op {
    Op::Store { size, dst, off, operand: Operand::Number(number) }
}

pub(crate) fn branch(condition: Condition, dst: u8, operand: Operand, off: i16) -> Op {
    Op::Branch { condition, wide: true, dst, operand, off }
}

pub(crate) fn call(helper: u32) -> Op {
    Op::Call { helper }
}

/// All operations.
pub(crate) const ALUS: [Alu; 12] = [
    Alu::Add,
    Alu::Sub,
    Alu::Mul,
    Alu::Div,
    Alu::Or,
    Alu::And,
    Alu::Lsh,
    Alu::Rsh,
    Alu::Mod,
    Alu::Xor,
    Alu::Mov,
    Alu::Arsh,
];

/// All conditions.
pub(crate) const CONDITIONS: [Condition; 11] = [
    Condition::Eq,
    Condition::Gt,
    Condition::Ge,
    Condition::Set,
    Condition::Ne,
    Condition::Sgt,
    Condition::Sge,
    Condition::Lt,
    Condition::Le,
    Condition::Slt,
    Condition::Sle,
];

/// All atomic operations.
pub(crate) const ATOMICS: [Atomic; 6] =
    [Atomic::Add, Atomic::Or, Atomic::And, Atomic::Xor, Atomic::Exchange, Atomic::CompareExchange];

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// One time in `n`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// A number near which arithmetic goes wrong, or any.
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => self.below(4),
            1 => self.below(4).wrapping_neg(),
            2 => (1 << self.below(64)) - self.below(2),
            3 => (i64::MIN.cast_unsigned()).wrapping_add(self.below(3)).wrapping_sub(1),
            4 => u64::from(u32::MAX).wrapping_add(self.below(3)).wrapping_sub(1),
            5 => (1_u64 << 31).wrapping_add(self.below(3)).wrapping_sub(1),
            6 => self.next() >> self.below(64),
            _ => self.next(),
        }
    }

    /// A context, each of its bytes drawn.
    pub(crate) fn context(&mut self) -> Context {
        let mut context = Context {
            lock_id: self.number(),
            lock_kind: self.next() as u32 % 4,
            round: self.next() as u32 % 16,
            batch: self.next() as u32 % 16,
            nwaiters: self.next() as u32 % 64,
            now_ns: self.number(),
            avg_cs_ns: self.number(),
            ..Context::default()
        };
        for node in [&mut context.own, &mut context.best, &mut context.curr] {
            *node = Node {
                tid: self.number() as u32,
                cpu: self.next() as u32 % 8,
                numa: self.next() as u32 % 2,
                core_class: self.next() as u32 % 3,
                prio: self.number() as i32,
                flags: self.next() as u32 % 8,
                speed: self.number() as u32,
                passed: self.next() as u32 % 8,
                wait_ns: self.number(),
                cs_ns: self.number(),
                cs_total_ns: self.number(),
                held_locks: self.next() as u32 % 4,
                window_ns: self.number() as u32,
                slo_ns: self.number(),
                tag: self.number(),
            };
        }
        context
    }
}

/// Changes an instruction or a few. Most of the new ones are instructions.
pub(crate) fn mutate(random: &mut Random, insns: &mut Vec<Insn>) {
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

/// How many programs a test draws; `LOCKWRIGHT_PROGRAMS` says another number.
pub(crate) fn programs(by_default: u64) -> u64 {
    std::env::var("LOCKWRIGHT_PROGRAMS").map_or(by_default, |text| text.parse().expect("a number"))
}

/// A world whose answers depend on how often it was asked, so each run of a program gets the same.
#[derive(Default)]
pub(crate) struct Counting {
    asked: Cell<u64>,
    /// What it was told that the policy touches, and whether it wrote.
    pub(crate) touched: RefCell<Vec<(usize, bool)>>,
}

impl Counting {
    fn count(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.asked.get()
    }
}

impl World for Counting {
    fn now(&self) -> u64 {
        1_000_000 * self.count()
    }

    fn cpu(&self) -> u32 {
        self.count() as u32 % 5
    }

    fn numa(&self) -> u32 {
        self.count() as u32 % 2
    }

    fn class(&self) -> u32 {
        self.count() as u32 % 3
    }

    fn pid_tgid(&self) -> u64 {
        77 << 32 | 78
    }

    fn tag(&self, tid: u32) -> u64 {
        u64::from(tid).wrapping_mul(0x0001_0001_0001)
    }

    fn prio(&self, tid: u32) -> i32 {
        -((tid % 20) as i32)
    }

    fn touches(&self, address: usize, writes: bool) {
        self.touched.borrow_mut().push((address, writes));
    }
}

#[test]
fn instructions_survive_encoding() {
    let mut random = Random(1);
    let mut decoded = 0;
    while decoded < 2000 {
        let insn = Insn {
            code: random.next() as u8,
            dst: random.below(11) as u8,
            src: random.pick(&[0, 0, 1, 2, 9]),
            off: random.pick(&[0, 0, -8, 40]),
            imm: random.pick(&[0, 0, 1, 16, 64, 0x41, 0xe1, 0xf1, -1]),
        };
        let second = Insn { imm: random.pick(&[0, 8]), ..Insn::default() };
        if let Ok(op) = decode(&[insn, second]) {
            assert_eq!(encode(op)[..], [insn, second][..op.slots()], "{op:?}");
            decoded += 1;
        }
    }
}

/// The first value of the first map, after this question. All engines agree on it, on the answer, and on all maps.
pub(crate) fn both(object: &Object, hook: Hook, context: &Context) -> u64 {
    let interpreted = Loaded::interpreted(object).unwrap();
    let answer = interpreted.ask(hook, context, &Counting::default());
    let bytes = interpreted.maps().bytes();
    if let Some(compiled) = compiled(object) {
        let other = compiled.ask(hook, context, &Counting::default());
        assert_eq!(other.value, answer.value, "{:?}", object.hooks[0].insns);
        assert!(compiled.maps().bytes() == bytes, "{:?}", object.hooks[0].insns);
    }
    let view = View::all(&bytes).next().unwrap();
    u64::from_le_bytes(view.value(0, 0).unwrap()[..8].try_into().unwrap())
}

/// A policy of which an interpreter has found that it does no harm; `None`: there is no compiler here.
pub(crate) fn compiled(object: &Object) -> Option<Loaded> {
    let (depths, longest) = (vec![STACK; object.hooks.len()], vec![0; object.hooks.len()]);
    // SAFETY: our caller knows it.
    HERE.map(|_| unsafe { Loaded::compiled(object, &depths, &longest) }.unwrap())
}
