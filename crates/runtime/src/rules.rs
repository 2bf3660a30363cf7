//! LOCKWRIGHT_RULES: which mutexes have a lock of their own, by who calls or where the mutex lies.
//!
//! A rule's target keeps one place forever, whichever tables name it. A table says in which order targets are asked.

use crate::access::{self, Access};
use crate::env::cut;
use crate::{files, real};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};

/// The place of mutexes that no rule names.
pub(crate) const DEFAULT_PLACE: u32 = 1;
/// Places from 0, which is not decided yet, to 30.
pub(crate) const PLACES: usize = 31;
/// How many targets there can be: one place each, in addition to the default's.
const TARGETS: usize = PLACES - 1 - DEFAULT_PLACE as usize;

/// How a target selects mutexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Those first contended by a call from these addresses.
    Call,
    /// Those at these addresses.
    Mutex,
    /// Those first contended by a call from this module.
    Library,
}

/// Which mutexes a rule is for. `low..high` are offsets from the module's load address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    what: What,
    module: &'a [u8],
    low: usize,
    high: usize,
}

/// In which order a table's targets are asked: their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    places: [u8; TARGETS],
    len: u8,
}

impl Order {
    /// Asks nobody.
    pub(crate) const NOBODY: Self = Self { places: [0; TARGETS], len: 0 };

    /// Asks the target of a place, after the others.
    pub(crate) fn push(&mut self, place: usize) {
        if let Some(slot) = self.places.get_mut(usize::from(self.len)) {
            *slot = place as u8; // below 31
            self.len += 1;
        }
    }

    fn places(&self) -> impl Iterator<Item = u32> {
        self.places[..usize::from(self.len)].iter().map(|&place| u32::from(place))
    }
}

struct Store {
    /// By place.
    targets: [Option<Target<'static>>; PLACES],
    program: [u8; 256],
    program_len: usize,
}

struct Shared(UnsafeCell<Store>);
// SAFETY: written by one thread at a time, which makes a table; a target is read only by way of a table that names it,
// which is published after it was written.
unsafe impl Sync for Shared {}
static STORE: Shared =
    Shared(UnsafeCell::new(Store { targets: [None; PLACES], program: [0; 256], program_len: 0 }));

/// Is there a place for each of these targets?
///
/// # Safety
/// As [`place`].
pub(crate) unsafe fn have_room<'a>(wanted: impl Iterator<Item = Target<'a>> + Clone) -> bool {
    // SAFETY: nobody else writes.
    let targets = unsafe { &(*STORE.0.get()).targets };
    let is_known = |target: &Target<'_>| targets.iter().flatten().any(|known| known == target);
    // Count each once, though a table may name it twice.
    let new = wanted.clone().enumerate().filter(|(at, target)| {
        !is_known(target) && !wanted.clone().take(*at).any(|before| before == *target)
    });
    new.count() <= TARGETS - targets.iter().flatten().count()
}

/// The place of a target, an old one or a new one; `None`: there is no place left.
///
/// # Safety
/// Called by one thread at a time.
pub(crate) unsafe fn place(target: Target<'static>) -> Option<usize> {
    let store = STORE.0.get();
    // SAFETY: nobody else writes.
    let targets = unsafe { &(*store).targets };
    let places = DEFAULT_PLACE as usize + 1..PLACES;
    let place = places.clone().find(|&place| targets[place] == Some(target));
    let place = place.or_else(|| places.clone().find(|&place| targets[place].is_none()))?;
    // SAFETY: as above; of a target that a table names nothing changes, and the others nobody reads.
    unsafe {
        if (*store).targets[place].is_none() {
            if (*store).program_len == 0 {
                load_program(&mut *store);
            }
            (&raw mut (*store).targets[place]).write(Some(target));
        }
    }
    Some(place)
}

fn load_program(store: &mut Store) {
    let mut path = [0_u8; 4096];
    let name = if access::now() == Access::All {
        files::program(&mut path)
    } else {
        // By the name it was started with, which may be a symbolic link.
        // SAFETY: no preconditions.
        let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
        // SAFETY: the kernel's own C string, at the top of the stack.
        if name.is_null() { b"".as_slice() } else { unsafe { CStr::from_ptr(name) }.to_bytes() }
    };
    let name = base_name(name);
    store.program_len = name.len().min(store.program.len());
    store.program[..store.program_len].copy_from_slice(&name[..store.program_len]);
}

/// Parses `WHAT:TARGET=SPEC` into the target and the specification.
pub(crate) fn parse(piece: &[u8]) -> Option<(Target<'_>, &[u8])> {
    let (what, rest) = cut(piece, b':')?;
    let (target, spec) = cut(rest, b'=')?;
    let what = match what {
        b"call" => What::Call,
        b"mutex" => What::Mutex,
        b"lib" => {
            let target = Target { what: What::Library, module: target, low: 0, high: usize::MAX };
            return Some((target, spec));
        }
        _ => return None,
    };
    // The last '+': a module's name may have some of its own (libstdc++.so.6).
    let plus = target.iter().rposition(|&byte| byte == b'+')?;
    let (low, high) = cut(&target[plus + 1..], b'-')?;
    let target = Target { what, module: &target[..plus], low: hex(low)?, high: hex(high)? };
    Some((target, spec))
}

fn hex(text: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// The place that the first fitting rule gives to this mutex, contended by a call at `caller`.
///
/// Objects are found by glibc, from 2.35 on; without it no rule fits.
pub(crate) fn rule_for(order: &'static Order, mutex: usize, caller: usize) -> Option<u32> {
    if order.len == 0 {
        return None;
    }
    // SAFETY: the table is published: its targets, and the program's name, don't change any more.
    let (targets, program) = unsafe {
        let store = STORE.0.get();
        (&raw const (*store).targets, &(&(*store).program)[..(*store).program_len])
    };
    let (calling, holding) = (locate(program, caller), locate(program, mutex));
    order.places().find(|&place| {
        // SAFETY: as above.
        let Some(target) = (unsafe { (*targets)[place as usize] }) else { return false };
        let at = if target.what == What::Mutex { holding } else { calling };
        at.is_some_and(|(module, offset)| {
            module == target.module && (target.low..target.high).contains(&offset)
        })
    })
}

/// The module that an address belongs to, and its offset there.
fn locate(program: &'static [u8], address: usize) -> Option<(&'static [u8], usize)> {
    let found = real::object_at(address)?;
    let name = found.name();
    // The program itself has no name there.
    let name = if name.is_empty() { program } else { base_name(name) };
    Some((name, address - found.map_start as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_modules_with_plus_signs() {
        let (rule, spec) = parse(b"call:libstdc++.so.6+0x10-0x20=fifo").unwrap();
        assert_eq!(rule.module, b"libstdc++.so.6");
        assert_eq!(spec, b"fifo");
        assert_eq!((rule.what, rule.low, rule.high), (What::Call, 0x10, 0x20));
        let (rule, _) = parse(b"lib:a.so=mcs").unwrap();
        assert_eq!((rule.what, rule.module), (What::Library, b"a.so".as_slice()));
        for bad in ["call:a=fifo", "mutex:a+10-20=fifo", "x:a=fifo", "lib"] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
