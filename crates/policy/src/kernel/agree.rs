//! Does the kernel's verifier accept what ours accepts? And why not?

use super::{Refusal, Unavailable, Why, load, make, probe, translate};
use crate::object::{HookCode, Insn, NamedMap, Object};
use crate::shipped::shipped;
use crate::testing::{Random, encode, generate};
use crate::verify::verify;
use lockwright_platform::hooks::Hook;
use std::collections::BTreeMap;
use std::env;
use std::os::fd::OwnedFd;

/// Programs to ask about, of those that are drawn and of those that are changed; the soak asks about more.
const PROGRAMS: u64 = 200;
/// The kernel agrees with this share of our accepts, at least.
const SHARE: f64 = 0.95;

/// Where we may not ask, a test says so.
fn may_ask() -> bool {
    match probe() {
        Ok(()) => true,
        Err(why @ (Unavailable::Denied | Unavailable::Missing)) => {
            println!("skipped: {why}");
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn programs() -> u64 {
    env::var("LOCKWRIGHT_KERNEL_PROGRAMS").map_or(PROGRAMS, |count| count.parse().unwrap())
}

/// The kernel's answers to programs that ours accepts.
#[derive(Default)]
struct Agreement {
    asked: u64,
    /// How many of each class it refuses, with the first of them.
    refused: BTreeMap<Why, (u64, Refusal, Vec<Insn>)>,
}

impl Agreement {
    /// Asks about a program that ours accepts.
    fn ask(&mut self, insns: &[Insn], maps: &[OwnedFd]) {
        self.asked += 1;
        if let Err(refusal) = load(&translate(insns, maps)).unwrap() {
            let new = || (0, refusal.clone(), insns.to_vec());
            self.refused.entry(refusal.why).or_insert_with(new).0 += 1;
        }
    }

    /// The share with which it agrees.
    fn share(&self) -> f64 {
        let refused: u64 = self.refused.values().map(|(count, ..)| count).sum();
        1.0 - refused as f64 / self.asked.max(1) as f64
    }

    fn tell(&self, what: &str) {
        println!(
            "{what}: {} accepted by ours, {:.2} % by the kernel",
            self.asked,
            100.0 * self.share()
        );
        for (why, (count, first, insns)) in &self.refused {
            println!("  {why:<16} {count:>7}: {}", first.reason);
            for line in &first.log {
                println!("      {line}");
            }
            if env::var_os("LOCKWRIGHT_KERNEL_PROGRAMS").is_some() {
                println!("      {insns:?}");
            }
        }
    }
}

/// Does our verifier accept it?
fn accepts(hook: Hook, insns: &[Insn], maps: &[NamedMap]) -> bool {
    let hooks = vec![HookCode { hook, insns: insns.to_vec(), lines: Vec::new() }];
    verify(Object { hooks, maps: maps.to_vec() }).is_ok()
}

fn made(maps: &[NamedMap]) -> Vec<OwnedFd> {
    maps.iter().map(|map| make(map).unwrap()).collect()
}

#[test]
fn the_kernel_accepts_the_policies_that_we_ship() {
    if !may_ask() {
        return;
    }
    for policy in shipped() {
        let verified = verify(Object::read(policy.object).unwrap()).unwrap();
        for verdict in super::check(&verified).unwrap() {
            assert_eq!(verdict.refusal, None, "{}: {}", policy.name, verdict.hook.name());
        }
    }
}

#[test]
fn the_kernel_accepts_what_is_drawn() {
    if !may_ask() {
        return;
    }
    let (mut agreement, mut random) = (Agreement::default(), Random(1));
    let named = generate::maps();
    let maps = made(&named);
    while agreement.asked < programs() {
        let statements = 4 + random.below(24);
        let hook = random.pick(&Hook::ALL);
        let ops = generate::program(&mut random, hook, statements);
        let insns: Vec<Insn> = ops.iter().flat_map(|op| encode(*op)).collect();
        if accepts(hook, &insns, &named) {
            agreement.ask(&insns, &maps);
        }
    }
    agreement.tell("drawn programs");
    assert!(agreement.share() >= SHARE);
}

#[test]
fn the_kernel_accepts_what_is_left_of_changed_programs() {
    if !may_ask() {
        return;
    }
    let mut random = Random(2);
    let mut seeds: Vec<Object> =
        shipped().iter().map(|ours| Object::read(ours.object).unwrap()).collect();
    seeds.extend((0..8).map(|_| generate::policy(&mut random, 12)));
    let maps: Vec<Vec<OwnedFd>> = seeds.iter().map(|seed| made(&seed.maps)).collect();
    let mut agreement = Agreement::default();
    while agreement.asked < programs() {
        let seed = random.below(seeds.len() as u64) as usize;
        let code = &seeds[seed].hooks[random.below(seeds[seed].hooks.len() as u64) as usize];
        let insns = changed(&code.insns, &mut random);
        if insns != code.insns && accepts(code.hook, &insns, &seeds[seed].maps) {
            agreement.ask(&insns, &maps[seed]);
        }
    }
    agreement.tell("changed programs");
    assert!(agreement.share() >= SHARE);
}

/// A program with one to three changes.
fn changed(insns: &[Insn], random: &mut Random) -> Vec<Insn> {
    let mut insns = insns.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(insns.len() as u64) as usize;
        let other = insns[random.below(insns.len() as u64) as usize];
        let insn = &mut insns[at];
        match random.below(9) {
            0 => insn.code = other.code,
            1 => insn.code ^= 1 << random.below(8),
            2 => insn.dst = random.below(11) as u8,
            3 => insn.src = random.below(11) as u8,
            4 => insn.off = insn.off.wrapping_add(random.below(17) as i16 - 8),
            5 => insn.imm = random.number() as i32,
            6 => insn.imm = insn.imm.wrapping_add(random.below(17) as i32 - 8),
            7 => *insn = other,
            _ if insns.len() > 2 => drop(insns.remove(at)),
            _ => {}
        }
    }
    insns
}
