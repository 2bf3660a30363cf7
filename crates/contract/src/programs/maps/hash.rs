//! A hash of fixed size.
//!
//! Each key has two buckets of [`WAYS`] slots, in one of which it lies: the emptier one when it came. There are at least twice as many
//! slots as entries, so both buckets are practically never full before the map is. Slots don't move. A slot's header is
//!
//! ```text
//!   changes so far (32 bits) │ part of the key's hash (31 bits) │ 1: there is an entry
//! ```
//!
//! Those who change a key's entry set the lock bits of both buckets, in order; they try a few times, and then give up. A look-up sets
//! nothing: it compares the key, and then looks whether the header is still the same.

use super::map::{
    self, E2BIG, EBUSY, EEXIST, EINVAL, ENOENT, EXIST, LARGEST_KEY, Map, NO_EXIST, copy, store,
};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Slots of a bucket.
pub(super) const WAYS: u32 = 8;
/// In a slot's header: there is an entry.
const LIVE: u64 = 1;
/// In a bucket's word: somebody is changing its slots. The upper bits count the slots that were used again.
const LOCKED: u32 = 1;
const USED_AGAIN: u32 = 2;
/// How often to try a lock bit. Its holder copies a few words.
const TRIES: u32 = 64;

const KEY_WORDS: usize = LARGEST_KEY as usize / 8;

/// A key, and where it belongs.
struct KeyPlace {
    key: [u64; KEY_WORDS],
    words: usize,
    /// The header's part of the hash, in place.
    part: u64,
    /// The lower bucket first; both may be the same.
    buckets: [u32; 2],
}

impl KeyPlace {
    #[inline]
    unsafe fn new(map: &Map, key: *const u8) -> Self {
        let size = map.key_size as usize;
        let words = size.div_ceil(8).min(KEY_WORDS);
        let mut copy = [0; KEY_WORDS];
        let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
        for (at, word) in copy.iter_mut().enumerate().take(words) {
            // SAFETY: our caller's promise: as many readable bytes as a key has.
            *word = unsafe { map::word(key.add(at * 8), size - at * 8) };
            hash = mixed(hash ^ *word);
        }
        let bucket = |hash: u64| (((hash >> 32) * u64::from(map.buckets)) >> 32) as u32;
        let (one, other) = (bucket(hash), bucket(mixed(hash)));
        Self { key: copy, words, part: hash << 33 >> 32, buckets: [one.min(other), one.max(other)] }
    }

    fn distinct(&self) -> &[u32] {
        if self.buckets[0] == self.buckets[1] { &self.buckets[..1] } else { &self.buckets }
    }
}

/// The finalizer of MurmurHash3 (public domain).
#[inline]
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// A slot: its header, its key, its value.
#[derive(Clone, Copy)]
struct EntryPlace(*mut u8);

impl EntryPlace {
    #[inline]
    unsafe fn of(this: *mut Map, bucket: u32, way: u32) -> Self {
        // SAFETY: our caller's promise: a hash, with these numbers within it.
        unsafe {
            let map = &*this;
            let slots = map.first as usize - 8 - key_bytes(map);
            let number = bucket as usize * WAYS as usize + way as usize;
            Self(this.cast::<u8>().add(slots + number * map.stride as usize))
        }
    }

