//! A snapshot with names, ranked: the contents of a report ([`super::observation`]).

use super::observation::{Lost, Observed, Percentiles, Ranked, Site};
use super::reader;
use super::sharing::suspects;
use super::snapshot::{At, Lock, LockKind, Of, Seen, Snapshot};
use super::threads;
use super::window;
use super::wrapper::{has_section, is_given, is_wrapper};
use crate::written::written;
use lockwright_files::open_file;
use lockwright_symbols::{AddressSpace, Frame, Place, Symboliser, Unwinder};
use lockwright_text::{Failure, cause};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::rc::Rc;

/// Names and ranks everything. `elapsed_ns` and `threads` come from the caller.
pub fn outcome(
    snapshot: &Snapshot,
    symbols: &mut Symboliser,
    elapsed_ns: u64,
    threads: usize,
) -> Observed {
    busiest(snapshot, symbols, elapsed_ns, threads, usize::MAX, Lock::rank)
}

/// Reads a copy of a segment. Its process may have ended.
pub fn copy(path: &Path) -> Result<Observed, Failure> {
    let file = open_file(path).map_err(|error| {
        Failure::new(format!("cannot read '{}': {}", path.display(), cause(&error)))
            .hint("lockwright switch PID dump FILE writes one")
    })?;
    let mut segment = reader::read(&file, path)?;
    // At least until something was counted last.
    segment.close(0, segment.last_ns);
    let mut symbols = Symboliser::new(segment.space());
    let elapsed_ns = segment.last_ns.saturating_sub(segment.start_ns);
    Ok(outcome(&segment, &mut symbols, elapsed_ns, 0))
}

/// Names and ranks the first `most` locks, the highest `key` first. Only these get names, because naming is the slowest
/// step.
pub fn busiest<K: Ord>(
    snapshot: &Snapshot,
    symbols: &mut Symboliser,
    elapsed_ns: u64,
    threads: usize,
    most: usize,
    key: impl Fn(&Lock) -> K,
) -> Observed {
    let mut unwinding = Unwinding { space: snapshot.space(), unwinder: None };
    let mut all = |locks: &[Rc<Lock>]| -> Vec<Ranked> {
        let mut locks = together(locks, symbols);
        locks.sort_by_cached_key(|lock| std::cmp::Reverse(key(lock)));
        let ranked = |lock: &Rc<Lock>| Ranked {
            waiting: window::waiting(&lock.settled(), elapsed_ns, threads),
            ..ranked(&unwinding.of(lock, symbols), symbols)
        };
        locks.iter().take(most).map(ranked).collect()
    };
    let (locks, conditions) = (all(&snapshot.locks), all(&snapshot.conditions));
    Observed {
        taken_often: None,
        running_unseen: None,
        pid: snapshot.pid,
        processes: Vec::new(),
        command: snapshot.command.clone(),
        lock: snapshot.lock.clone(),
        emulated: snapshot.emulated.clone(),
        elapsed_ns,
        slice_ns: 0,
        threads,
        false_sharing: suspects(&locks),
        events: None,
        locks,
        conditions,
        signals: snapshot.signals,
        own_locks: Vec::new(),
        samples: 0,
        python_unread: None,
        lost: Lost {
            unplaced: snapshot.unplaced,
            evicted: snapshot.evicted,
            retired: snapshot.retired,
            stacks: snapshot.stacks_lost,
            memory: snapshot.lost,
        },
    }
}

/// Unwinds the pieces of stacks that the process has copied.
struct Unwinding {
    space: AddressSpace,
    unwinder: Option<Unwinder>,
}

