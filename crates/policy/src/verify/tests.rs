//! Programs that must be rejected, programs that must be accepted, and programs by chance.

mod assemble;
pub(crate) mod fuzz;

use super::*;
use crate::object::{HookCode, NamedMap};
use crate::testing::{Counting, Random, interpreter, named};
use lockwright_contract::programs::maps::MapKind;
use lockwright_platform::hooks::{CLOCK, LENGTHS, READS, THREADS, WAITERS};

/// The maps of the programs in `bad.txt` and `good.txt`.
fn maps() -> Vec<NamedMap> {
    vec![
        named("array", MapKind::Array, 4, 16, 4),
        named("hash", MapKind::Hash, 8, 32, 64),
        named("ring", MapKind::Ring, 0, 0, 4096),
        named("cpus", MapKind::PerCpuArray, 4, 64, 2),
        named("var", MapKind::Array, 4, 64, 1),
    ]
}

/// A program of a corpus: its name, what is expected of it, and itself.
struct Program<'a> {
    name: &'a str,
    expected: &'a str,
    object: Object,
}

fn corpus(text: &str) -> impl Iterator<Item = Program<'_>> {
    text.split("\n== ").skip(1).map(|text| {
        let (head, code) = text.split_once('\n').unwrap();
        let (name, expected) = head.split_once(" | ").unwrap();
        let (expected, hook) = expected.split_once(' ').unwrap_or((expected, "cmp_node"));
        let hook = Hook::ALL.into_iter().find(|one| one.name() == hook).unwrap();
        let insns = assemble::assemble(code, &maps());
        let code = HookCode { hook, insns, lines: Vec::new() };
        Program { name, expected, object: Object { hooks: vec![code], maps: maps() } }
    })
}

#[test]
fn bad_programs_are_rejected_for_their_reason() {
    let (mut wrong, mut count) = (String::new(), 0);
    for Program { name, expected, object } in corpus(include_str!("tests/bad.txt")) {
        count += 1;
        match verify(object) {
            Ok(_) => wrong += &format!("{name}: accepted\n"),
            Err(rejected) => {
                let [complaint] = rejected.complaints() else { panic!("one hook") };
                if format!("{:?}", complaint.fault) != expected {
                    wrong += &format!("{name}: not {expected}, but {complaint:?}\n");
                }
                let text = rejected.to_string();
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                let is_list = complaint.fault == Fault::Helper;
                if widest > 80 && !is_list {
                    wrong += &format!("{name}: {widest} columns\n{text}\n");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 130, "{count}");
}

#[test]
fn good_programs_are_accepted_and_keep_their_word() {
    let (mut wrong, mut count) = (String::new(), 0);
    let mut random = Random(5);
    for Program { name, expected, object } in corpus(include_str!("tests/good.txt")) {
        count += 1;
        let hook = object.hooks[0].hook;
        let verified = match verify(object) {
            Ok(verified) => verified,
            Err(rejected) => {
                wrong += &format!("{name}: {rejected}\n");
                continue;
            }
        };
        let longest = verified.reports()[0].longest;
        if longest.to_string() != expected {
            wrong += &format!("{name}: {longest} instructions, not {expected}\n");
        }
        let interpreter = interpreter(verified.object());
        for _ in 0..50 {
            match interpreter.ask(hook, &random.context(), &Counting::default()) {
                Ok(answer) => assert!(answer.insns <= longest, "{name}: {answer:?}"),
                Err(escape) => panic!("{name}: {escape}"),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 25, "{count}");
}

fn one_hook(text: &str) -> Object {
    let insns = assemble::assemble(text, &maps());
    let code = HookCode { hook: Hook::CmpNode, insns, lines: Vec::new() };
    Object { hooks: vec![code], maps: maps() }
}

/// Branches on numbers of which nothing is known, each of which leaves a mark: each doubles the number of paths.
fn branches(count: usize) -> Object {
    let branch = |at: usize| {
        format!(
            "r2 = *(u64 *)(r1 + 32)\nif r2 == {at} goto l{at}\nr0 |= {}\n*(u64 *)(r10 - {}) = r2\nl{at}:\n",
            1_u32 << at,
            8 * at + 8
        )
    };
    let all: String = (0..count).map(branch).collect();
    one_hook(&format!("r0 = 0\n{all}r0 &= 1\nexit"))
}

#[test]
fn too_many_paths_are_given_up() {
    verify(branches(12)).unwrap();
    // More: not every path is followed by itself then.
    assert_eq!(verify(branches(30)).unwrap().reports()[0].longest, 123);
    // In a loop constants are not taken together, as they may count.
    let marks = "r0 = 0\nr3 = 1\nagain:\nr2 = *(u64 *)(r1 + 32)\nif r2 == 5 goto skip\nr0 |= r3\nskip:\n\
                 r3 <<= 1\nif r3 < 16777216 goto again\nr0 &= 1\nexit";
    let rejected = verify(one_hook(marks)).unwrap_err();
    assert_eq!(rejected.complaints()[0].fault, Fault::Complex);
}

#[test]
fn a_hook_may_have_4096_instructions() {
    let long = |count: usize| one_hook(&("r0 = 0\n".repeat(count - 1) + "exit"));
    assert_eq!(verify(long(4096)).unwrap().reports()[0].longest, 4096);
    let rejected = verify(long(4097)).unwrap_err();
    assert_eq!(rejected.complaints()[0].fault, Fault::Length);
}

#[test]
fn what_a_policy_reads_is_known() {
    let what = |code: &str| {
        let insns = assemble::assemble(code, &maps());
        let code = HookCode { hook: Hook::CmpNode, insns, lines: Vec::new() };
        verify(Object { hooks: vec![code], maps: maps() }).unwrap().hooks() & READS
    };
    let reads = |code: &str| what(code) & LENGTHS != 0;
    // curr's, through a pointer: as clang writes it if a policy chooses between two threads.
    assert!(reads("r1 += 208\nr2 = *(u64 *)(r1 + 40)\nr0 = 0\nexit"));
    // Half of the lock's.
    assert!(reads("r2 = *(u32 *)(r1 + 44)\nr0 = 0\nexit"));
    // What stands beside it, and the same distance in other memory.
    assert!(!reads("r2 = *(u64 *)(r1 + 32)\nr2 = *(u64 *)(r1 + 48)\nr0 = 0\nexit"));
    assert!(!reads("r2 = map var value + 0\nr2 = *(u64 *)(r2 + 40)\nr0 = 0\nexit"));
    // The lock, its kind, the round, the batch; then the count, the clock, the first and the last byte of a thread.
    assert_eq!(
        what("r2 = *(u64 *)(r1 + 8)\nr2 = *(u64 *)(r1 + 16)\nr2 = *(u32 *)(r1 + 24)\nr0 = 0\nexit"),
        0
    );
    assert_eq!(what("r2 = *(u8 *)(r1 + 31)\nr0 = 0\nexit"), WAITERS);
    assert_eq!(what("r2 = *(u64 *)(r1 + 24)\nr0 = 0\nexit"), WAITERS);
    assert_eq!(what("r2 = *(u32 *)(r1 + 36)\nr0 = 0\nexit"), CLOCK);
    assert_eq!(what("r2 = *(u8 *)(r1 + 48)\nr0 = 0\nexit"), THREADS);
    assert_eq!(what("r2 = *(u8 *)(r1 + 287)\nr0 = 0\nexit"), THREADS);
}
