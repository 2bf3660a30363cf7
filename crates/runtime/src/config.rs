//! The LOCKWRIGHT_* variables, read once by our constructor. This file has those that choose locks.
//!
//! * `LOCKWRIGHT_LOCK=NAME[:key=value,...]`: the lock of every mutex that no rule names (default `auto`).
//! * `LOCKWRIGHT_TOPOLOGY=big:0-3,little:4-7`: the CPUs' classes (`machine`).
//! * `LOCKWRIGHT_EMULATE=big:0,little:1x3.75`: the same, and the little CPUs take 3.75 times as long to compute (`emulate`).
//! * `LOCKWRIGHT_RULES=call:MODULE+0xLO-0xHI=SPEC;mutex:MODULE+0xLO-0xHI=SPEC;lib:MODULE=SPEC;
//!   kind:KIND+0xLO-0xHI=SPEC`: written by `lockwright run --config`; the first rule that fits decides, when a mutex
//!   is first contended (`rules`). These two make the first table of locks (`policy`); `lockwright switch` hands in
//!   others (`switch`).
//! * `LOCKWRIGHT_RWLOCK=patient`: who goes first at readers-writer locks; the last rule, `kind:rwlock` (`preference`).
//! * `LOCKWRIGHT_EPOCHS=NAME=FUNCTION:SLO_NS[@PERCENTILE];...`: functions whose calls are epochs, see `got.rs`.
//!
//! * `LOCKWRIGHT_SLO=NS`, `LOCKWRIGHT_PERCENTILE=99.9`: the SLO of every epoch, and the percentile of epochs that
//!   have none of their own (`epoch`).
//! * `LOCKWRIGHT_PAUSE=mfence`: the instruction that waiters spin with (`pause`).
//! * `LOCKWRIGHT_STATS=DIR`: where to record the results of epochs (`recording`).
//! * `LOCKWRIGHT_TRACE=DIR`, `LOCKWRIGHT_TRACE_LIMIT=N`: where to record operations on mutexes, up to about N
//!   acquisitions (`trace`).
//!
//! What can't be understood is reported once, on stderr, and the program goes on. A bad lock becomes
//! glibc's algorithm; a bad rule or topology is ignored.

use crate::env::{cut, say, variable};
use crate::policy::{self, Front, How, Policy, Table};
use crate::rules::{self, Order, PLACES, Target};
use crate::{guard, machine, preference, whole};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::mailbox::{RULES, TEXT};
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::front::{SPIN_NS, Tuning, Window};
use lockwright_locks::rw::Prefer;
use lockwright_locks::spec::{GLIBC, Spec, Why};

/// The tuning that options change: it is for several CPUs, whatever the machine. `Policy::tuning` adapts it at each use, so
/// the machine need not be known when a lock's options are read.
const TUNING: Tuning = Tuning::for_any();

/// 0: not looked at yet, 1: ours, 2: glibc's.
#[unsafe(link_section = ".lockwright.start")]
static GLIBC_ONLY: AtomicU8 = AtomicU8::new(0);

/// How long a waiter that belongs to no particular lock stays awake, ns.
pub(crate) fn spin_ns() -> u32 {
    machine::learn(); // the caller has to wait
    if machine::cpus() > 1 { SPIN_NS } else { 0 }
}

/// Should readers-writer locks be glibc's, too? The answer never changes.
#[inline(always)]
pub(crate) fn is_glibc_only() -> bool {
    match GLIBC_ONLY.load(Relaxed) {
        0 => look_for_glibc(),
        answer => answer == 2,
    }
}

/// May run before our constructor. The environment is the same, so every thread finds the same answer.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".lockwright.begin")]
fn look_for_glibc() -> bool {
    let ours = !guard::stands_aside()
        && (variable(c"LOCKWRIGHT_OBSERVE").is_some_and(|level| level != b"off") // glibc's say nothing of waits
            || variable(c"LOCKWRIGHT_LOCK").is_none_or(
                |spec| matches!(parse(spec, TUNING), Ok(l) if !matches!(l.policy.how, How::Glibc)),
            ));
    GLIBC_ONLY.store(if ours { 1 } else { 2 }, Relaxed);
    !ours
}