impl Unwinding {
    /// The lock, with its stacks unwound.
    fn of(&mut self, lock: &Rc<Lock>, symbols: &mut Symboliser) -> Rc<Lock> {
        let beyond = &lock.beyond;
        let tried = beyond.triers.iter().chain(&beyond.tried_holders);
        let mut all = lock.waiters.iter().chain(&lock.holders).chain(tried);
        if all.all(|site| site.piece.is_none()) {
            return Rc::clone(lock);
        }
        let mut lock = Lock::clone(lock);
        let tried = lock.beyond.triers.iter_mut().chain(&mut lock.beyond.tried_holders);
        for site in lock.waiters.iter_mut().chain(&mut lock.holders).chain(tried) {
            let Some(piece) = &site.piece else { continue };
            let unwinder = self.unwinder.get_or_insert_with(|| Unwinder::new(symbols));
            // Return addresses, found by frame pointers.
            let calls = piece.calls(unwinder, &self.space);
            site.stack = calls.iter().map(|call| call.wrapping_add(1)).collect();
        }
        Rc::new(lock)
    }
}

/// Merges destroyed locks without a name: one entry for each place that was the first to wait.
pub fn together(locks: &[Rc<Lock>], symbols: &mut Symboliser) -> Vec<Rc<Lock>> {
    let mut gone: BTreeMap<u64, Lock> = BTreeMap::new();
    let mut all = Vec::new();
    for lock in locks {
        let is_nameless = match lock.of {
            // All of Python's semaphores are waited for at one place.
            Of::Lock(_) if lock.kind == LockKind::Semaphore => false,
            Of::Lock(address) => {
                lock.is_gone && !matches!(symbols.data(address), Place::Symbol { .. })
            }
            Of::Gone(_) => true,
            Of::Others => false,
        };
        if !is_nameless {
            all.push(Rc::clone(lock));
            continue;
        }
        let first = lock.waiters.first().or_else(|| lock.beyond.triers.first());
        let site = match (lock.of, first.map(|site| site.at)) {
            (Of::Gone(site), _) | (_, Some(At::Address(site))) => site,
            _ => 0,
        };
        match gone.entry(site) {
            Entry::Occupied(mut known) => known.get_mut().add(lock),
            Entry::Vacant(place) => {
                place.insert(Lock { of: Of::Gone(site), ..Lock::clone(lock) });
            }
        }
    }
    all.extend(gone.into_values().map(Rc::new));
    all
}

fn ranked(lock: &Lock, symbols: &mut Symboliser) -> Ranked {
    let lock = &lock.settled();
    let first = lock.waiters.first().or_else(|| lock.beyond.triers.first());
    let place = first.map(|site| called(site, symbols).0);
    let them = if lock.kind == LockKind::Condition { "condition variables" } else { "locks" };
    let (name, address) = match lock.of {
        Of::Lock(address) => (lock_name(address, place, symbols), address),
        Of::Gone(site) => {
            let (function, _) = called_at(at(site), Callers::Unknown, symbols);
            // Until the process knows a wrapper, it is the first to wait.
            let mut user = || {
                let all = lock.waiters.iter().chain(&lock.holders);
                let mut names = all.map(|site| called(site, symbols).0);
                names.find(|name| !is_wrapper(name) && !name.starts_with('('))
            };
            let function = if is_wrapper(&function) { user() } else { Some(function) };
            let whose = function.map(|function| format!(", of {function}")).unwrap_or_default();
            (format!("{them} that are gone{whose}"), 0)
        }
        Of::Others => (format!("other {them}"), 0),
    };
    let part = |count: u64| (lock.followed > 0).then(|| count as f64 / lock.followed as f64);
    let mean_ns = window::mean_ns(lock);
    let classes = lock.classes.iter().enumerate().filter(|(_, class)| class.times.count() > 0);
    Ranked {
        of: lock.of,
        tenant: lock.tenants,
        place: lock.place,
        kind: lock.kind,
        name,
        address,
        locks: lock.locks,
        // Other threads may have waited after the last wait that was timed.
        acquired: if lock.acquired > 0 { lock.acquired.max(lock.arrived) } else { 0 },
        contended: lock.arrived,
        gave_up: lock.gave_up,
        slept: lock.asleep(),
        blamed_ns: lock.blocked_ns(),
        unended_ns: lock.unended_ns,
        wait_ns: lock.wait_ns(),
        waiting: 0.0, // the caller knows the period
        mean_ns,
        hold_ns: lock.hold_ns,
        // Of a part of the run, the longest is known only to the width of a bucket.
        wait: Percentiles::of(&lock.wait(), lock.wait_max_ns.max(mean_ns)),
        wait_times: lock.wait(),
        hold_times: lock.hold.clone(),
        wait_by_class: classes
            .map(|(at, class)| (at, Percentiles::of(&class.times, class.max_ns)))
            .collect(),
        hold: Percentiles::of(&lock.hold, lock.hold_max_ns),
        owner_changes: part(lock.owners),
        core_changes: part(lock.cores),
        holding: None,
        longest_wait_at: spot(lock.wait_max_at, &lock.waiters, symbols),
        longest_hold_at: spot(lock.hold_max_at, &lock.holders, symbols),
        waiters: sites(lock, &lock.waiters, symbols),
        holders: sites(lock, &lock.holders, symbols),
        threads: threads::of(&lock.threads),
        course: Vec::new(),
        events: None,
        advice: None,
        beyond: lock.beyond.with(|seen| sites(lock, seen, symbols)),
    }
}

