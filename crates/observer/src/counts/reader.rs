//! Reads segments.

use super::beyond::{Beyond, Prefers, Side, Sides, Wakes};
use super::snapshot::{At, Lock, LockKind, Of, Part, Seen, Signals, Snapshot, Waits};
use crate::bytes::Bytes;
use crate::stack::Piece;
use lockwright_contract::counters::LOGARITHM;
use lockwright_contract::counters::layout::SCALE;
use lockwright_contract::counters::layout::{
    ADDRESS_BITS, BUCKETS, CountersHeader, GONE, KEYS_AT, LOCKS, MAPS, MAPS_AT, MEMORY_AT, NOTHING,
    OTHER_LOCKS, PIECE, PIECE_KEYS_AT, PIECES, PIECES_AT, RECORD, RECORDS, Record, STACKS,
    STACKS_AT, Site, Stack, THREADS, Thread, UNUSED, WHOLE, is_lock, record_at,
};
use lockwright_contract::hash::MOVING;
use lockwright_contract::header::Foreign;
use lockwright_numbers::Times;
use lockwright_stats::Author;
use lockwright_symbols::mappings_in;
use lockwright_text::{Failure, cause};
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

/// Reads a segment. Its process may have ended.
pub fn read(file: &File, path: &Path) -> Result<Snapshot, Failure> {
    Reader::default().read(file, path)
}

/// Reads a segment repeatedly, and reuses the data of locks that haven't changed.
#[derive(Default)]
pub struct Reader {
    /// By place: the bytes of the counts at the last read, and the lock.
    known: BTreeMap<usize, (Box<[u8]>, Rc<Lock>)>,
    /// By number. Pieces never change.
    pieces: BTreeMap<u32, Rc<Piece>>,
}

impl Reader {
    /// As [`read`]. It must be the same segment each time.
    pub fn read(&mut self, file: &File, path: &Path) -> Result<Snapshot, Failure> {
        let refuse = |why: &str| {
            Failure::new(format!("cannot read '{}': {why}", path.display()))
                .hint("lockwright profile -- PROGRAM writes and reads such a file")
        };
        let metadata = file.metadata().map_err(|error| refuse(&cause(&error)))?;
        // SAFETY: no preconditions.
        let user = unsafe { libc::geteuid() };
        if metadata.uid() != user && user != 0 {
            return Err(refuse("it belongs to another user"));
        }
        let mut head = vec![0; MAPS_AT];
        file.read_exact_at(&mut head, 0).map_err(|_| refuse("it is too short"))?;
        let head = Bytes(&head);
        let author = Author::read::<CountersHeader>(head.0).map_err(|foreign| match foreign {
            Foreign::Version(_) => refuse("another version of lockwright wrote it"),
            _ => refuse("it holds no counts of locks"),
        })?;
        let mut maps =
            vec![0; (head.u64(offset_of!(CountersHeader, maps_length)) as usize).min(MAPS)];
        file.read_exact_at(&mut maps, MAPS_AT as u64).map_err(|_| refuse("it is too short"))?;
        let mut stacks = Stacks { head: &head, file, pieces: &mut self.pieces };
        let (mut locks, mut signals) = (BTreeMap::<Of, Rc<Lock>>::new(), Signals::default());
        let mut conditions = BTreeMap::<Of, Rc<Lock>>::new();
        let mut known = BTreeMap::new();
        let mut bytes = vec![0; RECORD];
        for index in 0..RECORDS {
            let key = if index >= OTHER_LOCKS { MOVING } else { head.u64(KEYS_AT + index * 8) };
            let memory = head.u32(MEMORY_AT + index * 4);
            if key == 0 || key == MOVING && index < LOCKS || [UNUSED, NOTHING].contains(&memory) {
                continue;
            }
            let of = match key {
                _ if index >= OTHER_LOCKS => Of::Others,
                key if key & GONE != 0 => Of::Gone(key & (GONE - 1)),
                key => Of::Lock(key & ((1 << ADDRESS_BITS) - 1)),
            };
            // Most of a record consists of times, and few programs have waits on slower cores. These can change only if
            // the counts do.
            let (counts, all) = bytes.split_at_mut(offset_of!(Record, hold));
            let at = record_at(index) as u64;
            file.read_exact_at(counts, at).map_err(|_| refuse("it is too short"))?;
            let lock = match self.known.remove(&index) {
                Some((then, lock)) if *then == *counts && lock.of == of => (then, lock),
                _ => {
                    let times = match memory {
                        WHOLE => all,
                        _ => {
                            let (there, not) =
                                all.split_at_mut(offset_of!(Record, slower) - counts.len());
                            not.fill(0);
                            there
                        }
                    };
                    file.read_exact_at(times, at + counts.len() as u64)
                        .map_err(|_| refuse("it is too short"))?;
                    let then = counts.to_vec().into_boxed_slice();
                    (then, Rc::new(lock(of, Bytes(&bytes), &mut stacks)))
                }
            };
            let (counts, lock) = lock;
            known.insert(index, (counts, Rc::clone(&lock)));
            // If two records exist for one lock, which can happen by accident, the first one counts.
            if lock.is_signal {
                signals.semaphores = signals.semaphores.saturating_add(u64::from(lock.locks));
                signals.waits = signals.waits.saturating_add(lock.arrived);
                signals.wait_ns = signals.wait_ns.saturating_add(lock.wait_ns());
            } else if lock.has_counts() {
                let all =
                    if lock.kind == LockKind::Condition { &mut conditions } else { &mut locks };
                all.entry(of).or_insert(lock);
            }
        }
        self.known = known;
        Ok(Snapshot {
            pid: author.pid,
            lock: author.lock,
            emulated: author.emulated,
            command: author.command,
            start_ns: author.start_ns,
            last_ns: author.last_ns,
            unplaced: head.u64(offset_of!(CountersHeader, unplaced)),
            evicted: head.u64(offset_of!(CountersHeader, evicted)),
            retired: head.u64(offset_of!(CountersHeader, retired)),
            stacks_lost: head.u64(offset_of!(CountersHeader, stacks_lost)),
            lost: head.u64(offset_of!(CountersHeader, lost)),
            mappings: mappings_in(&String::from_utf8_lossy(&maps)),
            locks: locks.into_values().collect(),
            conditions: conditions.into_values().collect(),
            signals,
        })
    }
}

