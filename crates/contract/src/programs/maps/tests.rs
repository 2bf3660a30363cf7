//! Maps do what they promise, alone and with other threads.

use super::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;
use std::{thread, vec};

/// Maps in memory that is aligned as a mapping is.
struct Maps(Vec<[u64; 8]>, Vec<usize>);

impl Maps {
    fn new(specs: &[MapSpec], rows: u32) -> Self {
        let layout = Layout::new(specs, rows).unwrap();
        let size = layout.size();
        let mut memory = vec![[0_u64; 8]; size / 64 + 1];
        // SAFETY: within the vector, which is larger by one line.
        let data = unsafe {
            let skip = memory.as_mut_ptr().cast::<u8>().align_offset(64);
            core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>().add(skip), size)
        };
        layout.write(data);
        Self(memory, layout.maps().map(|(at, _)| at as usize).collect())
    }

    fn data(&self) -> *mut u8 {
        let begin = self.0.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: as above.
        unsafe { begin.add(begin.align_offset(64)) }
    }

    fn map(&self, number: usize) -> *mut Map {
        // SAFETY: within the data.
        unsafe { self.data().add(self.1[number]).cast() }
    }

    fn bytes(&self) -> Vec<u8> {
        let len = (self.0.len() - 1) * 64;
        // SAFETY: as above; the tests copy what other threads write, as the command does.
        (0..len).map(|at| unsafe { self.data().add(at).read_volatile() }).collect()
    }
}

// SAFETY: that is what is tested.
unsafe impl Sync for Maps {}

