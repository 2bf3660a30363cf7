//! LOCKWRIGHT_RULES: which mutexes have a lock of their own, by where the call comes from, where the mutex lies, or its kind.
//!
//! A rule whose lock is `rwlock` is for readers-writer locks, at an address or all of them (`kind:rwlock`), and for no mutex: it says who
//! goes first there (`preference`).
//!
//! A rule's target keeps its place as long as there is room, whichever tables name it. A table says in which order targets are
//! asked. Where 29 places are not enough, a new target gets the place of one that neither the current table nor the new one names. A
//! mutex that nobody has contended for since then may come under the new target's lock until it chooses anew; that lock serves it as
//! well as any other.

use crate::env::cut;
use crate::{files, real};
use core::cell::{LazyCell, UnsafeCell};
use lockwright_contract::mailbox::{KINDS, RULES, RWLOCK};
use lockwright_locks::posix::TYPE;

/// The place of mutexes that no rule names.
pub(crate) const DEFAULT_PLACE: u32 = 1;
/// The number of places: from 0 (not decided yet) to 30.
pub(crate) const PLACES: usize = 31;
/// How many targets a table can have: one place each, in addition to the default's.
const TARGETS: usize = PLACES - 1 - DEFAULT_PLACE as usize;
const _: () = assert!(TARGETS == RULES);

/// How a target selects mutexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Mutexes that are first contended by a call from these addresses.
    Call,
    /// Mutexes at these addresses.
    Mutex,
    /// Mutexes that are first contended by a call from this module.
    Library,
    /// Mutexes of this kind at these addresses. Its name is in the place of a module's.
    Kind,
}

/// The mutexes that a rule is for. `low..high` are offsets from the module's load address; without a module they are addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    what: What,
    module: &'a [u8],
    low: usize,
    high: usize,
    /// Readers-writer locks, not mutexes.
    is_rwlocks: bool,
}

/// A table's targets, in the order in which they are asked, and their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    places: [u8; TARGETS],
    targets: [Option<Target<'static>>; TARGETS],
    len: u8,
}

impl Order {
    /// Asks nobody.
    pub(crate) const NOBODY: Self = Self { places: [0; TARGETS], targets: [None; TARGETS], len: 0 };

    /// Appends this target; returns its place, if one is left. `before`: the targets' places so far.
    pub(crate) fn push(&mut self, target: Target<'static>, before: &Self) -> Option<usize> {
        let place = self.place_of(&target).or_else(|| {
            let is_ours = |place: &usize| self.places().any(|own| own == *place as u32);
            let is_known = |place: &usize| before.places().any(|known| known == *place as u32);
            let mut all = DEFAULT_PLACE as usize + 1..PLACES;
            let known = before.place_of(&target).filter(|place| !is_ours(place));
            known
                .or_else(|| all.clone().find(|place| !is_ours(place) && !is_known(place)))
                .or_else(|| all.find(|place| !is_ours(place)))
        })?;
        let at = usize::from(self.len);
        *self.places.get_mut(at)? = place as u8; // below 31
        self.targets[at] = Some(target);
        self.len += 1;
        Some(place)
    }

    /// Does it ask this target?
    pub(crate) fn has(&self, target: &Target<'_>) -> bool {
        self.place_of(target).is_some()
    }

    /// The rules' places, in their order.
    pub(crate) fn bytes(&self) -> &[u8; TARGETS] {
        &self.places
    }

    fn place_of(&self, target: &Target<'_>) -> Option<usize> {
        let at = self.targets.iter().position(|known| known.as_ref() == Some(target))?;
        Some(usize::from(self.places[at]))
    }

    /// The places to which its rules lead.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> {
        self.places[..usize::from(self.len)].iter().map(|&place| u32::from(place))
    }

    fn rules(&self) -> impl Iterator<Item = (u32, &Target<'static>)> {
        self.places().zip(self.targets.iter().flatten())
    }
}

struct ProgramName {
    name: [u8; 256],
    len: usize,
    /// What it is read into: too large for a small stack.
    path: [u8; 4096],
}

struct NameCell(UnsafeCell<ProgramName>);
// SAFETY: written by the thread that makes the first table with rules, before that table is published; read only by way of a table.
unsafe impl Sync for NameCell {}
static PROGRAM: NameCell =
    NameCell(UnsafeCell::new(ProgramName { name: [0; 256], len: 0, path: [0; 4096] }));

