//! Policies in this process, by both engines.

use super::*;
use crate::op::{Alu, Condition, Op, Operand};
use crate::testing::*;
use crate::verify::verify;
use lockwright_contract::programs::helpers::NOW;
use lockwright_contract::programs::maps::{MapKind, View};

/// Counts its questions, and answers by the clock: 1 after 2 ms.
fn counting() -> Object {
    let ops = [
        value(6, 0),
        mov(7, 1),
        Op::Atomic {
            atomic: crate::op::Atomic::Add,
            fetch: false,
            wide: true,
            dst: 6,
            off: 0,
            src: 7,
        },
        call(NOW),
        copy(6, 0),
        mov(0, 0),
        branch(Condition::Le, 6, Operand::Number(2_000_000), 1),
        mov(0, 1),
        Op::Exit,
    ];
    object(Hook::CmpNode, &ops, &[named(".bss", MapKind::Array, 4, 8, 1)])
}

fn engines() -> Vec<Engine> {
    if crate::jit::HERE.is_some() {
        vec![Engine::Interpreter, Engine::Jit]
    } else {
        vec![Engine::Interpreter]
    }
}

fn count(loaded: &Loaded) -> u64 {
    let bytes = loaded.maps().bytes();
    let view = View::all(&bytes).next().unwrap();
    u64::from_le_bytes(view.value(0, 0).unwrap().try_into().unwrap())
}

#[test]
fn maps_and_the_world_are_the_same_to_each_engine() {
    let verified = verify(counting()).unwrap();
    for engine in engines() {
        let loaded = Loaded::new(&verified, engine).unwrap();
        assert_eq!(loaded.hooks(), Hook::CmpNode.bit());
        let (context, world) = (Context::default(), Counting::default());
        let answers: Vec<u64> =
            (0..4).map(|_| loaded.ask(Hook::CmpNode, &context, &world).value).collect();
        assert_eq!((answers, count(&loaded)), (vec![0, 0, 1, 1], 4));
        // A hook that it doesn't have answers nothing, and takes nothing.
        assert_eq!(loaded.ask(Hook::RwBias, &context, &world), Answer::default());
    }
}

#[test]
fn an_interpreted_answer_says_how_many_instructions_it_took() {
    let verified = verify(counting()).unwrap();
    let longest = verified.reports()[0].longest;
    for engine in engines() {
        let loaded = Loaded::new(&verified, engine).unwrap();
        let (context, world) = (Context::default(), Counting::default());
        let ask = || loaded.ask(Hook::CmpNode, &context, &world).insns;
        let insns = [ask(), ask(), ask()];
        match engine {
            Engine::Interpreter => assert_eq!(insns, [8, 8, 9]),
            Engine::Jit => assert_eq!(insns, [longest; 3]),
        }
    }
}

#[test]
fn a_loaded_policy_may_go_to_another_thread() {
    let verified = verify(counting()).unwrap();
    for engine in engines() {
        let loaded = Loaded::new(&verified, engine).unwrap();
        let thread = std::thread::spawn(move || {
            loaded.ask(Hook::CmpNode, &Context::default(), &Counting::default());
            count(&loaded)
        });
        assert_eq!(thread.join().unwrap(), 1);
    }
}

/// A world that asks another policy before it answers.
struct Nested<'a>(&'a Loaded, Counting);

impl World for Nested<'_> {
    fn now(&self) -> u64 {
        let inner = Counting::default();
        self.0.ask(Hook::CmpNode, &Context::default(), &inner);
        self.1.now()
    }

    fn cpu(&self) -> u32 {
        0
    }

    fn numa(&self) -> u32 {
        0
    }

    fn class(&self) -> u32 {
        0
    }

    fn pid_tgid(&self) -> u64 {
        0
    }

    fn tag(&self, _: u32) -> u64 {
        0
    }

    fn prio(&self, _: u32) -> i32 {
        0
    }
}

#[test]
fn a_question_within_a_question_has_its_own_world() {
    let verified = verify(counting()).unwrap();
    for engine in engines() {
        let (outer, inner) = (Loaded::new(&verified, engine), Loaded::new(&verified, engine));
        let (outer, inner) = (outer.unwrap(), inner.unwrap());
        let world = Nested(&inner, Counting::default());
        let answers: Vec<u64> =
            (0..3).map(|_| outer.ask(Hook::CmpNode, &Context::default(), &world).value).collect();
        assert_eq!((answers, count(&outer), count(&inner)), (vec![0, 0, 1], 3, 3));
    }
}

#[test]
fn code_is_never_writable_and_executable() {
    if crate::jit::HERE.is_none() {
        return;
    }
    let verified = verify(counting()).unwrap();
    let loaded = Loaded::new(&verified, Engine::Jit).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours: Vec<&str> = maps.lines().filter(|line| line.contains("lockwright-policy")).collect();
    assert!(!ours.is_empty() && ours.iter().all(|line| line.contains("r-xp")), "{ours:?}");
    drop(loaded);
}

#[test]
fn a_first_value_is_the_objects() {
    let ops = [value(1, 0), load(4, 0, 1, 4), alu(Alu::And, 0, Operand::Number(1)), Op::Exit];
    let mut map = named(".data", MapKind::Array, 4, 8, 1);
    map.initial = vec![9, 0, 0, 0, 1, 0, 0, 0];
    let verified = verify(object(Hook::SkipShuffle, &ops, &[map])).unwrap();
    for engine in engines() {
        let loaded = Loaded::new(&verified, engine).unwrap();
        let answer = loaded.ask(Hook::SkipShuffle, &Context::default(), &Counting::default());
        assert_eq!((answer.value, count(&loaded)), (1, 1 << 32 | 9));
    }
}

#[test]
fn what_a_hook_costs_is_measured() {
    let costs = crate::cost(&verify(counting()).unwrap()).unwrap();
    let [cost] = costs[..] else { panic!("{costs:?}") };
    assert_eq!(cost.hook, Hook::CmpNode);
    assert!(cost.median_ns > 0.0 && cost.worst_ns >= cost.median_ns && cost.worst_ns.is_finite());
}