/// The default lock of every mutex that no rule names.
const DEFAULT: &[u8] = b"auto";

/// Reads LOCKWRIGHT_LOCK and LOCKWRIGHT_RULES, and publishes the table made from them. Bad parts are reported, and left out.
///
/// # Safety
/// Called once, by the constructor.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) unsafe fn load() {
    #[repr(align(4096))]
    struct First(UnsafeCell<MaybeUninit<Table>>);
    // SAFETY: only `load` uses it, and is called once.
    unsafe impl Sync for First {}
    static FIRST: First = First(UnsafeCell::new(MaybeUninit::zeroed()));

    let lock = variable(c"LOCKWRIGHT_LOCK").unwrap_or(DEFAULT);
    let mut rules = variable(c"LOCKWRIGHT_RULES").unwrap_or(b"");
    if rules.len() + 256 + 2 + preference::RULE_MAX > TEXT {
        say(&[b"LOCKWRIGHT_RULES is longer than 16384 bytes: no rule applies\n"]);
        rules = b"";
    }
    is_glibc_only(); // now, since the program may change its environment
    let table: *mut Table = FIRST.0.get().cast();
    let lock = match parse(lock, TUNING) {
        Ok(_) if lock.len() <= 256 => lock,
        Ok(_) => {
            say(&[b"LOCKWRIGHT_LOCK is longer than 256 bytes: running on glibc's locks\n"]);
            GLIBC.as_bytes()
        }
        Err(bad) => {
            bad.say();
            GLIBC.as_bytes()
        }
    };
    let all = variable(c"LOCKWRIGHT_RWLOCK").filter(|name| *name != b"own");
    let all = all.filter(|name| {
        let is_known = Prefer::NAMES.iter().any(|known| known.as_bytes() == *name);
        if !is_known {
            let one_of = b"', not one of own, readers, writers, strict, patient: ignored\n";
            say(&[b"LOCKWRIGHT_RWLOCK is '", name, one_of]);
        }
        is_known
    });
    // Bad parts are left out of the text: `switch` shows what is in force, and starts from that.
    let rules = pieces(rules).filter(|rule| parse_rule(rule).inspect_err(Bad::say).is_ok());
    // SAFETY: zeroes to which nobody else has a pointer; called once, before any other table.
    let table = unsafe {
        // A page that is read before it is written is mapped twice.
        (&raw mut (*table).len).write_volatile(0);
        write_words(table, lock);
        write_words(table, b"\n");
        for rule in rules {
            write_words(table, rule);
            write_words(table, b";");
        }
        if let Some(name) = all {
            write_words(table, preference::RULE);
            write_words(table, name);
            write_words(table, b";");
        }
        fill(table, |bad| bad.say())
    };
    policy::publish(table);
}

/// Appends to a table's text.
///
/// # Safety
/// The table is all zeroes, or has only text; the caller has the only pointer to it; the text stays within [`TEXT`] bytes.
pub(crate) unsafe fn write_words(table: *mut Table, words: &[u8]) {
    // SAFETY: as above.
    unsafe {
        let len = (*table).len;
        let to = (&raw mut (*table).text).cast::<u8>().add(len);
        to.copy_from_nonoverlapping(words.as_ptr(), words.len());
        (*table).len = len + words.len();
    }
}

/// The default and the rules of a table's text.
fn halves(words: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]> + Clone) {
    let (lock, rules) = cut(words, b'\n').unwrap_or((words, b""));
    (lock, pieces(rules))
}

fn pieces(rules: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    rules.split(|&byte| byte == b';').filter(|rule| !rule.is_empty())
}