/// Learns the program's name, before a table with rules is published.
///
/// # Safety
/// One thread at a time calls this.
pub(crate) unsafe fn prepare() {
    let program = PROGRAM.0.get();
    // SAFETY: nobody else writes. Once the name is known, others may read it, and nobody writes it any more.
    unsafe {
        if (*program).len == 0 {
            load_program(&mut *program);
        }
    }
}

fn load_program(program: &mut ProgramName) {
    let path = &mut program.path;
    let name = base_name(files::program(path));
    program.len = name.len().min(program.name.len());
    program.name[..program.len].copy_from_slice(&name[..program.len]);
}

/// Parses `WHAT:TARGET=SPEC` into the target and the specification.
pub(crate) fn parse(piece: &[u8]) -> Option<(Target<'_>, &[u8])> {
    let (what, rest) = cut(piece, b':')?;
    let (target, spec) = cut(rest, b'=')?;
    let is_rwlocks = is_rwlocks(spec);
    let what = match what {
        b"call" => What::Call,
        b"mutex" => What::Mutex,
        b"kind" => What::Kind,
        b"lib" if !is_rwlocks => {
            let (what, low, high) = (What::Library, 0, usize::MAX);
            let target = Target { what, module: target, low, high, is_rwlocks };
            return Some((target, spec));
        }
        _ => return None,
    };
    // The last '+': a module's name may contain some, too (libstdc++.so.6).
    let plus = target.iter().rposition(|&byte| byte == b'+')?;
    let (low, high) = cut(&target[plus + 1..], b'-')?;
    let (module, low, high) = (&target[..plus], hex(low)?, hex(high)?);
    let is_kind = |name: &&str| name.as_bytes() == module;
    let is_known = match what {
        What::Kind if is_rwlocks => is_kind(&RWLOCK),
        What::Kind => KINDS.iter().any(is_kind),
        // Who calls isn't known where readers-writer locks ask.
        What::Call => !is_rwlocks,
        What::Mutex | What::Library => true,
    };
    is_known.then_some((Target { what, module, low, high, is_rwlocks }, spec))
}

/// Is this the lock of a rule for readers-writer locks?
pub(crate) fn is_rwlocks(spec: &[u8]) -> bool {
    spec.strip_prefix(RWLOCK.as_bytes())
        .is_some_and(|rest| matches!(rest.first(), None | Some(b':')))
}