fn spec(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapSpec {
    MapSpec { kind, key_size, value_size, max_entries }
}

fn lookup(map: *mut Map, key: u64) -> Option<u64> {
    // SAFETY: keys and values of 8 bytes, here and below.
    unsafe {
        let value = Map::lookup(map, (&raw const key).cast(), 0);
        (!value.is_null()).then(|| (*value.cast::<AtomicU64>()).load(Relaxed))
    }
}

fn update(map: *mut Map, key: u64, value: u64, flags: u64) -> i64 {
    // SAFETY: as above.
    unsafe { Map::update(map, (&raw const key).cast(), (&raw const value).cast(), flags, 0) }
}

fn delete(map: *mut Map, key: u64) -> i64 {
    // SAFETY: as above.
    unsafe { Map::delete(map, (&raw const key).cast()) }
}

#[test]
fn what_cannot_be_a_map_is_refused_by_its_number() {
    let good = spec(MapKind::Array, 4, 8, 1);
    for (bad, why) in [
        (spec(MapKind::Array, 8, 8, 1), BadMap::Key(8)),
        (spec(MapKind::Hash, 65, 8, 1), BadMap::Key(65)),
        (spec(MapKind::Hash, 8, 0, 1), BadMap::Value(0)),
        (spec(MapKind::PerCpuArray, 4, LARGEST_VALUE + 1, 1), BadMap::Value(LARGEST_VALUE + 1)),
        (spec(MapKind::Array, 4, 8, 0), BadMap::Empty),
        (spec(MapKind::Ring, 0, 0, 5000), BadMap::Ring(5000)),
        (spec(MapKind::Ring, 0, 0, 2048), BadMap::Ring(2048)),
    ] {
        assert_eq!(Layout::new(&[good, bad], 1).map(|_| ()), Err((1, why)));
    }
    let huge = spec(MapKind::Hash, 64, LARGEST_VALUE, u32::MAX);
    assert!(matches!(Layout::new(&[huge], 1), Err((0, BadMap::TooLarge(_)))));
    let huge = spec(MapKind::PerCpuArray, 4, LARGEST_VALUE, u32::MAX);
    assert!(matches!(Layout::new(&[huge], u32::MAX), Err((0, BadMap::TooLarge(_)))));
}

#[test]
fn maps_lie_one_after_the_other_and_a_view_finds_them_all() {
    let specs = [
        spec(MapKind::Array, 4, 12, 3),
        spec(MapKind::Hash, 5, 3, 7),
        spec(MapKind::PerCpuArray, 4, 8, 5),
        spec(MapKind::Ring, 0, 0, 4096),
    ];
    let maps = Maps::new(&specs, 4);
    let bytes = maps.bytes();
    let views: Vec<_> = View::all(&bytes).collect();
    assert_eq!(views.len(), 4);
    for (view, spec) in views.iter().zip(specs) {
        assert_eq!((view.kind, view.key_size), (spec.kind, spec.key_size as usize));
        assert_eq!(view.max_entries, spec.max_entries as usize);
    }
    assert_eq!(views[2].rows, 4);
    // No copy, however short or wrong, is believed.
    for len in 0..bytes.len() {
        assert!(View::all(&bytes[..len]).count() < 4);
    }
    let begins = views.iter().scan(0, |next, view| {
        let begin = *next;
        *next += view.len();
        Some(begin)
    });
    for at in begins.flat_map(|begin| begin..begin + size_of::<Map>()) {
        let mut wrong = bytes.clone();
        wrong[at] = !wrong[at];
        for view in View::all(&wrong) {
            // Whoever counts to what a map says comes to an end.
            assert!(view.max_entries.saturating_mul(view.rows) <= bytes.len(), "{at}: {view:?}");
            assert!(view.entries().count() <= bytes.len() / 8, "{at}");
            let _ = (view.value(2, 0), view.records(&view, &view, 0).count());
        }
    }
}

#[test]
fn arrays_keep_their_values_by_number_and_by_cpu() {
    let maps = Maps::new(&[spec(MapKind::Array, 4, 8, 3), spec(MapKind::PerCpuArray, 4, 8, 3)], 2);
    let (array, per_cpu) = (maps.map(0), maps.map(1));
    for number in 0..3 {
        assert_eq!(update(array, number, number + 10, 0), 0);
    }
    assert_eq!(
        (0..4).map(|number| lookup(array, number)).collect::<Vec<_>>(),
        [Some(10), Some(11), Some(12), None]
    );
    assert_eq!(update(array, 3, 0, 0), E2BIG);
    assert_eq!(update(array, 0, 0, NO_EXIST), EEXIST);
    assert_eq!(update(array, 0, 0, 4), EINVAL);
    assert_eq!(delete(array, 0), EINVAL);
    let key = 2_u32;
    // SAFETY: keys of 4 bytes, values of 8.
    unsafe {
        let at = |cpu| Map::lookup(per_cpu, (&raw const key).cast(), cpu);
        assert_ne!(at(0), at(1));
        assert_eq!(at(0), at(2));
        *at(1).cast::<u64>() = 7;
    }
    let bytes = maps.bytes();
    let view = View::all(&bytes).nth(1).unwrap();
    assert_eq!(view.value(2, 1), Some(&7_u64.to_ne_bytes()[..]));
    assert_eq!((view.value(3, 1), view.value(2, 2)), (None, None));
}

#[test]
fn a_hash_does_what_a_hash_map_does() {
    for max in [1, 2, 7, 64] {
        let maps = Maps::new(&[spec(MapKind::Hash, 8, 8, max)], 1);
        let map = maps.map(0);
        let mut model = HashMap::new();
        let mut random = 88_172_645_463_325_252_u64;
        for step in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Keys come and go for good, too: new ones all the time.
            let key = random % (2 * u64::from(max) + 1) + step / 1000 * 100;
            let is_full = model.len() == max as usize;
            match random >> 32 & 7 {
                0 | 1 => {
                    let is_known = model.remove(&key).is_some();
                    assert_eq!(delete(map, key), if is_known { 0 } else { ENOENT });
                }
                2..=4 => {
                    let flags = random >> 40 & 3;
                    let expected = match (model.contains_key(&key), flags) {
                        (_, 3) => EINVAL,
                        (true, NO_EXIST) => EEXIST,
                        (false, EXIST) => ENOENT,
                        (false, _) if is_full => E2BIG,
                        _ => {
                            model.insert(key, step);
                            0
                        }
                    };
                    assert_eq!(update(map, key, step, flags), expected);
                }
                5 => {
                    // SAFETY: keys of 8 bytes.
                    let value = unsafe { Map::storage(map, (&raw const key).cast()) };
                    assert_eq!(value.is_null(), is_full && !model.contains_key(&key));
                    if !value.is_null() {
                        // SAFETY: a value of 8 bytes.
                        assert_eq!(unsafe { *value.cast::<u64>() }, *model.entry(key).or_insert(0));
                    }
                }
                _ => assert_eq!(lookup(map, key), model.get(&key).copied()),
            }
        }
        let bytes = maps.bytes();
        let entries = View::all(&bytes).next().unwrap().entries();
        let read = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        assert_eq!(
            entries.map(|(key, value)| (read(key), read(value))).collect::<HashMap<_, _>>(),
            model
        );
    }
}