/// Where stacks are.
struct Stacks<'a> {
    head: &'a Bytes<'a>,
    file: &'a File,
    pieces: &'a mut BTreeMap<u32, Rc<Piece>>,
}

impl Stacks<'_> {
    /// The piece of the stack with this number; `None`: it has none.
    fn piece(&mut self, number: u32) -> Option<Rc<Piece>> {
        let index = ((number & !PIECE) as usize).checked_sub(1).filter(|_| number & PIECE != 0)?;
        if let Some(known) = self.pieces.get(&number) {
            return Some(Rc::clone(known));
        }
        let key = (index < PIECES).then(|| self.head.u64(PIECE_KEYS_AT + index * 8))?;
        let piece = Rc::new(Piece::read(self.file, PIECES_AT, index, key)?);
        self.pieces.insert(number, Rc::clone(&piece));
        Some(piece)
    }
}

impl Bytes<'_> {
    fn times(&self, at: usize) -> Times {
        let bytes = &self.0[at..at + BUCKETS * 8];
        let count = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let buckets = bytes.chunks_exact(8).map(count).enumerate();
        buckets.map(|(at, count)| (SCALE.middle(at), count)).collect()
    }

    fn sites(&self, at: usize, stacks: &mut Stacks<'_>) -> Vec<Seen> {
        let site = |index: usize| {
            let at = at + index * size_of::<Site>();
            let address = self.u64(at + offset_of!(Site, address));
            let stack = self.u32(at + offset_of!(Site, stack));
            (address != 0).then(|| Seen {
                at: At::new(address),
                count: self.u64(at + offset_of!(Site, count)),
                ns: self.u64(at + offset_of!(Site, ns)),
                max_ns: self.u64(at + offset_of!(Site, max_ns)),
                max_tid: self.u32(at + offset_of!(Site, max_tid)),
                stack: stacks.head.stack(stack as usize),
                piece: stacks.piece(stack),
            })
        };
        let mut sites: Vec<Seen> =
            (0..lockwright_contract::counters::layout::SITES).filter_map(site).collect();
        sites.sort_by_key(|site| std::cmp::Reverse((site.ns, site.count)));
        sites
    }

    fn threads(&self) -> Vec<Part> {
        let part = |index: usize| {
            let at = offset_of!(Record, threads) + index * size_of::<Thread>();
            Part {
                tid: self.u32(offset_of!(Record, tids) + index * 4),
                waits: self.u64(at + offset_of!(Thread, waits)),
                wait_ns: self.u64(at + offset_of!(Thread, wait_ns)),
                blamed_ns: self.u64(at + offset_of!(Thread, blamed_ns)),
            }
        };
        let all = (0..THREADS).map(part).filter(|part| part.tid != 0);
        all.filter(|part| part.wait_ns > 0 || part.blamed_ns > 0).collect()
    }

    /// The stack with this index + 1; empty: there is none, or it is still being written.
    fn stack(&self, number: usize) -> Vec<u64> {
        if number == 0 || number > STACKS {
            return Vec::new();
        }
        let at = STACKS_AT + (number - 1) * size_of::<Stack>();
        let frames = at + offset_of!(Stack, frames)..at + size_of::<Stack>();
        let frames: Vec<u64> =
            frames.step_by(8).map(|at| self.u64(at)).take_while(|&frame| frame != 0).collect();
        let is_whole = lockwright_contract::counters::stack_hash(&frames) == self.u64(at);
        if is_whole { frames } else { Vec::new() }
    }
}