fn hex(text: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// The place that the first matching rule gives to this mutex of this `__kind`, contended by a call at `caller`.
///
/// glibc 2.35 or later finds objects by address; before that no rule with a module matches.
pub(crate) fn rule_for(
    order: &'static Order,
    mutex: usize,
    kind: u32,
    caller: usize,
) -> Option<u32> {
    let kind = KINDS[(kind & TYPE) as usize];
    first_rule(order, mutex, kind.as_bytes(), caller, false)
}

/// The place that the first matching rule gives to the readers-writer lock at this address.
pub(crate) fn rule_for_rwlock(order: &'static Order, lock: usize) -> Option<u32> {
    first_rule(order, lock, RWLOCK.as_bytes(), 0, true)
}

fn first_rule(
    order: &'static Order,
    mutex: usize,
    kind: &'static [u8],
    caller: usize,
    is_rwlock: bool,
) -> Option<u32> {
    if order.len == 0 {
        return None;
    }
    // SAFETY: the table is published: the program's name doesn't change any more.
    let program = unsafe {
        let program = PROGRAM.0.get();
        &(&(*program).name)[..(*program).len]
    };
    let calling = LazyCell::new(|| locate(program, caller));
    let holding = LazyCell::new(|| locate(program, mutex));
    let mut rules = order.rules();
    let rule = rules.find(|(_, target)| {
        if target.is_rwlocks != is_rwlock {
            return false;
        }
        let at = match target.what {
            What::Mutex if target.module.is_empty() => Some((target.module, mutex)),
            What::Mutex => *holding,
            What::Call | What::Library => *calling,
            What::Kind => Some((kind, mutex)),
        };
        at.is_some_and(|(module, offset)| {
            module == target.module && (target.low..target.high).contains(&offset)
        })
    })?;
    Some(rule.0)
}

/// The module that an address belongs to, and its offset there.
fn locate(program: &'static [u8], address: usize) -> Option<(&'static [u8], usize)> {
    let found = real::object_at(address)?;
    let name = found.name();
    // glibc has no name for the program itself.
    let name = if name.is_empty() { program } else { base_name(name) };
    Some((name, address - found.map_start as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn rules_name_modules_with_plus_signs() {
        let (rule, spec) = parse(b"call:libstdc++.so.6+0x10-0x20=fifo").unwrap();
        assert_eq!(rule.module, b"libstdc++.so.6");
        assert_eq!(spec, b"fifo");
        assert_eq!((rule.what, rule.low, rule.high), (What::Call, 0x10, 0x20));
        let (rule, _) = parse(b"lib:a.so=mcs").unwrap();
        assert_eq!((rule.what, rule.module), (What::Library, b"a.so".as_slice()));
        let (rule, _) = parse(b"mutex:+0x7f0000001000-0x7f0000001028=fifo").unwrap();
        assert_eq!((rule.module, rule.low), (b"".as_slice(), 0x7f00_0000_1000));
        for bad in [
            "call:a=fifo",
            "mutex:a+10-20=fifo",
            "x:a=fifo",
            "lib",
            "kind:odd+0x0-0x1=fifo",
            "kind:rwlock+0x0-0x1=fifo",
            "kind:normal+0x0-0x1=rwlock:prefer=3",
            "call:a+0x10-0x20=rwlock",
            "lib:a.so=rwlock:prefer=patient",
        ] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    fn target(number: usize) -> Target<'static> {
        let (low, high, is_rwlocks) = (number, number + 1, false);
        Target { what: What::Mutex, module: b"", low, high, is_rwlocks }
    }

    fn order(targets: impl IntoIterator<Item = usize>, before: &Order) -> Order {
        let mut order = Order::NOBODY;
        for number in targets {
            order.push(target(number), before).unwrap();
        }
        order
    }

    #[test]
    fn targets_keep_their_places_as_long_as_there_is_room() {
        let first = order(0..3, &Order::NOBODY);
        let second = order([2, 7, 1], &first);
        for number in [1, 2] {
            assert_eq!(second.place_of(&target(number)), first.place_of(&target(number)));
        }
        assert_eq!(order([1, 1], &first).len, 2, "the first of two decides, and both are asked");
        let full = order(0..TARGETS, &second);
        assert_eq!(Order::push(&mut { full }, target(TARGETS), &second), None);
        // As many other targets: they get the places of targets that are no longer named.
        let others = order(100..100 + TARGETS, &full);
        let mut places: Vec<_> = others.places().collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(2..PLACES as u32));
    }

    #[test]
    fn one_mutex_is_named_by_its_address() {
        static ORDER: std::sync::OnceLock<Order> = std::sync::OnceLock::new();
        let order = ORDER.get_or_init(|| order([64], &Order::NOBODY));
        let rule = |mutex| rule_for(order, mutex, 0, 0);
        assert_eq!((rule(64), rule(65)), (Some(2), None));
    }

    #[test]
    fn rules_for_readers_writer_locks_are_for_no_mutex_and_others_for_none_of_them() {
        static ORDER: std::sync::OnceLock<Order> = std::sync::OnceLock::new();
        let order = ORDER.get_or_init(|| {
            let mut order = Order::NOBODY;
            for rule in [
                "mutex:+0x40-0x41=fifo",
                "mutex:+0x40-0x41=rwlock:prefer=patient",
                "kind:rwlock+0x0-0x100=rwlock",
            ] {
                order.push(parse(rule.as_bytes()).unwrap().0, &Order::NOBODY).unwrap();
            }
            order
        });
        let places = |lock| (rule_for(order, lock, 0, 0), rule_for_rwlock(order, lock));
        assert_eq!(places(0x40), (Some(2), Some(3)));
        assert_eq!(places(0x80), (None, Some(4)));
    }

    #[test]
    fn mutexes_of_one_kind_are_named_by_it() {
        static ORDER: std::sync::OnceLock<Order> = std::sync::OnceLock::new();
        let order = ORDER.get_or_init(|| {
            let mut order = Order::NOBODY;
            for rule in ["kind:recursive+0x0-0xffff=fifo", "kind:normal+0x0-0xff=mcs"] {
                order.push(parse(rule.as_bytes()).unwrap().0, &Order::NOBODY).unwrap();
            }
            order
        });
        // `__kind` has more than the kind.
        let rules = [(0x201, 64), (0x200, 64), (0, 0x100), (2, 64), (3, 64)]
            .map(|(kind, mutex)| rule_for(order, mutex, kind, 0));
        assert_eq!(rules, [Some(2), Some(3), None, None, None]);
    }
}