#[test]
fn a_full_hash_has_all_its_entries() {
    let max = 10_000;
    let maps = Maps::new(&[spec(MapKind::Hash, 8, 8, max)], 1);
    for key in 0..u64::from(max) {
        assert_eq!(update(maps.map(0), key, !key, 0), 0, "{key}");
    }
    assert_eq!(update(maps.map(0), u64::from(max), 0, 0), E2BIG);
    for key in 0..u64::from(max) {
        assert_eq!(lookup(maps.map(0), key), Some(!key));
    }
}

#[test]
fn the_same_key_gets_its_old_place_and_a_value_stays_readable() {
    let maps = Maps::new(&[spec(MapKind::Hash, 4, 4, 4)], 1);
    let map = maps.map(0);
    let key = 5_u32;
    let key: *const u8 = (&raw const key).cast();
    // SAFETY: keys and values of 4 bytes.
    unsafe {
        let value = Map::storage(map, key);
        *value.cast::<u32>() = 9;
        assert_eq!(Map::delete(map, key), 0);
        assert_eq!(*value.cast::<u32>(), 9);
        assert_eq!(Map::lookup(map, key, 0), null());
        assert_eq!((Map::storage(map, key), *value.cast::<u32>()), (value, 0));
    }
}

fn null() -> *mut u8 {
    core::ptr::null_mut()
}

#[test]
fn a_bucket_whose_holder_is_gone_is_busy_and_nobody_waits() {
    let maps = Maps::new(&[spec(MapKind::Hash, 8, 8, 4)], 1);
    let map = maps.map(0);
    assert_eq!(update(map, 1, 1, 0), 0);
    // SAFETY: the only bucket's word.
    let word = unsafe { &*map.add(1).cast::<AtomicU32>() };
    word.fetch_or(1, Relaxed);
    assert_eq!((update(map, 1, 2, 0), delete(map, 1)), (EBUSY, EBUSY));
    assert_eq!(lookup(map, 1), Some(1));
    let new = 2_u64;
    // SAFETY: a key of 8 bytes.
    assert_eq!(unsafe { Map::storage(map, (&raw const new).cast()) }, null());
    // SAFETY: a map; this is its only thread.
    unsafe { Map::forget_writers(map) };
    assert_eq!(update(map, 1, 2, 0), 0);
    assert_eq!(View::all(&maps.bytes()).next().unwrap().live, 1);
}

#[test]
fn threads_that_change_a_hash_at_once_find_only_their_own_keys_values() {
    // A value names its key. Keys are many more than entries, so places change their keys all the time.
    let maps = Maps::new(&[spec(MapKind::Hash, 8, 16, 8)], 1);
    let work = |own: u64| {
        let map = maps.map(0);
        let mut hits = 0_u32;
        for step in 0..30_000_u64 {
            let key = (step * 7 + own) % 24;
            let value = [key << 32 | own, key << 32 | own];
            // SAFETY: keys of 8 bytes, values of 16.
            unsafe {
                let (key, value) = ((&raw const key).cast(), (&raw const value).cast());
                if step % 3 == 0 {
                    Map::delete(map, key);
                } else {
                    let error = Map::update(map, key, value, 0, 0);
                    assert!([0, E2BIG, EBUSY].contains(&error));
                }
            }
            let key = (step * 5 + own) % 24;
            // SAFETY: as above.
            let found = unsafe { Map::lookup(map, (&raw const key).cast(), 0) };
            hits += u32::from(!found.is_null());
        }
        hits
    };
    let hits: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|own| scope.spawn(move || work(own))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(hits > 0);
    // When all is quiet, each entry is whole, each key is there once, and the count is right.
    let bytes = maps.bytes();
    let view = View::all(&bytes).next().unwrap();
    let entries: Vec<_> = view.entries().collect();
    assert_eq!(entries.len(), view.live);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes[..8].try_into().unwrap());
    for (key, value) in &entries {
        assert_eq!(word(key), word(value) >> 32);
        assert_eq!(word(value), word(&value[8..]));
        assert_eq!(entries.iter().filter(|(other, _)| other == key).count(), 1);
    }
}

