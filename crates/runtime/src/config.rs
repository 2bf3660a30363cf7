//! The LOCKWRIGHT_* variables, read once by our constructor; here: those that say which lock.
//!
//! * `LOCKWRIGHT_LOCK=NAME[:key=value,...]`: the lock of every mutex that no rule names (default `auto`).
//! * `LOCKWRIGHT_TOPOLOGY=big:0-3,little:4-7`: the CPUs' classes (`machine`).
//! * `LOCKWRIGHT_EMULATE=big:0,little:1x3.75`: the same, and the little CPUs compute 3.75 times as long (`emulate`).
//! * `LOCKWRIGHT_RULES=call:MODULE+0xLO-0xHI=SPEC;mutex:MODULE+0xLO-0xHI=SPEC;lib:MODULE=SPEC`: written by
//!   `lockwright run --config`; the first rule that fits decides, when a mutex is first contended (`rules`).
//! * `LOCKWRIGHT_EPOCHS=NAME=FUNCTION:SLO_NS[@PERCENTILE];...`: functions whose calls are epochs, see `got.rs`.
//!
//! * `LOCKWRIGHT_SLO=NS`, `LOCKWRIGHT_PERCENTILE=99.9`: the SLO of every epoch, and the percentile of those that
//!   were given none (`epoch`).
//! * `LOCKWRIGHT_STATS=DIR`: where to record what epochs came to (`recording`).
//! * `LOCKWRIGHT_TRACE=DIR`, `LOCKWRIGHT_TRACE_LIMIT=N`: where to record operations on mutexes, up to about N
//!   acquisitions (`trace`).
//!
//! What can't be understood is said once, on stderr, and the program goes on: a bad lock with glibc's
//! algorithm, a bad rule or topology without it.

use crate::env::{cut, say, variable};
use crate::policy::{self, Front, How, PLACES, Policy};
use crate::{guard, machine, rules, whole};
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_locks::entry::Kind;
use lockwright_locks::front::{SPIN_NS, Tuning, Window};

/// What options are applied to: as for several CPUs, however many there are. `Policy::tuning` adapts it at each use, so
/// the machine need not be known when a lock's options are read.
const TUNING: Tuning = Tuning::for_any();

/// 0: not looked at yet, 1: ours, 2: glibc's.
static GLIBC_ONLY: AtomicU8 = AtomicU8::new(0);

/// How long a waiter of no particular lock stays awake, ns.
pub(crate) fn spin_ns() -> u32 {
    machine::learn(); // whoever asks has to wait
    if machine::cpus() > 1 { SPIN_NS } else { 0 }
}

/// Should everything be glibc's? The answer never changes.
pub(crate) fn is_glibc_only() -> bool {
    match GLIBC_ONLY.load(Relaxed) {
        0 => {
            // Before our constructor too: the environment is the same, so every thread finds the same.
            let ours = guard::tool().is_none()
                && variable(c"LOCKWRIGHT_LOCK").is_none_or(
                    |spec| matches!(parse(spec, TUNING), Ok(p) if !matches!(p.how, How::Glibc)),
                );
            GLIBC_ONLY.store(if ours { 1 } else { 2 }, Relaxed);
            !ours
        }
        answer => answer == 2,
    }
}

/// Reads LOCKWRIGHT_LOCK and LOCKWRIGHT_RULES, and publishes the policies.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load() {
    let default = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    let default = parse(default, TUNING).unwrap_or_else(|error| {
        error.say(default);
        Policy::new(How::Glibc, TUNING)
    });
    is_glibc_only(); // now: the program may change its environment
    let mut policies = [default; PLACES - 1];
    let mut places = policies[1..].iter_mut().zip(2..); // the first is the default's
    let place = |spec: &[u8]| {
        let policy = parse(spec, TUNING).map_err(|_| rules::BAD)?;
        let (slot, place) =
            places.next().ok_or(b"too many rules, this one does not apply: ".as_slice())?;
        *slot = policy;
        Ok(place)
    };
    // SAFETY: called once.
    unsafe {
        rules::load(place);
        policy::publish(&policies);
    }
}

const _: () = assert!(rules::RULES == PLACES - 2);

/// Why a lock's specification is bad.
#[derive(Debug, PartialEq, Eq)]
enum Bad<'a> {
    Name,
    Option(&'a [u8]),
}

impl Bad<'_> {
    fn say(&self, spec: &[u8]) {
        let name = spec.split(|&byte| byte == b':').next().unwrap_or(spec);
        match self {
            Self::Name => say(&[
                b"unknown lock '",
                name,
                b"', the nearest is '",
                nearest(name).as_bytes(),
                b"'; running on glibc's locks\n",
            ]),
            Self::Option(piece) => say(&[
                b"bad option '",
                piece,
                b"' of lock '",
                name,
                b"', see `lockwright explain`; running on glibc's locks\n",
            ]),
        }
    }
}

/// Understands `NAME[:key=value,...]`.
fn parse<'a>(spec: &'a [u8], mut tuning: Tuning) -> Result<Policy, Bad<'a>> {
    let (name, options) = cut(spec, b':').unwrap_or((spec, b""));
    if name == b"glibc" {
        return if options.is_empty() {
            Ok(Policy::new(How::Glibc, tuning))
        } else {
            Err(Bad::Option(options))
        };
    }
    let entry = core::str::from_utf8(name).ok().and_then(find).ok_or(Bad::Name)?;
    let how = match entry.kind {
        Kind::Front => {
            let front = Front::find(entry.id).ok_or(Bad::Name)?;
            tuning = (front.defaults)(tuning);
            How::Front(front)
        }
        Kind::Whole => {
            tuning.window = Window::Epoch; // for those that reorder
            How::Whole(whole::find(entry.id).ok_or(Bad::Name)?)
        }
    };
    for piece in options.split(|&byte| byte == b',').filter(|piece| !piece.is_empty()) {
        let value = cut(piece, b'=').and_then(|(key, value)| {
            let option = entry.options.iter().find(|option| option.key.as_bytes() == key)?;
            let value: u32 = core::str::from_utf8(value).ok()?.parse().ok()?;
            let known = (option.min..=option.max).contains(&value) && tuning.set(option.key, value);
            known.then_some(())
        });
        value.ok_or(Bad::Option(piece))?;
    }
    Ok(Policy::new(how, tuning))
}

/// The catalogue's name that differs from `name` in the fewest letters.
fn nearest(name: &[u8]) -> &'static str {
    let ids = CATALOG.iter().map(|entry| entry.id);
    ids.min_by_key(|id| distance(id.as_bytes(), name)).unwrap_or("auto")
}

/// Letters to insert, delete or change (Levenshtein); of names up to 31 letters.
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
            assert!(matches!(parse(spec, tuning()), Err(Bad::Option(_))), "{bad}");
        }
        assert!(matches!(parse(b"fifp", tuning()), Err(Bad::Name)));
        assert!(matches!(parse(b"", tuning()), Err(Bad::Name)));
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(nearest(b"fifp"), "fifo");
        assert_eq!(nearest(b"bargin"), "barging");
        assert_eq!(nearest(b"mcsstp"), "mcs-stp");
    }
}
