//! Does the kernel's verifier accept what ours accepts? And why not?

use super::{Refusal, Unavailable, Why, check, probe};
use crate::object::Object;
use crate::shipped::shipped;
use crate::testing::Random;
use crate::verify::tests::fuzz::{Seeds, shown};
use crate::verify::verify;
use std::collections::BTreeMap;
use std::env;

/// Programs to ask about; the soak asks about more.
const PROGRAMS: u64 = 300;
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

#[test]
fn the_kernel_accepts_the_policies_that_we_ship() {
    if !may_ask() {
        return;
    }
    for policy in shipped() {
        let verified = verify(Object::read(policy.object).unwrap()).unwrap();
        for verdict in check(&verified).unwrap() {
            assert_eq!(verdict.refusal, None, "{}: {}", policy.name, verdict.hook.name());
        }
    }
}

#[test]
fn the_kernel_accepts_what_is_drawn() {
    if !may_ask() {
        return;
    }
    let (mut random, seeds) = (Random(99), Seeds::new());
    let (mut asked, mut refused) = (0, 0);
    // How many it refuses of each class, with the first of them.
    let mut classes: BTreeMap<Why, (u64, Refusal, String)> = BTreeMap::new();
    while asked < programs() {
        let Object { hooks, maps } = seeds.draw(&mut random);
        for code in hooks {
            let alone = Object { hooks: vec![code], maps: maps.clone() };
            let Ok(verified) = verify(alone) else { continue };
            asked += 1;
            for refusal in check(&verified).unwrap().into_iter().filter_map(|one| one.refusal) {
                refused += 1;
                let first = || (0, refusal.clone(), shown(verified.object()));
                classes.entry(refusal.why).or_insert_with(first).0 += 1;
            }
        }
    }
    println!("the kernel refuses {refused} of {asked} programs that ours accepts");
    for (why, (count, first, text)) in &classes {
        println!(
            "{count} times {why} ({}), first:\n{}\nthe kernel: {}",
            first.reason,
            text,
            first.log.join("\n  ")
        );
    }
    let share = 1.0 - f64::from(refused) / asked as f64;
    assert!(share >= SHARE, "it agrees with {:.1} %", 100.0 * share);
}
