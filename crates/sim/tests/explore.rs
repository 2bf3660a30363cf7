//! Explorations: no lock of the catalogue breaks a rule, and every kind of fault would be noticed. Everything is
//! seeded: the schedules are the same each time.

use lockwright_locks::catalog::{CATALOG, DELEGATED, READ_WRITE, all};
use lockwright_locks::entry::Kind;
use lockwright_locks::spec::GLIBC;
use lockwright_sim::LockSpec;
use lockwright_sim::explore::{
    Exploration, Hit, Mutant, Mutation, Op, RUNTIME, Search, Site, Strategy, Subject,
    why_it_survives,
};
use std::time::Duration;

fn every_lock() -> impl Iterator<Item = &'static str> {
    all().chain(LockSpec::published()).map(|entry| entry.id).chain([GLIBC])
}

fn exploration(lock: &str, mutant: Option<Mutant>) -> Exploration {
    Exploration::new(Subject::parse(lock).unwrap(), mutant)
}

fn search(lock: &str, mutant: Option<Mutant>, schedules: u64) -> Option<Hit> {
    let search = Search {
        strategy: None,
        first: 0,
        schedules,
        time: Duration::MAX,
        jobs: 2,
        stop: || false,
    };
    let (tally, hit) = search.run(&exploration(lock, mutant));
    assert!(hit.is_some() || tally.schedules == schedules, "{lock}: {tally:?}");
    hit
}

/// All mutants of the lock's hand-over that are not known to be harmless.
fn hand_over_mutants(lock: &str) -> impl Iterator<Item = (Site, Mutant)> {
    let sites = exploration(lock, None).sites(2_000);
    assert!(!sites.is_empty(), "{lock}");
    let all = sites.into_iter().flat_map(|site| site.mutants().into_iter().map(move |m| (site, m)));
    all.filter(move |(site, mutant)| {
        site.hands_over(mutant.mutation) && why_it_survives(lock, site, mutant.mutation).is_none()
    })
}

#[test]
fn no_schedule_of_any_lock_breaks_a_rule() {
    for lock in every_lock() {
        let hit = search(lock, None, 1_500);
        assert!(hit.is_none(), "{lock}: {hit:#?}");
    }
}

#[test]
fn no_schedule_of_the_runtime_with_several_locks_breaks_a_rule() {
    let hit = search(RUNTIME, None, 6_000);
    assert!(hit.is_none(), "{hit:#?}");
}

fn of_kind(kind: Kind) -> impl Iterator<Item = &'static str> {
    CATALOG.iter().filter(move |entry| entry.kind == kind).map(|entry| entry.id)
}

#[test]
fn every_fault_of_a_textbook_locks_hand_over_is_found() {
    for lock in of_kind(Kind::Whole) {
        let mut mutants = 0;
        for (site, mutant) in hand_over_mutants(lock) {
            mutants += 1;
            assert!(search(lock, Some(mutant), 60_000).is_some(), "{lock}: {mutant}, {site:?}");
        }
        assert!(mutants >= 4, "{lock}: {mutants}");
    }
}

/// Mailboxes count as a part of each lock that has them.
#[test]
fn every_fault_of_a_delegated_locks_hand_over_is_found() {
    for entry in DELEGATED.iter().filter(|entry| entry.preset_of.is_none()) {
        let mut mutants = 0;
        for (site, mutant) in hand_over_mutants(entry.id) {
            mutants += 1;
            let hit = search(entry.id, Some(mutant), 100_000);
            assert!(hit.is_some(), "{}: {mutant}, {site:?}", entry.id);
        }
        assert!(mutants >= 4, "{}: {mutants}", entry.id);
    }
}

/// Faults of the lock below it count as that lock's own: two of them are rarer here.
#[test]
fn every_fault_of_a_readers_writer_locks_hand_over_is_found() {
    for entry in READ_WRITE.iter().filter(|entry| entry.preset_of.is_none()) {
        let file = format!("rw/{}.rs", entry.id.replace('-', "_"));
        let is_own = |site: &Site| match (entry.id, site.place.file) {
            ("rwlock", "rw/waiting.rs") | ("programmed-rw", "rw/biased.rs") => true,
            (_, own) => own == file,
        };
        let mut mutants = 0;
        for (site, mutant) in hand_over_mutants(entry.id).filter(|(site, _)| is_own(site)) {
            mutants += 1;
            // A reader that passes a woken writer without a Release: one schedule in 30,000.
            let hit = search(entry.id, Some(mutant), 200_000);
            assert!(hit.is_some(), "{}: {mutant}, {site:?}", entry.id);
        }
        assert!(mutants >= 8, "{}: {mutants}", entry.id);
    }
}

