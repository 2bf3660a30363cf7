//! Segments that no library of ours writes, but that a process may: drawn bytes where the counts are.

use super::course::Course;
use super::outcome::outcome;
use super::reader::Reader;
use super::sum::groups;
use lockwright_contract::counters::layout::{
    CountersHeader, KEYS_AT, LENGTH, MAPS_AT, MEMORY_AT, OTHER_LOCKS, RECORD, RECORDS, WHOLE,
    record_at,
};
use lockwright_contract::header::{Header, Layout};
use lockwright_symbols::Symboliser;
use proptest::prelude::*;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// Numbers, and more often than not those at which sums overflow.
fn words(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        // SplitMix64.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let word = mixed ^ mixed >> 31;
        match word % 8 {
            0 => u64::MAX,
            1 => 1 << 63,
            2 => 0,
            3 => word >> 8 & 0xff,
            4 => word >> 40,
            _ => word,
        }
    }
}

fn bytes(next: &mut impl FnMut() -> u64, length: usize) -> Vec<u8> {
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

/// Writes drawn counts of a few locks.
fn draw(file: &File, next: &mut impl FnMut() -> u64) {
    let mut head = vec![0; MAPS_AT];
    let from = size_of::<Header>();
    head[from..KEYS_AT].copy_from_slice(&bytes(next, KEYS_AT - from));
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(Header, magic), &CountersHeader::MAGIC.to_le_bytes());
    put(offset_of!(Header, version), &CountersHeader::VERSION.to_le_bytes());
    put(offset_of!(Header, pid), &(u32::MAX >> 1).to_le_bytes());
    put(offset_of!(Header, length), &(LENGTH as u64).to_le_bytes());
    put(offset_of!(Header, start_ns), &next().to_le_bytes());
    put(offset_of!(Header, last_ns), &next().to_le_bytes());
    let maps = format!(
        "{:x}-{:x} r-xp {:x} 00:00 0 /bin/true\n{:x}-7fffffffffff r--p 0 00:00 0 /none\n",
        next() >> 20,
        next() >> 4,
        next(),
        next() >> 30
    );
    put(offset_of!(CountersHeader, maps_length), &(maps.len() as u64).to_le_bytes());
    for index in (0..3).chain(OTHER_LOCKS..RECORDS) {
        if index < OTHER_LOCKS {
            put(KEYS_AT + index * 8, &next().to_le_bytes());
        }
        put(MEMORY_AT + index * 4, &((next() % 4) as u32).min(WHOLE).to_le_bytes());
        file.write_all_at(&bytes(next, RECORD), record_at(index) as u64).unwrap();
    }
    file.write_all_at(&head, 0).unwrap();
    file.write_all_at(maps.as_bytes(), MAPS_AT as u64).unwrap();
}

proptest! {
    // Each takes some milliseconds, and a smaller one says no more.
    #![proptest_config({
        let usual = ProptestConfig::default();
        ProptestConfig { cases: usual.cases / 4, max_shrink_iters: 0, ..usual }
    })]
    #[test]
    fn any_counts_are_read_and_told(seed in any::<u64>()) {
        let mut next = words(seed);
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH as u64).unwrap();
        let path = "drawn".as_ref();
        let (mut reader, mut course) = (Reader::default(), Course::begin());
        draw(&file, &mut next);
        let before = reader.read(&file, path).unwrap();
        course.look_at(&file, path, next() as usize % 4);
        draw(&file, &mut next);
        let mut after = reader.read(&file, path).unwrap();
        course.look_at(&file, path, next() as usize % 4);
        after.close(0, next());
        let mut symbols = Symboliser::new(after.space());
        let mut all = vec![outcome(&after, &mut symbols, next(), next() as usize)];
        let part = after.since(&before);
        all.push(outcome(&part, &mut symbols, next(), next() as usize % 64));
        course.tell(&mut all);
        prop_assert!(!groups(&all).is_empty());
    }
}