/// Makes the rest of a table from its text. Bad parts are reported, and left out; a bad default becomes glibc's
/// algorithm.
///
/// # Safety
/// The table is all zeroes except for its text. The caller has the only pointer to it, and the memory stays forever. One
/// thread at a time calls this.
pub(crate) unsafe fn fill(table: *mut Table, mut complain: impl FnMut(Bad<'_>)) -> &'static Table {
    // SAFETY: as above: initialised, and not written again.
    let words: &'static [u8] = unsafe { &(&(*table).text)[..(*table).len] };
    let (lock, rules) = halves(words);
    let default = parse(lock, TUNING).unwrap_or_else(|bad| {
        complain(bad);
        ChosenLock::GLIBC
    });
    let before = policy::current().map_or(&Order::NOBODY, |table| &table.order);
    // SAFETY: as above. Places that no rule of this table names get the default.
    let (policies, preferences, order) = unsafe {
        (&raw mut (*table).policies).write([default.policy; PLACES]);
        (&raw mut (*table).preferences).write([0; PLACES]);
        (&raw mut (*table).order).write(Order::NOBODY);
        (&mut (*table).policies, &mut (*table).preferences, &mut (*table).order)
    };
    for rule in rules {
        match parse_rule(rule) {
            Ok((target, lock)) => {
                // SAFETY: one thread at a time.
                unsafe { rules::prepare() };
                let is_again = order.has(&target);
                match order.push(target, before) {
                    Some(_) if is_again => {} // the first one decides
                    Some(place) => match lock {
                        Chosen::Mutexes(lock) => policies[place] = lock.policy,
                        Chosen::RwLocks(prefer) => preferences[place] = prefer as u8 + 1,
                    },
                    None => complain(Bad::Many(rule)),
                }
            }
            Err(bad) => complain(bad),
        }
    }
    // SAFETY: all of it is initialised; nobody writes any more.
    unsafe { &*table }
}

/// Checks that all of a table's text can be understood, and that it has no more rules than fit.
pub(crate) fn check(words: &[u8]) -> Result<(), Bad<'_>> {
    let (lock, mut rules) = halves(words);
    parse(lock, TUNING)?;
    rules.try_for_each(|rule| {
        let (_, spec) = rules::parse(rule).ok_or(Bad::Rule(rule))?;
        choose(spec).map(drop)
    })?;
    if halves(words).1.count() <= RULES { Ok(()) } else { Err(Bad::Room) }
}

/// The textbook locks that a table's text names.
pub(crate) fn textbooks(words: &[u8]) -> impl Iterator<Item = &'static Entry> {
    let (lock, rules) = halves(words);
    let specs = rules.filter_map(|rule| Some(rules::parse(rule)?.1));
    let locks = specs.chain([lock]).filter_map(|spec| parse(spec, TUNING).ok());
    locks.filter_map(|lock| lock.entry)
}

/// What is wrong with a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Bad<'a> {
    /// No lock has this name.
    Name(&'a [u8]),
    /// A bad option, and its lock.
    Option(&'a [u8], &'a [u8]),
    /// A bad rule.
    Rule(&'a [u8]),
    /// One rule too many.
    Many(&'a [u8]),
    /// More rules than fit.
    Room,
    /// Two different textbook locks.
    Textbook(&'a [u8], &'a [u8]),
}

impl<'a> Bad<'a> {
    /// The message, in pieces.
    pub(crate) fn pieces(&self) -> [&'a [u8]; 5] {
        match *self {
            Self::Name(name) => {
                let nearest = nearest(name).as_bytes();
                [b"unknown lock '", name, b"', the nearest is '", nearest, b"'"]
            }
            Self::Option(option, lock) => [b"bad option '", option, b"' of lock '", lock, b"'"],
            Self::Rule(rule) => [b"bad rule, it does not apply: '", rule, b"'", b"", b""],
            Self::Many(rule) => {
                [b"too many rules, this one does not apply: '", rule, b"'", b"", b""]
            }
            Self::Room => [b"it can have 29 rules at a time", b"", b"", b"", b""],
            Self::Textbook(one, other) => {
                let has = b"it can use one textbook lock in its life, '";
                [has, other, b"', and not '", one, b"'"]
            }
        }
    }

    fn say(&self) {
        let [a, b, c, d, e] = self.pieces();
        let then: &[u8] = match self {
            Self::Name(_) => b"; running on glibc's locks\n",
            Self::Option(..) => b", see `lockwright explain`; running on glibc's locks\n",
            _ => b"\n",
        };
        say(&[a, b, c, d, e, then]);
    }
}

/// A lock that a specification names.
#[derive(Clone, Copy)]
struct ChosenLock {
    policy: Policy,
    /// Its entry in the catalogue, if it is a textbook lock.
    entry: Option<&'static Entry>,
}

impl ChosenLock {
    const GLIBC: Self = Self { policy: Policy { how: How::Glibc, tuning: TUNING }, entry: None };
}

/// What a rule gives.
enum Chosen {
    Mutexes(ChosenLock),
    RwLocks(Prefer),
}

/// Parses a rule. One bad part makes the whole rule bad.
fn parse_rule(rule: &'static [u8]) -> Result<(Target<'static>, Chosen), Bad<'static>> {
    let (target, spec) = rules::parse(rule).ok_or(Bad::Rule(rule))?;
    Ok((target, choose(spec).map_err(|_| Bad::Rule(rule))?))
}

fn choose(spec: &[u8]) -> Result<Chosen, Bad<'_>> {
    match rules::is_rwlocks(spec) {
        true => preference::parse(spec).map(Chosen::RwLocks).ok_or(Bad::Option(spec, b"rwlock")),
        false => parse(spec, TUNING).map(Chosen::Mutexes),
    }
}

