//! What happens next: events in order of time, and in order of creation where times are equal.
//!
//! ```text
//!   now                                              now + 4 us
//!    ├──┬──┬──┬──┬──┬── ... ──┬──┤  a bucket for each 4 ns, a bit for each bucket that has events
//!     └► event ► event (sorted)   └► later ones: a heap, from which they move here when their time is near
//! ```
//!
//! A saturated line has an event every few ns, so a bucket has about one event. Posting an event and taking the first
//! one therefore cost the same, however many events there are. With a binary heap the cost would grow with the number
//! of events, and so with the machine's cores.

use crate::units::{Ps, Tid};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A bucket is 2^12 ps long.
const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1024;
const WORDS: usize = BUCKETS / 64;

const NOTHING: u32 = u32::MAX;
const FAR: u64 = u64::MAX;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A thread goes on.
    Resume { thread: Tid, turn: u32 },
    /// A thread's request for a line reaches the directory.
    Arrive { thread: Tid, line: u32, write: bool },
    /// A line can serve the next request.
    Free { line: u32 },
    /// A wait has lasted as long as it may.
    Timer { thread: Tid, turn: u32 },
    /// A woken thread needs a core.
    Ready { thread: Tid },
    /// A thread's time slice is over.
    Slice { cpu: u32, turn: u32 },
    /// A spinning thread yields its core, if another one waits for it.
    Yield { thread: Tid, turn: u32 },
    /// An interrupt.
    Noise { cpu: u32 },
}

/// [`What`], as it is kept: two numbers that a call passes in registers. A processor that reads several fields at once soon after it has
/// written them one by one has to wait.
#[derive(Clone, Copy)]
struct Packed {
    kind: Tag,
    /// Two fields of 32 bits.
    fields: u64,
}

#[derive(Clone, Copy)]
enum Tag {
    Resume,
    ArriveToRead,
    ArriveToWrite,
    Free,
    Timer,
    Ready,
    Slice,
    Yield,
    Noise,
}

impl What {
    #[inline]
    fn pack(self) -> Packed {
        let (kind, one, other) = match self {
            Self::Resume { thread, turn } => (Tag::Resume, thread, turn),
            Self::Arrive { thread, line, write: false } => (Tag::ArriveToRead, thread, line),
            Self::Arrive { thread, line, write: true } => (Tag::ArriveToWrite, thread, line),
            Self::Free { line } => (Tag::Free, line, 0),
            Self::Timer { thread, turn } => (Tag::Timer, thread, turn),
            Self::Ready { thread } => (Tag::Ready, thread, 0),
            Self::Slice { cpu, turn } => (Tag::Slice, cpu, turn),
            Self::Yield { thread, turn } => (Tag::Yield, thread, turn),
            Self::Noise { cpu } => (Tag::Noise, cpu, 0),
        };
        Packed { kind, fields: u64::from(one) | u64::from(other) << 32 }
    }
}

impl Packed {
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    fn unpack(self) -> What {
        let (one, other) = (self.fields as u32, (self.fields >> 32) as u32);
        match self.kind {
            Tag::Resume => What::Resume { thread: one, turn: other },
            Tag::ArriveToRead => What::Arrive { thread: one, line: other, write: false },
            Tag::ArriveToWrite => What::Arrive { thread: one, line: other, write: true },
            Tag::Free => What::Free { line: one },
            Tag::Timer => What::Timer { thread: one, turn: other },
            Tag::Ready => What::Ready { thread: one },
            Tag::Slice => What::Slice { cpu: one, turn: other },
            Tag::Yield => What::Yield { thread: one, turn: other },
            Tag::Noise => What::Noise { cpu: one },
        }
    }
}

#[derive(Clone, Copy)]
struct Event {
    time: Ps,
    what: Packed,
    /// The next event of its bucket, or the next free place.
    next: u32,
}

/// Events to come.
pub(crate) struct Agenda {
    /// The first event of each bucket, which is sorted.
    first: Box<[u32; BUCKETS]>,
    /// Which buckets have events.
    full: [u64; WORDS],
    /// The bucket of the last event taken, on an endless row of buckets.
    bucket: u64,
    /// Events beyond the buckets, numbered in the order of their making.
    later: BinaryHeap<Reverse<(Ps, u64, u32)>>,
    numbers: u64,
    /// All events, wherever they are, and the places of former ones.
    events: Vec<Event>,
    free: u32,
    /// The time of the first event; `Ps::MAX` if there is none.
    pub(crate) next: Ps,
    /// Its bucket; `FAR` if there is none, or a later one comes first.
    next_bucket: u64,
    /// The time of the first later one; `Ps::MAX` if there is none.
    later_from: Ps,
}

impl Default for Agenda {
    fn default() -> Self {
        Self {
            first: Box::new([NOTHING; BUCKETS]),
            full: [0; WORDS],
            bucket: 0,
            later: BinaryHeap::new(),
            numbers: 0,
            events: Vec::new(),
            free: NOTHING,
            next: Ps::MAX,
            next_bucket: FAR,
            later_from: Ps::MAX,
        }
    }
}

fn bucket_of(time: Ps) -> u64 {
    time >> BUCKET_BITS
}

#[allow(clippy::cast_possible_truncation, reason = "the remainder of a division by 1024")]
fn place_of(bucket: u64) -> usize {
    (bucket % BUCKETS as u64) as usize
}

impl Agenda {
    /// `what` happens at `time`.
    #[inline]
    pub(crate) fn post(&mut self, time: Ps, what: What) {
        self.enter(time, what.pack());
    }

