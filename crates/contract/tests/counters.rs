//! What the segment counts, and what happens when room runs out.

use lockwright_contract::About;
use lockwright_contract::counters::layout::{
    ADDRESS_BITS, CountersHeader, DEPTH, GONE, HEAD_LENGTH, KEYS_AT, LENGTH, LOCKS, OTHER_THREADS,
    OTHERS, PIECE, PIECES, RECORDS_AT, Record, SITES, STACKS, THREADS, WAYS, record_at,
};
use lockwright_contract::counters::{Blame, Segment, Wait};
use lockwright_contract::header::Layout;
use std::cell::Cell;
use std::ffi::CStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tempfile::TempDir;

const ABOUT: About<'_> = About {
    now_ns: 1,
    started: 2,
    namespace: 3,
    boot: b"boot",
    lock: b"auto",
    emulated: b"",
    command: b"program",
};
const SECOND: u64 = 1_000_000_000;

fn fresh() -> (TempDir, Segment) {
    let dir = tempfile::tempdir().unwrap();
    let segment = Segment::create(dir.path().as_os_str().as_encoded_bytes(), &ABOUT).unwrap();
    (dir, segment)
}

fn header(segment: &Segment) -> &CountersHeader {
    // SAFETY: a header is there, aligned to a page, and mapped forever.
    unsafe { &*segment.base().cast() }
}

fn keys(segment: &Segment) -> &[AtomicU64; LOCKS] {
    // SAFETY: that many words, mapped forever.
    unsafe { &*segment.base().add(KEYS_AT).cast() }
}

/// A record whose lock has been waited for.
fn record(segment: &Segment, index: usize) -> &Record {
    // SAFETY: within the mapping, mapped forever; its head has memory.
    unsafe { &*segment.base().add(record_at(index)).cast() }
}

fn of(segment: &Segment, key: u64) -> Option<&Record> {
    let index = keys(segment).iter().position(|known| known.load(Relaxed) == key)?;
    Some(record(segment, index))
}

/// One thread waits for `lock` at `site`, for `ns`.
fn wait(segment: &Segment, lock: u64, site: u64, at_ns: u64, ns: u64) {
    segment.arrived(lock, 0, at_ns, 1);
    let wait = Wait {
        lock,
        site,
        stack: 0,
        tid: 7,
        ended_ns: at_ns + ns,
        ns,
        weight: 1,
        class: 0,
        asleep: true,
        acquired: true,
        by_thread: false,
    };
    segment.waited(&wait);
}

/// All waits that any record has counted.
fn arrived(segment: &Segment) -> u64 {
    let known = keys(segment).iter().enumerate().filter(|(_, key)| key.load(Relaxed) != 0);
    let indices = known.map(|(index, _)| index).chain([LOCKS]);
    indices.map(|index| record(segment, index).arrived.load(Relaxed)).sum()
}

#[test]
fn locks_that_come_and_go_leave_a_bounded_file_and_no_wait_is_lost() {
    let (dir, segment) = fresh();
    let waits = 100_000;
    for number in 0..waits {
        // Two sites, and addresses that are reused, as by malloc.
        let (lock, site) = (0x10_000 + number % 30_000 * 64, 0x400_000 + number % 2);
        wait(&segment, lock, site, number * 1_000, 50);
        segment.retire(lock);
    }
    assert_eq!(arrived(&segment), waits);
    assert_eq!(header(&segment).retired.load(Relaxed), waits);
    assert_eq!(header(&segment).unplaced.load(Relaxed), 0, "a lock that is gone makes room");
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().metadata().unwrap();
    let name = segment.name(std::process::id()).unwrap();
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    assert!(name.ends_with(CountersHeader::ENDING) && dir.path().join(name).exists(), "{name}");
    assert!(segment.name(1).is_none(), "it is not that process's");
    assert_eq!(file.len(), LENGTH as u64);
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let most = RECORDS_AT + (LOCKS + 1) * HEAD_LENGTH;
    assert!(file.blocks() * 512 <= most as u64, "{} blocks, of {most} bytes", file.blocks());
    for site in [0x400_000, 0x400_001] {
        let gone = of(&segment, site | GONE).expect("locks of this site are gone");
        assert!(gone.locks.load(Relaxed) > 10_000);
        assert!(gone.wait.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum::<u64>() > 10_000);
    }
}

#[test]
fn a_new_lock_at_an_old_address_begins_at_zero() {
    let (_dir, segment) = fresh();
    let (lock, site) = (0x7f00_0000_1000, 0x401_000);
    wait(&segment, lock, site, 5, 1_000);
    segment.blocks(lock, 800, 8, 0);
    segment.retire(lock);
    assert_eq!(of(&segment, lock).unwrap().arrived.load(Relaxed), 1, "kept for the report");
    wait(&segment, lock, site, 6, 10);
    let new = of(&segment, lock).unwrap();
    assert_eq!((new.arrived.load(Relaxed), new.destroyed.load(Relaxed)), (1, 0));
    assert_eq!(new.wait_max_ns.load(Relaxed), 10);
    assert_eq!(new.blocked_since_ns.load(Relaxed), 0);
    let old = of(&segment, site | GONE).unwrap();
    assert_eq!((old.arrived.load(Relaxed), old.locks.load(Relaxed)), (1, 1));
    assert_eq!(old.wait_max_ns.load(Relaxed), 1_000);
}