    #[inline]
    fn header(&self) -> &AtomicU64 {
        // SAFETY: an entry begins with it, and stays mapped.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }

    #[inline]
    unsafe fn has(self, place: &KeyPlace) -> bool {
        place.key[..place.words].iter().enumerate().all(|(at, word)| {
            // SAFETY: words of the slot's key. Relaxed: the header decides whether they count.
            unsafe { (*self.0.add(8 + at * 8).cast::<AtomicU64>()).load(Relaxed) == *word }
        })
    }

    #[inline]
    unsafe fn value(self, map: &Map) -> *mut u8 {
        // SAFETY: behind the key.
        unsafe { self.0.add(8 + key_bytes(map)) }
    }

    /// Changes the header: one more change, and this below it.
    fn change(self, to: u64) {
        let changes = (self.header().load(Relaxed) >> 32).wrapping_add(1); // only the buckets' holder writes
        // ORDERING: Release, pairs with [entry]: the key and the value were written before.
        self.header().store(changes << 32 | to, Release);
        // ORDERING: Release, pairs with [still]: who sees a word written after this sees the new header, too.
        fence(Release);
    }
}

fn key_bytes(map: &Map) -> usize {
    (map.key_size as usize).next_multiple_of(8)
}

pub(super) unsafe fn lookup(this: *mut Map, key: *const u8) -> *mut u8 {
    // SAFETY: our caller's promise.
    unsafe {
        let map = &*this;
        let place = KeyPlace::new(map, key);
        for bucket in place.distinct() {
            for way in 0..WAYS {
                let slot = EntryPlace::of(this, *bucket, way);
                // ORDERING: Acquire. [entry]
                let header = slot.header().load(Acquire);
                if header as u32 as u64 != place.part | LIVE || !slot.has(&place) {
                    continue;
                }
                // ORDERING: Acquire. [still] The key was compared before.
                fence(Acquire);
                if slot.header().load(Relaxed) == header {
                    return slot.value(map);
                }
            }
        }
        null_mut()
    }
}

/// The lock bits of a key's buckets.
struct Locks<'a>(&'a [AtomicU32], &'a [u32]);

/// The buckets' words.
unsafe fn words<'a>(this: *mut Map) -> &'a [AtomicU32] {
    // SAFETY: our caller's promise: they lie behind the header.
    unsafe { core::slice::from_raw_parts(this.add(1).cast(), (*this).buckets as usize) }
}

impl<'a> Locks<'a> {
    unsafe fn take(this: *mut Map, place: &'a KeyPlace) -> Option<Self> {
        // SAFETY: our caller's promise.
        let words = unsafe { words(this) };
        let buckets = place.distinct();
        for (taken, bucket) in buckets.iter().enumerate() {
            if !is_set(&words[*bucket as usize]) {
                drop(Self(words, &buckets[..taken]));
                return None;
            }
        }
        Some(Self(words, buckets))
    }

