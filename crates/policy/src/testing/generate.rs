//! Programs by chance that a verifier can accept: registers have types, look-ups are checked, loops have a bound.

mod accesses;

use super::*;
use Operand::{Number, Register};
use lockwright_contract::programs::helpers::{self, Arg};

/// Bytes of the values of the first map, in which programs leave their registers.
const OUT: u32 = 128;
/// The most slots of 8 bytes that a program uses of its stack.
const SLOTS: usize = 24;

/// The maps of each drawn program: one of each kind, and a section of variables.
pub(crate) fn maps() -> Vec<NamedMap> {
    let mut variables = named(".data", MapKind::Array, 4, 32, 1);
    variables.initial = (1..=32).collect();
    vec![
        named("out", MapKind::Array, 4, OUT, 1),
        named("cpus", MapKind::PerCpuArray, 4, 16, 3),
        named("hash", MapKind::Hash, 8, 24, 5),
        named("ring", MapKind::Ring, 0, 0, 4096),
        variables,
        named("array", MapKind::Array, 4, 40, 4),
        named("words", MapKind::Array, 4, 8, 3),
    ]
}

/// A policy with all hooks.
pub(crate) fn policy(random: &mut Random, statements: u64) -> Object {
    let hooks = Hook::ALL.map(|hook| {
        let ops = program(random, hook, statements);
        let insns = ops.iter().flat_map(|op| encode(*op)).collect();
        HookCode { hook, insns, lines: Vec::new() }
    });
    Object { hooks: hooks.into(), maps: maps() }
}

/// A program of about as many statements.
pub(crate) fn program(random: &mut Random, hook: Hook, statements: u64) -> Vec<Op> {
    let mut types = [Type::Nothing; 10];
    types[1] = Type::Context;
    let state = Known { types, slots: [Type::Nothing; SLOTS] };
    let mut drawing = Drawing {
        random,
        maps: maps(),
        ops: Vec::new(),
        at: 0,
        state,
        reserved: Vec::new(),
        mask: ((hook.largest() + 2).next_power_of_two() / 2 - 1) as i32,
    };
    drawing.block(statements, 0);
    drawing.end();
    drawing.ops
}

/// What a register or a slot of the stack has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Nothing,
    Number,
    Context,
    /// This byte of a map's value.
    Value(u32, i32),
}

#[derive(Clone, Copy)]
struct Known {
    types: [Type; 10],
    slots: [Type; SLOTS],
}

impl Known {
    /// What holds whichever way the program came.
    fn meet(self, other: Self) -> Self {
        let meet = |a: Type, b: Type| if a == b { a } else { Type::Nothing };
        Self {
            types: std::array::from_fn(|at| meet(self.types[at], other.types[at])),
            slots: std::array::from_fn(|at| meet(self.slots[at], other.slots[at])),
        }
    }
}

struct Drawing<'a> {
    random: &'a mut Random,
    maps: Vec<NamedMap>,
    ops: Vec<Op>,
    /// The number of instructions so far.
    at: usize,
    state: Known,
    /// Registers that count loops.
    reserved: Vec<u8>,
    mask: i32,
}

/// A branch or jump whose target isn't known yet.
struct Open(usize, usize);