    #[inline(never)]
    fn enter(&mut self, time: Ps, what: Packed) {
        let id = self.keep(time, what);
        let bucket = bucket_of(time).max(self.bucket);
        if bucket >= self.bucket + BUCKETS as u64 {
            return self.postpone(time, id);
        }
        if time < self.next {
            (self.next, self.next_bucket) = (time, bucket);
        }
        self.insert(id, bucket);
    }

    /// A place for an event.
    #[inline]
    fn keep(&mut self, time: Ps, what: Packed) -> u32 {
        let id = self.free;
        let Some(place) = self.events.get_mut(id as usize) else {
            return self.grow(time, what);
        };
        self.free = place.next;
        // One by one: all at once would be a copy from the stack, which has to wait for the parts.
        (place.time, place.what, place.next) = (time, what, NOTHING);
        id
    }

    #[cold]
    fn grow(&mut self, time: Ps, what: Packed) -> u32 {
        self.events.push(Event { time, what, next: NOTHING });
        u32::try_from(self.events.len() - 1).expect("fewer than 4 G events")
    }

    /// An event is beyond the buckets.
    #[inline(never)]
    fn postpone(&mut self, time: Ps, id: u32) {
        if time < self.next {
            (self.next, self.next_bucket) = (time, FAR);
        }
        self.later_from = self.later_from.min(time);
        self.numbers += 1;
        self.later.push(Reverse((time, self.numbers, id)));
    }

    /// Puts an event, whose time is near, where it belongs. Of the events with its time, it was made last: a later one
    /// comes here as soon as its bucket is near, and so before any other that is posted to this bucket.
    #[inline]
    fn insert(&mut self, id: u32, bucket: u64) {
        let place = place_of(bucket);
        if self.first[place] == NOTHING {
            self.full[place / 64] |= 1 << (place % 64);
            self.first[place] = id;
        } else {
            self.sort_in(id, place);
        }
    }

    fn sort_in(&mut self, id: u32, place: usize) {
        let time = self.events[id as usize].time;
        let mut before = NOTHING;
        let mut after = self.first[place];
        while let Some(other) = self.events.get(after as usize)
            && other.time <= time
        {
            before = after;
            after = other.next;
        }
        self.events[id as usize].next = after;
        if before == NOTHING {
            self.first[place] = id;
        } else {
            self.events[before as usize].next = id;
        }
    }

    /// The bucket of the first event; `FAR` if it is a later one, or there is none.
    #[inline]
    fn near(&self) -> u64 {
        let start = place_of(self.bucket);
        let bits = self.full[start / 64] >> (start % 64);
        if bits != 0 {
            return self.bucket + u64::from(bits.trailing_zeros());
        }
        // The last of these words is the first one again; only its lower bits can be set.
        let base = self.bucket - (start % 64) as u64;
        let found = (1..=WORDS).find_map(|further| {
            let bits = self.full[(start / 64 + further) % WORDS];
            (bits != 0).then(|| base + 64 * further as u64 + u64::from(bits.trailing_zeros()))
        });
        found.unwrap_or(FAR)
    }

    /// Some later events are near now.
    #[cold]
    fn approach(&mut self) {
        while let Some(&Reverse((time, _, id))) = self.later.peek()
            && bucket_of(time) < self.bucket + BUCKETS as u64
        {
            self.later.pop();
            self.insert(id, bucket_of(time));
        }
        self.later_from = self.later.peek().map_or(Ps::MAX, |&Reverse((time, ..))| time);
    }

    /// Takes the first event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Ps, What)> {
        if self.next_bucket != FAR {
            self.bucket = self.next_bucket;
        } else if self.later_from != Ps::MAX {
            self.bucket = bucket_of(self.later_from);
        } else {
            return None;
        }
        if bucket_of(self.later_from) < self.bucket + BUCKETS as u64 {
            self.approach();
        }
        let place = place_of(self.bucket);
        let id = self.first[place];
        let event = &mut self.events[id as usize];
        let (time, what, next) = (event.time, event.what, event.next);
        event.next = self.free;
        self.free = id;
        self.first[place] = next;
        if next == NOTHING {
            self.emptied(place);
        } else {
            (self.next_bucket, self.next) = (self.bucket, self.events[next as usize].time);
        }
        Some((time, what.unpack()))
    }

    /// The bucket of the last event has no more events.
    #[inline]
    fn emptied(&mut self, place: usize) {
        self.full[place / 64] &= !(1 << (place % 64));
        self.next_bucket = self.near();
        self.next = if self.next_bucket == FAR {
            self.later_from
        } else {
            self.events[self.first[place_of(self.next_bucket)] as usize].time
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events are taken as from a sorted list, whatever their distances.
    #[test]
    fn events_come_by_time_and_then_by_their_making() {
        let mut rng = fastrand::Rng::with_seed(1);
        for spread in [0, 1, 12, 14, 20, 23, 30, 40] {
            let (mut agenda, mut list) = (Agenda::default(), Vec::new());
            let (mut now, mut number) = (0, 0);
            for _ in 0..20_000 {
                // Sometimes more, sometimes fewer of them, so that the agenda also runs empty.
                if rng.u32(0..100) < if now % 7 < 4 { 60 } else { 40 } || list.is_empty() {
                    let time = now + rng.u64(0..1 << spread);
                    agenda.post(time, What::Ready { thread: number });
                    list.push((time, number));
                    number += 1;
                } else {
                    let (first, &event) = list.iter().enumerate().min_by_key(|(_, e)| **e).unwrap();
                    list.swap_remove(first);
                    assert_eq!(agenda.pop(), Some((event.0, What::Ready { thread: event.1 })));
                    now = event.0;
                }
                assert_eq!(agenda.next, list.iter().map(|e| e.0).min().unwrap_or(Ps::MAX));
            }
            while agenda.pop().is_some() {
                list.pop().unwrap();
            }
            assert!(list.is_empty());
        }
    }
}