    /// The next way of this bucket to be used again.
    fn next(&self, bucket: u32) -> u32 {
        self.0[bucket as usize].fetch_add(USED_AGAIN, Relaxed) / USED_AGAIN % WAYS // we hold it
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        for bucket in self.1 {
            // ORDERING: Release, pairs with [bit]: our changes were made before.
            self.0[*bucket as usize].fetch_and(!LOCKED, Release);
        }
    }
}

fn is_set(word: &AtomicU32) -> bool {
    (0..TRIES).any(|_| {
        // Relaxed: a hint, so that those who try don't take the line from the holder.
        let is_free = word.load(Relaxed) & LOCKED == 0;
        // ORDERING: Acquire. [bit]
        is_free && word.fetch_or(LOCKED, Acquire) & LOCKED == 0 || {
            core::hint::spin_loop();
            false
        }
    })
}

/// What lies in a key's buckets, for one who holds them.
struct InBuckets {
    /// The key's entry.
    live: Option<EntryPlace>,
    /// The place for a new entry.
    free: Option<EntryPlace>,
}

unsafe fn find(this: *mut Map, place: &KeyPlace, locks: &Locks<'_>) -> InBuckets {
    let mut own = None;
    let mut best: Option<(u32, u32)> = None; // entries, bucket
    for bucket in place.distinct() {
        let mut entries = 0;
        for way in 0..WAYS {
            // SAFETY: our caller's promise; the numbers are within the map.
            let slot = unsafe { EntryPlace::of(this, *bucket, way) };
            let header = slot.header().load(Relaxed); // we hold the bucket
            let is_live = header & LIVE != 0;
            entries += u32::from(is_live);
            let is_alike = header != 0 && header as u32 as u64 & !LIVE == place.part;
            // SAFETY: as above.
            if is_alike && unsafe { slot.has(place) } {
                if is_live {
                    return InBuckets { live: Some(slot), free: None };
                }
                own = Some(slot);
            }
        }
        if entries < WAYS && best.is_none_or(|(least, _)| entries < least) {
            best = Some((entries, *bucket));
        }
    }
    let other = best.and_then(|(_, bucket)| {
        // Those that were never used come first, then all in turn.
        // SAFETY: as above.
        let slot = |way| unsafe { EntryPlace::of(this, bucket, way) };
        let unused = (0..WAYS).map(slot).find(|slot| slot.header().load(Relaxed) == 0);
        unused.or_else(|| {
            let from = locks.next(bucket);
            let ways = (0..WAYS).map(|way| slot((from + way) % WAYS));
            ways.into_iter().find(|slot| slot.header().load(Relaxed) & LIVE == 0)
        })
    });
    InBuckets { live: None, free: own.or(other) }
}

/// Makes an entry; `None`: a value of zeroes.
unsafe fn insert(
    this: *mut Map,
    place: &KeyPlace,
    found: &InBuckets,
    value: Option<*const u8>,
) -> *mut u8 {
    // SAFETY: our caller's promise; we hold the buckets.
    unsafe {
        let map = &*this;
        let Some(slot) = found.free else { return null_mut() };
        if map.live.fetch_add(1, Relaxed) >= map.max_entries {
            map.live.fetch_sub(1, Relaxed); // a counter
            return null_mut();
        }
        // Part 0 and not live: whoever looks passes it by.
        slot.change(0);
        for (at, word) in place.key[..place.words].iter().enumerate() {
            store(slot.0, 8 + at * 8, *word);
        }
        let to = slot.value(map);
        match value {
            Some(value) => copy(to, value, map.value_size),
            None => {
                for at in (0..map.value_size as usize).step_by(8) {
                    store(to, at, 0);
                }
            }
        }
        slot.change(place.part | LIVE);
        to
    }
}

pub(super) unsafe fn update(this: *mut Map, key: *const u8, value: *const u8, flags: u64) -> i64 {
    if flags > EXIST {
        return EINVAL;
    }
    // SAFETY: our caller's promise.
    unsafe {
        let map = &*this;
        let place = KeyPlace::new(map, key);
        let Some(locks) = Locks::take(this, &place) else { return EBUSY };
        let found = find(this, &place, &locks);
        match found.live {
            Some(_) if flags == NO_EXIST => EEXIST,
            Some(slot) => {
                copy(slot.value(map), value, map.value_size);
                0
            }
            None if flags == EXIST => ENOENT,
            None if insert(this, &place, &found, Some(value)).is_null() => E2BIG,
            None => 0,
        }
    }
}

pub(super) unsafe fn storage(this: *mut Map, key: *const u8) -> *mut u8 {
    // SAFETY: our caller's promise.
    unsafe {
        let known = lookup(this, key);
        if !known.is_null() {
            return known;
        }
        let map = &*this;
        let place = KeyPlace::new(map, key);
        let Some(locks) = Locks::take(this, &place) else { return null_mut() };
        let found = find(this, &place, &locks);
        match found.live {
            Some(slot) => slot.value(map),
            None => insert(this, &place, &found, None),
        }
    }
}

pub(super) unsafe fn delete(this: *mut Map, key: *const u8) -> i64 {
    // SAFETY: our caller's promise.
    unsafe {
        let map = &*this;
        let place = KeyPlace::new(map, key);
        let Some(locks) = Locks::take(this, &place) else { return EBUSY };
        let Some(slot) = find(this, &place, &locks).live else { return ENOENT };
        slot.change(place.part);
        map.live.fetch_sub(1, Relaxed); // a counter
        0
    }
}

pub(super) unsafe fn forget_writers(this: *mut Map) {
    // SAFETY: our caller's promise.
    unsafe {
        let mut live = 0;
        for (bucket, word) in words(this).iter().enumerate() {
            if word.load(Relaxed) & LOCKED != 0 {
                word.fetch_and(!LOCKED, Relaxed); // one thread, here and below
            }
            let headers = (0..WAYS)
                .map(|way| EntryPlace::of(this, bucket as u32, way).header().load(Relaxed));
            live += headers.filter(|header| header & LIVE != 0).count();
        }
        (*this).live.store(live as u32, Relaxed);
    }
}