impl Drawing<'_> {
    fn emit(&mut self, op: Op) {
        self.ops.push(op);
        self.at += op.slots();
    }

    fn set(&mut self, register: u8, to: Type) {
        self.state.types[usize::from(register)] = to;
    }

    fn open(&mut self, op: Op) -> Open {
        self.emit(op);
        Open(self.ops.len() - 1, self.at)
    }

    fn close(&mut self, Open(op, from): Open) {
        let to = i16::try_from(self.at - from).unwrap();
        match &mut self.ops[op] {
            Op::Jump { off } | Op::Branch { off, .. } => *off = to,
            _ => unreachable!(),
        }
    }

    /// A register that may be written.
    fn target(&mut self) -> u8 {
        loop {
            let register = self.random.below(10) as u8;
            if !self.reserved.contains(&register) {
                return register;
            }
        }
    }

    fn having(&self, is: impl Fn(Type) -> bool) -> Vec<u8> {
        (0..10).filter(|at| is(self.state.types[usize::from(*at)])).collect()
    }

    /// A register with a number; made, if there is none.
    fn number(&mut self) -> u8 {
        let all = self.having(|is| is == Type::Number);
        if all.is_empty() || self.random.one_in(12) {
            let register = self.target();
            let drawn = self.random.number();
            self.emit(number(register, drawn));
            self.set(register, Type::Number);
            return register;
        }
        self.random.pick(&all)
    }

    /// A register with a number that may be written.
    fn own_number(&mut self) -> u8 {
        loop {
            let register = self.number();
            if !self.reserved.contains(&register) {
                return register;
            }
            let register = self.target();
            let drawn = self.random.number() as i32;
            self.emit(mov(register, drawn));
            self.set(register, Type::Number);
        }
    }

    fn operand(&mut self) -> Operand {
        if self.random.one_in(2) {
            Register(self.number())
        } else {
            Number(self.random.number() as i32)
        }
    }

    fn size(&mut self) -> u8 {
        self.random.pick(&[1, 2, 4, 8])
    }

    fn block(&mut self, statements: u64, depth: u32) {
        let count = 1 + statements / 2 + self.random.below(statements / 2 + 1);
        for _ in 0..count {
            self.statement(statements / 2, depth);
        }
    }

    fn statement(&mut self, inner: u64, depth: u32) {
        match self.random.below(24) {
            0..=6 => self.arithmetic(),
            7 => self.constant(),
            8 => self.load_context(),
            9 | 10 => self.spill(),
            11 | 12 => self.fill(),
            13 | 14 => self.lookup(),
            15 => self.change_map(),
            16 => self.ask_world(),
            17 | 18 => self.access_value(),
            19 => self.variable(),
            20 => self.copy(),
            21 | 22 if depth < 3 => self.choice(inner, depth),
            23 if depth < 2 => self.repetition(inner, depth),
            _ => self.arithmetic(),
        }
    }

    fn arithmetic(&mut self) {
        let dst = self.own_number();
        let wide = self.random.one_in(2);
        let op = match self.random.below(16) {
            0 => Op::Neg { wide, dst },
            1 => {
                let big = self.random.one_in(2);
                Op::Swap { big, bits: self.random.pick(&[16, 32, 64]), dst }
            }
            _ => {
                let alu = self.random.pick(&ALUS);
                let mut operand = self.operand();
                if let (Alu::Lsh | Alu::Rsh | Alu::Arsh, Number(count)) = (alu, &mut operand) {
                    *count &= if wide { 63 } else { 31 };
                }
                // The kernel's verifier refuses a constant zero.
                if let (Alu::Div | Alu::Mod, Number(divisor @ 0)) = (alu, &mut operand) {
                    *divisor = 7;
                }
                Op::Alu { alu, wide, dst, operand }
            }
        };
        // `operand` may have made `dst`'s register anew, but it is a number still.
        self.emit(op);
    }

    fn constant(&mut self) {
        let dst = self.target();
        let drawn = self.random.number();
        let small = mov(dst, drawn as i32);
        let op = if self.random.one_in(2) { number(dst, drawn) } else { small };
        self.emit(op);
        self.set(dst, Type::Number);
    }

    fn copy(&mut self) {
        let from = self.having(|is| is != Type::Nothing);
        if from.is_empty() {
            return;
        }
        let (dst, src) = (self.target(), self.random.pick(&from));
        self.emit(copy(dst, src));
        self.set(dst, self.state.types[usize::from(src)]);
    }

    fn load_context(&mut self) {
        let from = self.having(|is| is == Type::Context);
        if from.is_empty() {
            return;
        }
        let (src, dst, size) = (self.random.pick(&from), self.target(), self.size());
        let places = (size_of::<Context>() as u64 - 8) / u64::from(size);
        let off = 8 + self.random.below(places) as i16 * i16::from(size);
        self.emit(load(size, dst, src, off));
        self.set(dst, Type::Number);
    }

    fn slot(&mut self) -> (usize, i16) {
        let slot = self.random.below(SLOTS as u64) as usize;
        (slot, -8 * (slot as i16 + 1))
    }

    fn spill(&mut self) {
        let (slot, off) = self.slot();
        let size = self.size();
        if size < 8 && self.state.slots[slot] == Type::Number {
            let off = off + self.random.below(u64::from(8 / size)) as i16 * i16::from(size);
            let src = self.number();
            let drawn = self.random.number() as i32;
            let op = if self.random.one_in(2) {
                store(size, 10, off, src)
            } else {
                put(size, 10, off, drawn)
            };
            self.emit(op);
            return;
        }
        let all = self.having(|is| {
            // A loop's body must leave numbers where it found them.
            is == Type::Number || self.reserved.is_empty() && is != Type::Nothing
        });
        if all.is_empty() {
            let drawn = self.random.number() as i32;
            self.emit(put(8, 10, off, drawn));
            self.state.slots[slot] = Type::Number;
        } else {
            let src = self.random.pick(&all);
            self.emit(store(8, 10, off, src));
            self.state.slots[slot] = self.state.types[usize::from(src)];
        }
    }

    fn fill(&mut self) {
        let (slot, off) = self.slot();
        let dst = self.target();
        match self.state.slots[slot] {
            Type::Nothing => {}
            Type::Number => {
                let size = self.size();
                let off = off + self.random.below(u64::from(8 / size)) as i16 * i16::from(size);
                self.emit(load(size, dst, 10, off));
                self.set(dst, Type::Number);
            }
            pointer => {
                self.emit(load(8, dst, 10, off));
                self.set(dst, pointer);
            }
        }
    }

    fn condition(&mut self) -> Op {
        let (dst, operand) = (self.number(), self.operand());
        let wide = self.random.one_in(2);
        Op::Branch { condition: self.random.pick(&CONDITIONS), wide, dst, operand, off: 0 }
    }

    fn choice(&mut self, inner: u64, depth: u32) {
        let condition = self.condition();
        let first = self.open(condition);
        let before = self.state;
        self.block(inner, depth + 1);
        if self.random.one_in(6) {
            let register = self.number();
            self.emit(copy(0, register));
            self.emit(alu(Alu::And, 0, Number(self.mask)));
            self.emit(Op::Exit);
            self.close(first);
            self.state = before;
        } else if self.random.one_in(2) {
            let over = self.open(Op::Jump { off: 0 });
            let one = self.state;
            self.close(first);
            self.state = before;
            self.block(inner, depth + 1);
            self.close(over);
            self.state = self.state.meet(one);
        } else {
            self.close(first);
            self.state = self.state.meet(before);
        }
    }

    fn repetition(&mut self, inner: u64, depth: u32) {
        let counter = self.random.pick(&[6, 7, 8, 9]);
        if self.reserved.contains(&counter) {
            return;
        }
        let turns = 1 + self.random.below(4) as i32;
        self.emit(mov(counter, turns));
        self.set(counter, Type::Number);
        // Around the loop go numbers only.
        let forget = |is: &mut Type| {
            if *is != Type::Number {
                *is = Type::Nothing;
            }
        };
        self.state.types.iter_mut().for_each(forget);
        self.state.slots.iter_mut().for_each(forget);
        let (head, from) = (self.state, self.at);
        self.reserved.push(counter);
        self.block(inner.min(3), depth + 1);
        self.reserved.pop();
        for register in 0..10 {
            let at = usize::from(register);
            if head.types[at] == Type::Number && self.state.types[at] != Type::Number {
                self.emit(mov(register, 1));
                self.set(register, Type::Number);
            }
        }
        self.emit(alu(Alu::Sub, counter, Number(1)));
        let back = i16::try_from(self.at + 1 - from).unwrap();
        self.emit(branch(Condition::Ne, counter, Number(0), -back));
    }

    /// Leaves the registers with numbers in the first map, and answers.
    fn end(&mut self) {
        let register = self.number();
        let base = if register == 5 { 4 } else { 5 };
        self.emit(value(base, 0));
        for register in self.having(|is| is == Type::Number) {
            if register != base {
                self.emit(store(8, base, i16::from(register) * 8, register));
            }
        }
        self.emit(copy(0, register));
        self.emit(alu(Alu::And, 0, Number(self.mask)));
        self.emit(Op::Exit);
    }
}

#[test]
fn drawn_programs_stay_within_their_bounds() {
    let mut random = Random(7);
    let (mut answers, mut insns, mut long) = (0, 0, 0);
    for _ in 0..200 {
        let object = policy(&mut random, 16);
        let interpreter = interpreter(&object);
        for hook in &object.hooks {
            let context = random.context();
            match interpreter.ask(hook.hook, &context, &Counting::default()) {
                Ok(answer) => {
                    answers += 1;
                    insns += answer.insns;
                    long += u32::from(answer.insns > 100);
                }
                Err(escape) => panic!("{escape}\n{:#?}", hook.insns),
            }
        }
    }
    // They are not all trivial.
    assert!(answers == 200 * 8 && insns > 50 * answers && long > 50, "{answers} {insns} {long}");
}