#[test]
fn every_fault_of_a_front_locks_wakes_and_fast_path_is_found_and_without_assertions_every_other() {
    let mut behind = 0;
    for lock in of_kind(Kind::Front).chain([GLIBC]) {
        let (mut wakes, mut orderings) = (0, 0);
        for (site, mutant) in hand_over_mutants(lock) {
            let wakes_head =
                mutant.mutation == Mutation::NoWake && site.place.file == "front/word.rs";
            // Taking the word, and giving it back.
            let is_fast_path = site.place.file == "front/word.rs" && site.op == Op::CompareExchange;
            // The line's fault: a holder that was told of a sleeper behind it wakes that sleeper.
            let wakes_behind = site.place.file == "front/grant.rs"
                && (mutant.mutation == Mutation::NoWake || site.op == Op::And);
            // The lock's own assertions, if compiled in, would stop the program at some of the others.
            if wakes_head || is_fast_path || wakes_behind || !cfg!(debug_assertions) {
                // The wake that a torn waiter passes on is needed in one schedule of thousands. The wake of a waiter
                // behind a lock that is granted to nobody (`malthusian`) is needed in one of 70,000.
                assert!(
                    search(lock, Some(mutant), 500_000).is_some(),
                    "{lock}: {mutant}, {site:?}"
                );
            }
            wakes += u32::from(wakes_head);
            orderings += u32::from(is_fast_path);
            behind += u32::from(wakes_behind);
        }
        assert!(wakes >= 1 && orderings >= 2, "{lock}: {wakes} wakes, {orderings} orderings");
    }
    assert!(behind >= 2, "of the locks that grant: {behind}");
}

/// The first mutant of this kind that the lock has, and the finding.
fn found(lock: &str, mutation: Mutation, file: &str) -> (Mutant, Hit) {
    let is_meant =
        |(site, one): &(Site, Mutant)| one.mutation == mutation && site.place.file == file;
    let (_, mutant) = hand_over_mutants(lock).find(is_meant).unwrap();
    (mutant, search(lock, Some(mutant), 6_000).unwrap())
}

#[test]
fn a_finding_says_what_it_is_and_its_seed_gives_it_again() {
    for (lock, mutation, file, check) in [
        ("mcs-stp", Mutation::NoWake, "block/mcs_stp.rs", "lost wake-up"),
        ("mcs-stp", Mutation::NoCompare, "block/mcs_stp.rs", "lost wake-up"),
        ("ticket", Mutation::NoStore, "spin/ticket.rs", "lost wake-up"),
        (
            "ticket",
            Mutation::Order(lockwright_platform::Ordering::Relaxed),
            "spin/ticket.rs",
            "happens-before",
        ),
    ] {
        let (mutant, hit) = found(lock, mutation, file);
        assert_eq!(hit.finding.violation.check(), check, "{mutant}");
        assert!(hit.finding.story.len() > 3, "{hit:?}");
        let again = exploration(lock, Some(mutant));
        for _ in 0..2 {
            assert_eq!(again.schedule(hit.strategy, hit.seed).finding.as_ref(), Some(&hit.finding));
        }
        let healthy = exploration(lock, None).schedule(hit.strategy, hit.seed);
        assert_eq!(healthy.finding, None);
    }
}

#[test]
fn a_deadlock_names_who_waits_for_which_word_and_where() {
    let (_, hit) = found("mcs-stp", Mutation::NoWake, "block/mcs_stp.rs");
    let text = hit.finding.violation.to_string();
    assert!(
        text.contains("sleeps on waiters' word") && text.contains("block/mcs_stp.rs:"),
        "{text}"
    );
}

#[test]
fn schedules_differ_by_seed_and_by_strategy() {
    let mcs = exploration("mcs", None);
    let of = |strategy| (0..50).map(|seed| mcs.schedule(strategy, seed).path).collect::<Vec<_>>();
    let (random, pct) = (of(Strategy::Random), of(Strategy::Pct));
    assert_eq!(random, of(Strategy::Random));
    assert_ne!(random, pct);
    let mut different = random;
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 30, "{}", different.len());
}

#[test]
fn mutants_are_found_by_their_names_only() {
    let sites = exploration("ticket", None).sites(200);
    let one = sites.iter().flat_map(Site::mutants).next().unwrap();
    assert_eq!(Mutant::find(&one.to_string(), &sites), Ok(one));
    let short = one.to_string().replace("crates/locks/src/", "");
    assert_eq!(Mutant::find(&short, &sites), Ok(one));
    for bad in
        ["", "x", "spin/ticket.rs:1:relaxed", "spin/ticket.rs:1:1:relaxed", "spin/ticket.rs:1:1:x"]
    {
        assert!(Mutant::find(bad, &sites).is_err(), "{bad}");
    }
}