#[test]
fn more_locks_than_room() {
    let (_dir, segment) = fresh();
    let many = 3 * LOCKS as u64;
    let lock = |number: u64| 0x7000_0000 + number * 40;
    // All at the same time: nobody makes room, and the last record counts what finds no room.
    for number in 0..many {
        wait(&segment, lock(number), 0x400_000, 1_000, 10);
    }
    assert_eq!(arrived(&segment), many);
    assert!(header(&segment).unplaced.load(Relaxed) >= many - LOCKS as u64);
    assert!(record(&segment, LOCKS).arrived.load(Relaxed) >= many - LOCKS as u64);
    assert_eq!(header(&segment).evicted.load(Relaxed), 0);
    // Two seconds later, quiet locks make room.
    let unplaced = header(&segment).unplaced.load(Relaxed);
    wait(&segment, 0x9000_0000, 0x400_000, 2 * SECOND, 10);
    assert!(of(&segment, 0x9000_0000).is_some());
    assert_eq!(header(&segment).unplaced.load(Relaxed), unplaced);
    assert_eq!(header(&segment).evicted.load(Relaxed), 1);
    assert_eq!(arrived(&segment), many + 1);
}

#[test]
fn more_sites_and_stacks_than_room() {
    let (_dir, segment) = fresh();
    for site in 0..3 * SITES as u64 {
        wait(&segment, 64, 0x1000 + site, 10, 10);
    }
    let waiters = &of(&segment, 64).unwrap().waiters;
    let known = |site: u64| waiters.iter().any(|known| known.address.load(Relaxed) == site);
    assert!(known(0x1000) && known(OTHERS) && !known(0x1000 + 3 * SITES as u64 - 1));
    assert_eq!(waiters.iter().map(|site| site.count.load(Relaxed)).sum::<u64>(), 3 * SITES as u64);
    let frames = |number: u64| [number, number + 1, number + 2];
    let first = segment.stack(&frames(1));
    assert!(first > 0 && segment.stack(&frames(1)) == first, "each stack once");
    assert_ne!(segment.stack(&[9; DEPTH + 5]), 0, "deeper callers are left out");
    for number in 0..2 * STACKS as u64 {
        segment.stack(&frames(number * 8));
    }
    let lost = header(&segment).stacks_lost.load(Relaxed);
    assert!(lost >= STACKS as u64 && lost < 2 * STACKS as u64, "{lost}");
}

#[test]
fn a_stack_is_walked_only_if_it_is_kept() {
    let (_dir, segment) = fresh();
    let lock = 64;
    let waits = |ns| {
        segment.arrived(lock, 0, 0, 1);
        let wanted = segment.wants_stack(lock, 0x1000, ns);
        let stack = if wanted { segment.stack(&[0x1000, ns]) } else { 0 };
        segment.waited(&Wait { lock, site: 0x1000, stack, ns, weight: 1, ..Wait::default() });
        wanted
    };
    assert_eq!([10, 10, 9, 11, 5].map(waits), [true, false, false, true, false]);
    let walked = Cell::new(0);
    let holds = |ns| {
        segment.blocked_by_hold(
            lock,
            ns,
            1,
            Blame { site: 0x2000, tid: 1, by_thread: false },
            || {
                walked.set(walked.get() + 1);
                segment.stack(&[0x2000, ns])
            },
        );
        walked.get()
    };
    assert_eq!([10, 10, 9, 11, 5].map(holds), [1, 1, 1, 2, 2]);
}

#[test]
fn the_holder_answers_for_the_waiter_that_was_first() {
    let (_dir, segment) = fresh();
    let lock = 64;
    segment.arrived(lock, 0, 0, 2);
    segment.blocks(lock, 104_000, 16, 0);
    segment.blocks(lock, 105_000, 1, 0); // somebody waits already
    let blame = Blame { site: 0x2000, tid: 3, by_thread: false };
    segment.blocked(lock, 105_000, 0, blame, || 0);
    segment.blocked(lock, 109_000, 0, blame, || 0); // nobody waits any more
    let holder = &of(&segment, lock).unwrap().holders[0];
    assert_eq!(holder.address.load(Relaxed), 0x2000);
    assert_eq!(holder.count.load(Relaxed), 16);
    assert_eq!(holder.ns.load(Relaxed), 16 * 1_000);
    assert_eq!((holder.max_ns.load(Relaxed), holder.max_tid.load(Relaxed)), (1_000, 3));
    // A thread was blocked when counting ended, and an hour later counting begins again.
    segment.blocks(lock, 110_000, 1, 0);
    segment.blocked(lock, 3_600 * SECOND, 3_599 * SECOND, blame, || 0);
    segment.blocks(lock, 110_000, 1, 0);
    segment.blocks(lock, 3_600 * SECOND, 1, 3_599 * SECOND);
    segment.gives_up(lock, 3_600 * SECOND);
    assert_eq!(of(&segment, lock).unwrap().blocked_ns.load(Relaxed), 16 * 1_000);
    // The first one gives up, and nobody is blamed for it.
    segment.blocks(lock, 120_000, 1, 0);
    segment.gives_up(lock, 120_000);
    segment.blocked(lock, 130_000, 0, blame, || 0);
    assert_eq!(of(&segment, lock).unwrap().blocked_ns.load(Relaxed), 16 * 1_000);
}