fn at(address: u64) -> At {
    if address > 2 { At::Address(address) } else { At::Unknown }
}

/// A lock's name. A lock that isn't a variable is named after its waiters.
pub fn lock_name(address: u64, place: Option<String>, symbols: &mut Symboliser) -> String {
    let data = symbols.data(address);
    match (&data, place) {
        (Place::Symbol { .. } | Place::Section { .. } | Place::ThreadLocal { .. }, _)
        | (_, None) => data.to_string(),
        (_, Some(function)) => format!("{address:#x}, of {function}"),
    }
}

fn sites(lock: &Lock, sites: &[Seen], symbols: &mut Symboliser) -> Vec<Site> {
    // Tries in vain take no time.
    let is_timed = sites.iter().any(|site| site.ns > 0);
    let part = |site: &Seen| if is_timed { site.ns } else { site.count };
    let total = sites.iter().map(part).fold(0, u64::saturating_add);
    let named = sites.iter().map(|site| {
        let (function, place) = match site.at {
            At::Address(back) if has_section(lock, back, symbols) => {
                called_at(site.at, Callers::Unknown, symbols)
            }
            _ => called(site, symbols),
        };
        let stack = site.stack.iter().flat_map(|&frame| {
            let frames = symbols.code(frame.saturating_sub(1));
            frames.iter().map(Frame::to_string).collect::<Vec<_>>()
        });
        Site {
            function,
            place,
            address: if let At::Address(address) = site.at { address } else { 0 },
            count: site.count,
            ns: site.ns,
            max_ns: site.max_ns,
            max_tid: site.max_tid,
            share: part(site) as f64 / total.max(1) as f64,
            stack: stack.collect(),
            samples: None,
        }
    });
    merged(beyond_wrappers(named.collect()))
}

/// Until a process knows its wrappers, it counts at them: beside their users, these are places that aren't told apart.
fn beyond_wrappers(mut sites: Vec<Site>) -> Vec<Site> {
    let is_wrappers = |site: &Site| is_wrapper(&site.function);
    let is_user = |site: &Site| !is_wrappers(site) && !is_nobody(site);
    if sites.iter().any(is_user) {
        for site in sites.iter_mut().filter(|site| is_wrappers(site)) {
            (site.function, site.place) = (OTHER_PLACES.to_owned(), String::new());
        }
    }
    sites
}

const OTHER_PLACES: &str = "(other places)";
const UNKNOWN_PLACE: &str = "(not known)";

/// Does it stand for places that aren't told apart?
fn is_nobody(site: &Site) -> bool {
    [OTHER_PLACES, UNKNOWN_PLACE].contains(&site.function.as_str())
}