fn report(map: *mut Map, record: &[u8]) -> i64 {
    // SAFETY: as many bytes as it says.
    unsafe { Map::report(map, record.as_ptr(), record.len() as u64, 0) }
}

#[test]
fn a_ring_has_the_newest_records_in_order() {
    let maps = Maps::new(&[spec(MapKind::Ring, 0, 0, 4096)], 1);
    let map = maps.map(0);
    let record = |number: usize| vec![number as u8; number % 512 + 1];
    for number in 0..300 {
        assert_eq!(report(map, &record(number)), 0);
    }
    assert_eq!((report(map, &[]), report(map, &[0; 513])), (EINVAL, EINVAL));
    let bytes = maps.bytes();
    let view = View::all(&bytes).next().unwrap();
    let read: Vec<_> = view.records(&view, &view, 0).collect();
    assert!(read.len() > 5);
    for (read, number) in read.iter().rev().zip((0..300).rev()) {
        assert_eq!(read.bytes(), record(number));
    }
    let later: Vec<_> = view.records(&view, &view, read[2].number + 1).collect();
    assert_eq!(later, read[3..]);
}

#[test]
fn a_record_is_read_whole_or_not_at_all() {
    let maps = Maps::new(&[spec(MapKind::Ring, 0, 0, 4096)], 1);
    let is_over = AtomicBool::new(false);
    let (mut read, mut next) = (0, 0);
    thread::scope(|scope| {
        for own in 0..3_u8 {
            let (maps, is_over) = (&maps, &is_over);
            scope.spawn(move || {
                let mut number = 0_usize;
                // Some, even if the reader is done before this thread begins.
                while number < 8 || !is_over.load(Relaxed) {
                    number += 1;
                    let byte = own << 6 | (number % 64) as u8;
                    let error = report(maps.map(0), &vec![byte; number % 200 + 57]);
                    assert!(error == 0 || error == EBUSY);
                }
            });
        }
        for _ in 0..200 {
            let [before, during, after] = [maps.bytes(), maps.bytes(), maps.bytes()];
            let view = |bytes| View::all(bytes).next().unwrap();
            let (before, during, after) = (view(&before), view(&during), view(&after));
            for record in during.records(&before, &after, next) {
                read += 1;
                next = record.number + 1;
                assert!(record.bytes().iter().all(|byte| *byte == record.bytes()[0]));
            }
            thread::yield_now();
        }
        is_over.store(true, Relaxed);
    });
    // At the end nobody writes.
    let bytes = maps.bytes();
    let view = View::all(&bytes).next().unwrap();
    read += view.records(&view, &view, next).count();
    assert!(read > 0);
}

#[test]
fn a_cell_that_an_interrupted_writer_has_is_left_to_it() {
    let maps = Maps::new(&[spec(MapKind::Ring, 0, 0, 4096)], 1);
    let map = maps.map(0);
    // SAFETY: the second cell's word; a ring's cells are behind the header.
    let cell = unsafe { &*map.add(1).cast::<u8>().add(CELL).cast::<AtomicU64>() };
    cell.store(1 << 12 | 1 << 10, Relaxed);
    let results: Vec<_> = (0..128).map(|number| report(map, &[number])).collect();
    assert_eq!(results.iter().filter(|error| **error == EBUSY).count(), 2);
    assert_eq!((results[1], results[65]), (EBUSY, EBUSY));
    let bytes = maps.bytes();
    let view = View::all(&bytes).next().unwrap();
    assert_eq!((view.records(&view, &view, 0).count(), view.lost), (63, 2));
    // SAFETY: a map; this is its only thread.
    unsafe { Map::forget_writers(map) };
    assert_eq!((0..64).map(|number| report(map, &[number])).max(), Some(0));
}
