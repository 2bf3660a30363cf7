//! Tells a running process which of its functions only pass a lock on ([`super::wrapper`]), so that it counts where these are called
//! ([`lockwright_contract::counters::wrappers`]).

use super::outcome::is_of_a_lock;
use super::snapshot::{At, Snapshot};
use super::wrapper::has_section;
use crate::mailbox::symbol_in;
use crate::process::Process;
use lockwright_contract::counters::wrappers::{
    BackSlot, Base, MAGIC, SYMBOL, WRAPPERS, Wrapper, Wrappers,
};
use lockwright_symbols::{ReturnSlot, Symboliser, Unwinder};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Finds a process's wrappers in what it has counted, and tells the process.
#[derive(Default)]
pub(crate) struct Passers {
    /// How often each address was looked at, or [`TRIES`]: it is nobody's, or given to the process.
    known: BTreeMap<u64, u32>,
    given: u32,
}

/// How often an address without a name is looked at: its library may have been loaded just now.
const TRIES: u32 = 20;
/// Nobody may have released a lock for a waiter yet. How often its functions are looked at until then, at most.
const UNTIL_RELEASED: u32 = 10;

impl Passers {
    /// Looks at places that are new in these counts. The process is opened only to write an entry: naming may take long, and other
    /// commands wait meanwhile.
    pub(crate) fn look(
        &mut self,
        pid: libc::pid_t,
        counts: &Snapshot,
        symbols: &mut Symboliser,
        unwinder: &mut Unwinder,
    ) {
        // The process may have ended.
        let tell = |back, slot| give(&Process::open(pid).ok()?, back, slot);
        self.look_and(tell, counts, symbols, unwinder);
    }

    /// The same for a process that is open.
    pub(crate) fn look_in(
        &mut self,
        process: &Process,
        counts: &Snapshot,
        symbols: &mut Symboliser,
        unwinder: &mut Unwinder,
    ) {
        self.look_and(|back, slot| give(process, back, slot), counts, symbols, unwinder);
    }

    fn look_and(
        &mut self,
        tell: impl Fn(u64, BackSlot) -> Option<u32>,
        counts: &Snapshot,
        symbols: &mut Symboliser,
        unwinder: &mut Unwinder,
    ) {
        let sites = counts.locks.iter().flat_map(|lock| {
            lock.waiters.iter().chain(&lock.holders).map(move |site| (lock, site))
        });
        for (lock, site) in sites {
            let At::Address(back) = site.at else { continue };
            let tries = self.known.entry(back).or_default();
            if *tries >= TRIES || self.given as usize == WRAPPERS {
                continue;
            }
            *tries += 1;
            // By the symbol tables: debug information may take seconds to read, and inlined functions have no return address.
            let bare = symbols.bare(back.saturating_sub(1));
            let is_named = bare.function.is_some();
            let passes = match is_named {
                true => is_of_a_lock(&bare),
                false => symbols.code(back.saturating_sub(1)).iter().all(is_of_a_lock),
            };
            if !passes {
                *tries = if is_named { TRIES } else { *tries };
                continue;
            }
            if has_section(lock, back, symbols) {
                *tries = TRIES;
                continue;
            }
            if lock.holders.is_empty() && *tries < UNTIL_RELEASED {
                continue;
            }
            let Some(slot) = unwinder.return_slot(back).and_then(slot) else { continue };
            if let Some(count) = tell(back, slot) {
                (self.given, *tries) = (count, TRIES);
            }
        }
    }
}

/// Writes an entry, and then the number of entries, which it returns. An earlier command may have given the process the same one.
fn give(process: &Process, from: u64, slot: BackSlot) -> Option<u32> {
    let at = symbol_in(process, SYMBOL).ok()?;
    let mut head = [0; 16];
    process.read(at, &mut head).ok()?;
    let is_ours = head[..8] == MAGIC.to_le_bytes()
        && head[8..12] == (size_of::<Wrappers>() as u32).to_le_bytes();
    let count = u32::from_le_bytes(head[12..].try_into().ok()?);
    if !is_ours || count as usize > WRAPPERS {
        return None;
    }
    let all = at + offset_of!(Wrappers, all) as u64;
    let mut known = vec![0; count as usize * size_of::<Wrapper>()];
    process.read(all, &mut known).ok()?;
    if known.chunks(size_of::<Wrapper>()).any(|one| one[..8] == from.to_le_bytes()) {
        return Some(count);
    }
    if count as usize == WRAPPERS {
        return None;
    }
    let entry = all + known.len() as u64;
    let bytes = [from.to_le_bytes(), slot.pack().to_le_bytes()].concat();
    process.write(entry, &bytes).ok()?;
    let count_at = at + offset_of!(Wrappers, count) as u64;
    process.write(count_at, &(count + 1).to_le_bytes()).ok()?;
    Some(count + 1)
}

/// As the process reads it; `None`: it is too far away.
fn slot(found: ReturnSlot) -> Option<BackSlot> {
    let place = |(by_frame, distance): (bool, u16)| {
        let base = if by_frame { Base::Frame } else { Base::Stack };
        (distance <= BackSlot::MOST).then_some((base, distance))
    };
    let frame = match found.frame {
        None => None,
        Some(frame) => Some(place(frame)?),
    };
    Some(BackSlot { back: place(found.back)?, frame })
}