/// Several calls within one function, at one line, are one place; so are calls of wrappers, before the process knew of these and after. Places
/// that aren't told apart come last.
fn merged(sites: Vec<Site>) -> Vec<Site> {
    let mut merged: Vec<Site> = Vec::new();
    for site in sites {
        let same = |one: &&mut Site| (&one.function, &one.place) == (&site.function, &site.place);
        let Some(known) = merged.iter_mut().find(same) else {
            merged.push(site);
            continue;
        };
        known.count = known.count.saturating_add(site.count);
        known.ns = known.ns.saturating_add(site.ns);
        known.share += site.share;
        if site.max_ns > known.max_ns {
            (known.max_ns, known.max_tid, known.stack) = (site.max_ns, site.max_tid, site.stack);
        }
    }
    merged.sort_by_key(|site| (is_nobody(site), std::cmp::Reverse(site.ns)));
    merged
}

/// Return addresses, the innermost first.
#[derive(Clone, Copy)]
enum Callers<'a> {
    Unknown,
    /// By the compilers' exception tables.
    Unwound(&'a [u64]),
    /// By frame pointers. In a program without them, these may be anything.
    Chained(&'a [u64]),
}

fn called(site: &Seen, symbols: &mut Symboliser) -> (String, String) {
    let callers = match site.piece {
        Some(_) => Callers::Unwound(&site.stack),
        None => Callers::Chained(&site.stack),
    };
    called_at(site.at, callers, symbols)
}

/// The function, file and line of the call that returns to this address, or of a caller. Methods of lock guards and
/// functions of ours, inlined or not, are skipped: they are not critical sections.
fn called_at(at: At, callers: Callers<'_>, symbols: &mut Symboliser) -> (String, String) {
    match at {
        At::Address(address) => {
            let call = symbols.call_site(address, is_lock_function);
            let frames = symbols.code(call);
            let own = |frames: &[Frame]| frames.iter().find(|frame| !is_of_a_lock(frame)).cloned();
            let callers = || {
                let callers: Vec<u64> = match callers {
                    Callers::Unknown => Vec::new(),
                    Callers::Unwound(stack) => stack.iter().skip(1).copied().collect(),
                    Callers::Chained(stack) => stack
                        .windows(2)
                        .take_while(|pair| symbols.calls(pair[1], pair[0]))
                        .map(|pair| pair[1])
                        .collect(),
                };
                callers.iter().find_map(|caller| own(&symbols.code(caller.saturating_sub(1))))
            };
            let frame = own(&frames).or_else(callers).or_else(|| frames.last().cloned());
            let name = frame.as_ref().map_or_else(String::new, Frame::name);
            (name, frame.as_ref().and_then(Frame::site).unwrap_or_default())
        }
        At::Unknown => (UNKNOWN_PLACE.to_owned(), String::new()),
        At::Others => (OTHER_PLACES.to_owned(), String::new()),
    }
}

/// Is it a linked-in function that programs call to lock or unlock?
fn is_lock_function(symbol: &str) -> bool {
    ["pthread_", "__pthread_", "mtx_", "cnd_", "lw_"].iter().any(|start| symbol.starts_with(start))
        || symbol.contains("lockwright")
        || is_wrapper(&written(symbol))
}

/// Is it a function of the lock's own interface?
pub fn is_of_a_lock(frame: &Frame) -> bool {
    const OURS: [&str; 29] = [
        "lockwright::",
        "lockwright_sync::",
        "lockwright_runtime::",
        "lockwright_locks::",
        "lockwright_native::",
        "lockwright_platform::",
        "lw_mutex_",
        "lw_cond_",
        "lw_rwlock_",
        "lock_api::",
        "core::",
        "std::mutex",
        "std::lock_guard",
        "std::unique_lock",
        "std::scoped_lock",
        "std::shared_mutex",
        "std::shared_timed_mutex",
        "std::shared_lock",
        "std::__shared_mutex_",
        "std::__glibcxx_rwlock_",
        "__glibcxx_rwlock_",
        "std::recursive_mutex",
        "std::condition_variable",
        "std::__condvar",
        "std::_V2::condition_variable_any",
        "std::__invoke",
        "std::__apply_impl",
        "std::apply",
        "__gthread_",
    ];
    // If debug information has only line numbers, function names have no paths. Go by the file.
    const FILES: [&str; 7] = [
        "/lockwright.hpp",
        "/lock_api-",
        "/lockwright-",
        "crates/sync/src/",
        "crates/runtime/src/",
        "/library/core/src/",
        "/gthr-default.h",
    ];
    // C++'s own locks: debug information may name an inlined `std::condition_variable::wait` just `wait`.
    const HEADERS: [&str; 5] =
        ["condition_variable", "mutex", "shared_mutex", "std_mutex.h", "unique_lock.h"];
    let is_header = |file: &String| {
        let last = file.rsplit('/').next().unwrap_or_default();
        file.contains("/include/c++/") && HEADERS.contains(&last)
    };
    let name = frame.function.as_deref().unwrap_or_default();
    let name = name.trim_start_matches('<');
    OURS.iter().any(|ours| name.starts_with(ours))
        || is_wrapper(name)
        || is_given(frame)
        || frame
            .file
            .as_ref()
            .is_some_and(|file| is_header(file) || FILES.iter().any(|part| file.contains(part)))
}

/// The place of the longest time, with a caller if it is one of these sites.
fn spot(at: At, sites: &[Seen], symbols: &mut Symboliser) -> String {
    let found = match sites.iter().find(|site| site.at == at) {
        Some(site) => called(site, symbols),
        None => called_at(at, Callers::Unknown, symbols),
    };
    match found {
        (name, place) if place.is_empty() => name,
        (name, place) => format!("{name} ({place})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_not_told_apart_come_last() {
        let site = |function: &str, ns| Site {
            function: function.to_owned(),
            place: "a.c:1".to_owned(),
            address: 1,
            count: 1,
            ns,
            max_ns: ns,
            max_tid: 7,
            share: ns as f64 / 100.0,
            stack: Vec::new(),
            samples: None,
        };
        let told = |sites: &[Site]| -> Vec<(String, u64)> {
            let told = merged(beyond_wrappers(sites.to_vec()));
            told.into_iter().map(|site| (site.function, site.ns)).collect()
        };
        let unlock = site("my_mutex_unlock", 60);
        let user = site("get_row", 10);
        let others = Site { place: String::new(), ..site("(other places)", 30) };
        let all = [unlock.clone(), others.clone(), user];
        assert_eq!(told(&all), [("get_row".to_owned(), 10), ("(other places)".to_owned(), 90)]);
        let expected = [("my_mutex_unlock".to_owned(), 60), ("(other places)".to_owned(), 30)];
        assert_eq!(told(&[others, unlock]), expected);
    }

    #[test]
    fn methods_of_a_lock_are_nobodys_section() {
        let is_of_a_lock = |name: &str| {
            super::is_of_a_lock(&Frame { function: Some(name.to_owned()), ..Frame::default() })
        };
        assert!(
            is_of_a_lock("lockwright::mutex::unlock") && is_of_a_lock("std::unique_lock<T>::lock")
        );
        for name in [
            "lockwright_runtime::cond::wait_plainly",
            "<lockwright_locks::front::Front as lockwright_locks::Lock>::unlock",
            "lw_cond_wait",
            "std::condition_variable::wait<Queue::pop()::{lambda()#1}>",
            "std::_V2::condition_variable_any::wait<std::shared_mutex>",
            "std::__shared_mutex_pthread::lock_shared",
            "lockwright::condition_variable::wait<lockwright::mutex>",
        ] {
            assert!(is_of_a_lock(name), "{name}");
        }
        let at = |file: &str| Frame {
            function: Some("wait<pop()::<lambda()> >".to_owned()),
            file: Some(file.to_owned()),
            ..Frame::default()
        };
        assert!(super::is_of_a_lock(&at("/usr/include/c++/12/condition_variable")));
        assert!(!super::is_of_a_lock(&at("src/condition_variable.cc")));
        assert!(!is_of_a_lock("bounded<long>::put") && !is_of_a_lock("lockwrights::turn"));
    }
}
