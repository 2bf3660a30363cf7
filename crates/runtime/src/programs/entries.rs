//! The policies in this process's memory: which are in force, and what it takes to run one.

use super::mailbox::lockwright_programs;
use super::{cells, grace};
use crate::access::{self, Access};
use crate::posts;
use core::cell::Cell;
use core::ptr::{self, null_mut};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_contract::programs::env::{Code, Env};
use lockwright_contract::programs::mailbox::{HOOKS, SLOTS};
use lockwright_contract::programs::maps::{Map, View};
use lockwright_native::kernel;

/// How many may be mapped at once: one in each slot, and those that a thread may still be in.
const ENTRIES: usize = 32;

/// A policy. Only the thread whose turn BUSY is writes it, while no slot leads here and no thread is inside.
pub(super) struct Mapped {
    /// Its number among all, as cells have it.
    mark: u32,
    /// Its slot.
    pub(super) slot: Cell<u32>,
    /// Counts the policies of that slot.
    pub(super) turn: Cell<u32>,
    /// By hook.
    pub(super) code: Cell<[Option<Code>; HOOKS]>,
    /// What its hooks are given, once it has been loaded. (Not from the start: each address would be a relocation in each program.)
    pub(super) env: Cell<Option<Env>>,
    /// What is mapped: code, and its bytes; 0: nothing.
    code_at: Cell<(*mut u8, usize)>,
    /// Likewise, the maps.
    data_at: Cell<(*mut u8, usize)>,
}

impl Mapped {
    const fn new(number: u32) -> Self {
        Self {
            mark: cells::INSIDE | number,
            slot: Cell::new(0),
            turn: Cell::new(0),
            code: Cell::new([None; HOOKS]),
            env: Cell::new(None),
            code_at: Cell::new((null_mut(), 0)),
            data_at: Cell::new((null_mut(), 0)),
        }
    }

    /// Its hook.
    #[inline(always)]
    pub(super) fn code(&self, hook: usize) -> Option<Code> {
        // SAFETY: nobody writes while threads may be inside; a hook's number.
        unsafe { (*self.code.as_ptr()).get(hook).copied().flatten() }
    }

    /// What its hooks are given.
    #[inline(always)]
    pub(super) fn env(&self) -> &Env {
        // SAFETY: nobody writes while threads may be inside, and it is set before a slot leads here.
        unsafe { (*self.env.as_ptr()).as_ref().unwrap_unchecked() }
    }

    /// Maps memory for code and maps, all zeroes. What can't be mapped stays null.
    pub(super) fn map(&self, code_len: usize, data_len: usize) -> Option<(*mut u8, *mut u8)> {
        let code = posts::map(code_len)?;
        self.code_at.set((code, code_len));
        if data_len == 0 {
            return Some((code, null_mut()));
        }
        let data = posts::map(data_len)?;
        self.data_at.set((data, data_len));
        Some((code, data))
    }

    /// Makes the code executable, and no longer writable.
    pub(super) fn seal(&self) -> bool {
        let (code, len) = self.code_at.get();
        flush(code, len);
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        access::asking(|access| {
            // SAFETY: our own mapping.
            access != Access::None && unsafe { kernel::protect(code, len, protection) }
        })
    }

    /// Its mark in a cell.
    #[inline(always)]
    pub(super) fn mark(&self) -> u32 {
        self.mark
    }

    /// Does it have memory, though its slot doesn't lead to it (any more)?
    fn is_old(&self) -> bool {
        !self.code_at.get().0.is_null() && !ptr::eq(current(self.slot.get()), self)
    }

    fn unmap(&self) {
        for at in [&self.code_at, &self.data_at] {
            let (memory, len) = at.replace((null_mut(), 0));
            if !memory.is_null() {
                // SAFETY: our own mapping, and no thread is in a hook of this policy, or will be.
                unsafe { posts::unmap(memory, len) };
            }
        }
    }
}

/// After code has been written as data.
fn flush(code: *const u8, len: usize) {
    #[cfg(target_arch = "aarch64")] // untested
    for at in (0..len).step_by(16) {
        // SAFETY: our own mapping; the lines of both caches are at least 16 bytes long.
        unsafe {
            core::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", in(reg) code.add(at), options(nostack));
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: barriers.
    unsafe {
        core::arch::asm!("dsb ish", "isb", options(nostack));
    }
    let _ = (code, len);
}

struct Entries([Mapped; ENTRIES]);
// SAFETY: see `Mapped`.
unsafe impl Sync for Entries {}
static ALL: Entries = {
    let mut all = [const { Mapped::new(0) }; ENTRIES];
    let mut number = 0;
    while number < ENTRIES {
        all[number] = Mapped::new(number as u32);
        number += 1;
    }
    Entries(all)
};

/// By slot; null: no policy.
static CURRENT: [AtomicPtr<Mapped>; SLOTS] = [const { AtomicPtr::new(null_mut()) }; SLOTS];

/// What a slot leads to; null: nothing.
#[inline(always)]
pub(super) fn current(slot: u32) -> *const Mapped {
    // ORDERING: Acquire, pairs with the Release in `set`: it is complete.
    CURRENT.get(slot as usize).map_or(null_mut(), |entry| entry.load(Acquire))
}

/// From now on a slot leads there. BUSY is ours.
pub(super) fn set(slot: u32, entry: *const Mapped) {
    if let Some(current) = CURRENT.get(slot as usize) {
        // ORDERING: Release, pairs with the Acquire in `current`.
        current.store(entry.cast_mut(), Release);
    }
}

/// The slot leads nowhere any more, if it led to this entry.
pub(super) fn remove(entry: &Mapped) -> bool {
    let own = ptr::from_ref(entry).cast_mut();
    let current = CURRENT.get(entry.slot.get() as usize);
    // ORDERING: AcqRel, pairs with the Acquire in `current`, for the one who will unmap it.
    current
        .is_some_and(|current| current.compare_exchange(own, null_mut(), AcqRel, Relaxed).is_ok())
}

/// An entry without memory. BUSY is ours.
pub(super) fn unused() -> Option<&'static Mapped> {
    ALL.0.iter().find(|entry| entry.code_at.get().0.is_null())
}

/// Unmaps what no slot leads to, and no thread is in. BUSY is ours.
pub(super) fn reclaim() {
    let old = || ALL.0.iter().filter(|entry| entry.is_old());
    access::asking(|access| {
        // `munmap` needs no question that the dynamic linker hasn't asked, unless the process has confined itself.
        if access != Access::None && old().next().is_some() && grace::barrier() {
            old()
                .filter(|entry| !cells::is_anybody_in(entry.slot.get(), entry.mark()))
                .for_each(Mapped::unmap);
        }
    });
    lockwright_programs.retired.store(old().count() as u32, Relaxed); // for the command
}

/// In a forked child: ends what other threads were doing in the maps.
pub(super) fn forget_writers() {
    for slot in 0..SLOTS as u32 {
        // SAFETY: null, or an entry.
        let Some(entry) = (unsafe { current(slot).as_ref() }) else { continue };
        let (data, len) = entry.data_at.get();
        if data.is_null() {
            continue;
        }
        // SAFETY: our mapping; one thread.
        let views = View::all(unsafe { core::slice::from_raw_parts(data, len) });
        views.fold(0, |at, view| {
            // SAFETY: the view found a map there.
            unsafe { Map::forget_writers(data.add(at).cast()) };
            at + view.len()
        });
    }
}