fn lock(of: Of, record: Bytes<'_>, stacks: &mut Stacks<'_>) -> Lock {
    use lockwright_contract::counters::layout::{Class, Histogram};
    let number = |offset| record.u64(offset);
    let class = |index: usize| {
        let at = offset_of!(Record, classes) + index * size_of::<Class>();
        let times = match index {
            0 => offset_of!(Record, wait),
            slower => offset_of!(Record, slower) + (slower - 1) * size_of::<Histogram>(),
        };
        Waits {
            awake: record.u64(at + offset_of!(Class, awake)),
            asleep: record.u64(at + offset_of!(Class, asleep)),
            ns: record.u64(at + offset_of!(Class, wait_ns)),
            max_ns: record.u64(at + offset_of!(Class, max_ns)),
            times: record.times(times),
        }
    };
    let is_gone = number(offset_of!(Record, destroyed)) != 0;
    use lockwright_contract::counters::layout::LockKind as Kind;
    let kind = match Kind::from_number(record.u32(offset_of!(Record, kind))) {
        Some(Kind::Semaphore) => LockKind::Semaphore,
        Some(Kind::ReadWrite) => LockKind::ReadWrite,
        Some(Kind::Spin) => LockKind::Spin,
        Some(Kind::Cond) => LockKind::Condition,
        Some(Kind::Mutex) | None => LockKind::Mutex,
    };
    let (releases, signals) =
        (number(offset_of!(Record, releases)), number(offset_of!(Record, signals)));
    Lock {
        of,
        kind,
        is_signal: kind == LockKind::Semaphore && !is_lock(releases, signals, is_gone),
        tenants: number(offset_of!(Record, tenants)),
        arrived: number(offset_of!(Record, arrived)),
        is_gone,
        gave_up: number(offset_of!(Record, gave_up)),
        holds: number(offset_of!(Record, holds)),
        hold_ns: number(offset_of!(Record, hold_ns)),
        hold_max_ns: number(offset_of!(Record, hold_max_ns)),
        hold_max_at: At::new(number(offset_of!(Record, hold_max_site))),
        blocked_ns: number(offset_of!(Record, blocked_ns)),
        wait_max_ns: number(offset_of!(Record, wait_max_ns)),
        wait_max_at: At::new(number(offset_of!(Record, wait_max_site))),
        is_part: false,
        acquired: number(offset_of!(Record, acquired)),
        followed: number(offset_of!(Record, followed)),
        owners: number(offset_of!(Record, owners)),
        cores: number(offset_of!(Record, cores)),
        place: record.u32(offset_of!(Record, place)),
        locks: record.u32(offset_of!(Record, locks)).max(1),
        classes: std::array::from_fn(class),
        waiters: record.sites(offset_of!(Record, waiters), stacks),
        holders: record.sites(offset_of!(Record, holders), stacks),
        threads: record.threads(),
        hold: record.times(offset_of!(Record, hold)),
        open_since_ns: number(offset_of!(Record, blocked_since_ns)) & !LOGARITHM,
        unended_ns: 0,
        beyond: beyond(kind, &record, stacks),
    }
}

fn beyond(kind: LockKind, record: &Bytes<'_>, stacks: &mut Stacks<'_>) -> Beyond<Seen> {
    use lockwright_contract::counters::layout::{Side as Waits, Wakes as Woken};
    let side = |at: usize| Side {
        waits: record.u64(at + offset_of!(Waits, waits)),
        wait_ns: record.u64(at + offset_of!(Waits, wait_ns)),
        max_ns: record.u64(at + offset_of!(Waits, max_ns)),
        behind_readers: record.u64(at + offset_of!(Waits, behind_readers)),
        behind_writer: record.u64(at + offset_of!(Waits, behind_writer)),
    };
    let number = |offset: usize| record.u64(offset_of!(Record, wakes) + offset);
    Beyond {
        failed_tries: record.u64(offset_of!(Record, failed_tries)),
        triers: record.sites(offset_of!(Record, triers), stacks),
        tried_holders: record.sites(offset_of!(Record, tried_holders), stacks),
        sides: (kind == LockKind::ReadWrite).then(|| Sides {
            prefer: Prefers::of(record.u32(offset_of!(Record, prefer))),
            readers: side(offset_of!(Record, readers)),
            writers: side(offset_of!(Record, writers)),
        }),
        wakes: (kind == LockKind::Condition).then(|| Wakes {
            mutex: number(offset_of!(Woken, mutex)),
            signals: number(offset_of!(Woken, signals)),
            broadcasts: number(offset_of!(Woken, broadcasts)),
            woken: number(offset_of!(Woken, woken)),
            got_on: number(offset_of!(Woken, got_on)),
            wasted: number(offset_of!(Woken, wasted)),
            by_waiters: number(offset_of!(Woken, by_waiters)),
        }),
    }
}