/// Parses `NAME[:key=value,...]`.
#[unsafe(link_section = ".lockwright.begin")]
fn parse(spec: &[u8], mut tuning: Tuning) -> Result<ChosenLock, Bad<'_>> {
    let text = core::str::from_utf8(spec).map_err(|_| Bad::Name(spec))?;
    let spec = Spec::parse(text).map_err(|bad| match bad.why {
        Why::Name => Bad::Name(bad.name.as_bytes()),
        Why::Nothing => Bad::Option(b":", bad.name.as_bytes()),
        _ => {
            let is_it = |piece: &&str| piece.split('=').next() == Some(bad.key());
            let piece = text.split([':', ',']).skip(1).find(is_it).unwrap_or_default();
            Bad::Option(piece.as_bytes(), bad.name.as_bytes())
        }
    })?;
    let Some(entry) = spec.entry else { return Ok(ChosenLock::GLIBC) };
    let unknown = Bad::Name(spec.name.as_bytes());
    let how = match entry.kind {
        Kind::Front => {
            let front = Front::find(entry.id).ok_or(unknown)?;
            tuning = (front.defaults)(tuning);
            How::Front(front)
        }
        Kind::Whole => {
            tuning.window = Window::Epoch; // for locks that reorder
            How::Whole(whole::find(entry.id).ok_or(unknown)?)
        }
        Kind::Delegated | Kind::ReadWrite => return Err(unknown), // it serves no mutex
    };
    for (option, value) in spec.options() {
        tuning.set(option.key, value);
    }
    let entry = (entry.kind == Kind::Whole).then_some(entry);
    Ok(ChosenLock { policy: Policy { how, tuning }, entry })
}

/// The name in the catalogue that is closest to `name`.
fn nearest(name: &[u8]) -> &'static str {
    let ids = CATALOG.iter().map(|entry| entry.id);
    ids.min_by_key(|id| distance(id.as_bytes(), name)).unwrap_or("auto")
}

/// How many letters to insert, delete or change (Levenshtein), for names of up to 31 letters.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (&a[..a.len().min(31)], &b[..b.len().min(31)]);
    let mut row: [usize; 32] = core::array::from_fn(|at| at);
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning::for_cpus(2)
    }

    #[test]
    fn every_lock_of_the_catalogue_is_understood() {
        for entry in CATALOG {
            assert!(parse(entry.id.as_bytes(), tuning()).is_ok(), "{}", entry.id);
        }
    }

    #[test]
    fn options_are_checked_against_the_catalogue() {
        assert!(parse(b"fifo:bypass=8,spin=0", tuning()).is_ok());
        for bad in ["bypass=512", "bypass=-1", "bypass", "spinners=1", "spin=x"] {
            let spec = std::format!("fifo:{bad}");
            let spec: &[u8] = spec.as_bytes();
            assert!(matches!(parse(spec, tuning()), Err(Bad::Option(..))), "{bad}");
        }
        assert!(matches!(parse(b"fifp", tuning()), Err(Bad::Name(_))));
        assert!(matches!(parse(b"", tuning()), Err(Bad::Name(_))));
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(nearest(b"fifp"), "fifo");
        assert_eq!(nearest(b"bargin"), "barging");
        assert_eq!(nearest(b"mcsstp"), "mcs-stp");
    }
}