#[test]
fn two_acquisitions_in_a_row_are_compared() {
    let (_dir, segment) = fresh();
    segment.arrived(64, 0, 0, 1);
    // asks, other thread, (nobody asked), asks, same thread on another CPU
    for (tid, cpu, asks) in
        [(1, 0, true), (2, 0, false), (1, 0, false), (5, 0, true), (5, 1, false)]
    {
        segment.follow(64, tid, cpu, asks);
        assert_eq!(segment.is_followed(64), asks);
    }
    segment.follow(64, 1, 0, true);
    let others = (1..1000).flat_map(|at| [64 + at * 8, 64 + (at << 28), 64 + (at << 36)]);
    assert_eq!(others.filter(|&other| segment.is_followed(other)).count(), 0);
    let record = of(&segment, 64).unwrap();
    let counts = [&record.followed, &record.owners, &record.cores].map(|count| count.load(Relaxed));
    assert_eq!(counts, [2, 1, 1]);
}

#[test]
fn keys_tell_addresses_from_places() {
    const { assert!(GONE == 1 << ADDRESS_BITS && WAYS > 1) };
    let (_dir, segment) = fresh();
    wait(&segment, 0x5000, 0x5000, 1, 1);
    segment.retire(0x5000);
    wait(&segment, 0x5000, 0x5000, 2, 1);
    assert!(of(&segment, 0x5000).is_some() && of(&segment, 0x5000 | GONE).is_some());
}

#[test]
fn each_thread_has_its_part_until_there_is_no_room() {
    let (_dir, segment) = fresh();
    let lock = 64;
    for tid in 1..THREADS as u32 + 8 {
        segment.arrived(lock, 0, 0, 1);
        let wait = Wait { lock, tid, ns: 100, weight: 2, by_thread: true, ..Wait::default() };
        segment.waited(&wait);
    }
    let blame = |tid, by_thread| Blame { site: 0x2000, tid, by_thread };
    segment.blocked_by_hold(lock, 50, 4, blame(5, true), || 0);
    segment.blocked_by_hold(lock, 50, 4, blame(5, false), || 0);
    let record = of(&segment, lock).unwrap();
    let part = |at: usize| {
        let thread = &record.threads[at];
        let numbers = [&thread.waits, &thread.wait_ns, &thread.blamed_ns];
        (record.tids[at].load(Relaxed), numbers.map(|number| number.load(Relaxed)))
    };
    assert_eq!(part(0), (1, [2, 200, 0]));
    assert_eq!(part(4), (5, [2, 200, 200]));
    assert_eq!(part(THREADS - 1), (OTHER_THREADS, [16, 1600, 0]));
}

#[test]
fn a_piece_of_a_stack_is_kept_once_and_as_long_as_there_is_room() {
    let (_dir, segment) = fresh();
    let copies = Cell::new(0);
    let put = |key: u64| {
        segment.piece(key, [1, 2, 3], |to| {
            copies.set(copies.get() + 1);
            // SAFETY: room for a piece.
            unsafe { to.write_bytes(7, 100) };
            100
        })
    };
    let first = put(9);
    assert_eq!((first & PIECE, put(9), copies.get()), (PIECE, first, 1));
    let all: Vec<u32> = (10..).map(put).take(4 * PIECES).collect();
    assert!(copies.get() <= PIECES && all.contains(&0), "{}", copies.get());
    assert_eq!(put(9), first);
}

#[test]
fn nobody_is_blamed_for_more_time_than_there_was() {
    let (_dir, segment) = fresh();
    let (lock, blame) = (64, Blame { site: 0x2000, tid: 3, by_thread: true });
    segment.arrived(lock, 0, 0, 2);
    for round in 1..=10 {
        // Each counts for 128, and came 5 us after the one before.
        let now = 1_000_000 + round * 5_000;
        segment.blocks(lock, now - 1_000, 128, 1_000_000);
        segment.blocked(lock, now, 1_000_000, blame, || 0);
    }
    let record = of(&segment, lock).unwrap();
    assert_eq!(record.blocked_ns.load(Relaxed), 50_000);
    assert_eq!(record.threads[0].blamed_ns.load(Relaxed), 50_000);
}
