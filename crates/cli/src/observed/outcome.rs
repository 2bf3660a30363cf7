//! A snapshot with names, ranked: what a report says.

use super::advice::Advice;
use super::events::Total;
use super::sharing::{Suspects, suspects};
use super::snapshot::{At, Kind, Lock, Of, Seen, Signals, Snapshot};
use super::threads::{self, Thread};
use lockwright_numbers::Times;
use lockwright_symbols::{AddressSpace, Frame, Place, Symboliser, Unwinder};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

/// What one process's locks did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Observed {
    pub(crate) pid: u32,
    pub(crate) command: String,
    /// The lock algorithm that it runs on.
    pub(crate) lock: String,
    /// How long it was watched, ns.
    pub(crate) elapsed_ns: u64,
    /// The slices of the locks' courses, ns; 0: there are none.
    pub(crate) slice_ns: u64,
    /// How many threads it had; 0: not known.
    pub(crate) threads: usize,
    /// By the time that all threads waited for them, the longest first.
    pub(crate) locks: Vec<Ranked>,
    /// Those that lie in one line of the caches.
    pub(crate) false_sharing: Vec<Suspects>,
    /// An event that somebody asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Total>,
    /// Semaphores that are no locks.
    pub(crate) signals: Signals,
    /// It is a Python program, and this is why its functions are not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) python_unread: Option<String>,
    pub(crate) lost: Lost,
}

/// What was not counted, or not told apart.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Lost {
    /// Waits for locks that found no room: they count as one lock.
    pub(crate) unplaced: u64,
    /// Locks that made room for others.
    pub(crate) evicted: u64,
    /// Locks that are gone.
    pub(crate) retired: u64,
    pub(crate) stacks: u64,
    /// Operations for which there was no memory.
    pub(crate) memory: u64,
}

/// A lock with its names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ranked {
    #[serde(skip)]
    pub(crate) of: Of,
    /// Which of those that had this record.
    #[serde(skip)]
    pub(crate) tenant: u64,
    /// Its place in the process's table of locks.
    #[serde(skip)]
    pub(crate) place: u32,
    pub(crate) kind: Kind,
    /// The variable, or where it lies.
    pub(crate) name: String,
    /// 0: it is not one lock.
    pub(crate) address: u64,
    /// How many locks this is about.
    pub(crate) locks: u32,
    /// Threads that had to wait.
    pub(crate) contended: u64,
    /// Of those, how many gave up.
    pub(crate) gave_up: u64,
    /// How many slept before they had it.
    pub(crate) slept: u64,
    /// For how long somebody waited, ns.
    pub(crate) blocked_ns: u64,
    /// How long threads waited, all together, ns.
    pub(crate) wait_ns: u64,
    /// How long it was held, of the holds that were timed, ns.
    pub(crate) hold_ns: u64,
    pub(crate) wait: Percentiles,
    /// By class of core, the fastest first; those without waits are left out.
    pub(crate) wait_by_class: Vec<(usize, Percentiles)>,
    /// Hold times of threads that had to wait.
    pub(crate) hold: Percentiles,
    /// Of acquisitions after a wait, the part by another thread than the one before; `None`: not followed.
    pub(crate) owner_changes: Option<f64>,
    /// On another CPU.
    pub(crate) core_changes: Option<f64>,
    /// The longest wait, and where.
    pub(crate) longest_wait_at: String,
    pub(crate) longest_hold_at: String,
    /// Who waits, by time.
    pub(crate) waiters: Vec<Site>,
    /// For whom, by the time for which somebody waited for them.
    pub(crate) holders: Vec<Site>,
    /// Who waits for it, and for whom others wait there; empty: they weren't told apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) threads: Vec<Thread>,
    /// How long threads waited in each slice of the time, ns; a wait counts when it ends. Empty: nobody looked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) course: Vec<u64>,
    /// How often the event of [`Observed::events`] happened in functions that hold it; an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<u64>,
    /// What to do about it, if somebody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<Advice>,
}

/// Times, ns.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

impl Percentiles {
    fn of(times: &Times, max_ns: u64) -> Self {
        let at = |part| times.quantile(part).min(max_ns.max(1));
        Self { count: times.count(), p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999), max_ns }
    }
}

/// A place in the program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Site {
    pub(crate) function: String,
    /// File and line, or the module.
    pub(crate) place: String,
    /// Return address; 0: not known.
    pub(crate) address: u64,
    pub(crate) count: u64,
    pub(crate) ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) max_tid: u32,
    /// The part of the lock's time.
    pub(crate) share: f64,
    /// One of its stacks, the innermost function first.
    pub(crate) stack: Vec<String>,
    /// It was seen in so many samples, and the figures are the lock's, by its part of all samples; `None`: it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) samples: Option<u64>,
}

/// Names and ranks. `elapsed_ns` and `threads` as the caller knows them.
pub(crate) fn outcome(
    snapshot: &Snapshot,
    symbols: &mut Symboliser,
    elapsed_ns: u64,
    threads: usize,
) -> Observed {
    busiest(snapshot, symbols, elapsed_ns, threads, usize::MAX, Lock::rank)
}

/// The same of the first `most` locks, the highest `key` first. Only those get names, which take longer than all the rest.
pub(crate) fn busiest<K: Ord>(
    snapshot: &Snapshot,
    symbols: &mut Symboliser,
    elapsed_ns: u64,
    threads: usize,
    most: usize,
    key: impl Fn(&Lock) -> K,
) -> Observed {
    let mut locks = together(&snapshot.locks, symbols);
    locks.sort_by_cached_key(|lock| std::cmp::Reverse(key(lock)));
    let mut unwinding = Unwinding { space: snapshot.space(), unwinder: None };
    let ranked = |lock: &Rc<Lock>| ranked(&unwinding.of(lock, symbols), symbols);
    let locks: Vec<Ranked> = locks.iter().take(most).map(ranked).collect();
    Observed {
        pid: snapshot.pid,
        command: snapshot.command.clone(),
        lock: snapshot.lock.clone(),
        elapsed_ns,
        slice_ns: 0,
        threads,
        false_sharing: suspects(&locks),
        events: None,
        locks,
        signals: snapshot.signals,
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

/// Makes stacks of the pieces that the process has copied.
struct Unwinding {
    space: AddressSpace,
    unwinder: Option<Unwinder>,
}

impl Unwinding {
    /// The lock with its stacks.
    fn of(&mut self, lock: &Rc<Lock>, symbols: &mut Symboliser) -> Rc<Lock> {
        let all = lock.waiters.iter().chain(&lock.holders);
        if all.clone().all(|site| site.piece.is_none()) {
            return Rc::clone(lock);
        }
        let mut lock = Lock::clone(lock);
        for site in lock.waiters.iter_mut().chain(&mut lock.holders) {
            let Some(piece) = &site.piece else { continue };
            let unwinder = self.unwinder.get_or_insert_with(|| Unwinder::new(symbols));
            // Return addresses, as frame pointers lead to.
            let calls = piece.calls(unwinder, &self.space);
            site.stack = calls.iter().map(|call| call.wrapping_add(1)).collect();
        }
        Rc::new(lock)
    }
}

/// Locks that are gone, and have no name, are one for each place that waited for them first.
pub(super) fn together(locks: &[Rc<Lock>], symbols: &mut Symboliser) -> Vec<Rc<Lock>> {
    let mut gone: BTreeMap<u64, Lock> = BTreeMap::new();
    let mut all = Vec::new();
    for lock in locks {
        let is_nameless = match lock.of {
            // Python's semaphores are all waited for in one place.
            Of::Lock(_) if lock.kind == Kind::Semaphore => false,
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
        let site = match (lock.of, lock.waiters.first().map(|site| site.at)) {
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
    let place = lock.waiters.first().map(|site| called_at(site.at, &site.stack, symbols).0);
    let (name, address) = match lock.of {
        Of::Lock(address) => (lock_name(address, place, symbols), address),
        Of::Gone(site) => {
            let (function, _) = called_at(at(site), &[], symbols);
            (format!("locks that are gone, of {function}"), 0)
        }
        Of::Others => ("other locks".to_owned(), 0),
    };
    let part = |count: u64| (lock.followed > 0).then(|| count as f64 / lock.followed as f64);
    let classes = lock.classes.iter().enumerate().filter(|(_, class)| class.times.count() > 0);
    Ranked {
        of: lock.of,
        tenant: lock.tenants,
        place: lock.place,
        kind: lock.kind,
        name,
        address,
        locks: lock.locks,
        contended: lock.arrived,
        gave_up: lock.gave_up,
        slept: lock.asleep(),
        blocked_ns: lock.blocked_ns,
        wait_ns: lock.wait_ns(),
        hold_ns: lock.hold_ns,
        wait: Percentiles::of(&lock.wait(), lock.wait_max_ns),
        wait_by_class: classes
            .map(|(at, class)| (at, Percentiles::of(&class.times, class.max_ns)))
            .collect(),
        hold: Percentiles::of(&lock.hold, lock.hold_max_ns),
        owner_changes: part(lock.owners),
        core_changes: part(lock.cores),
        longest_wait_at: spot(lock.wait_max_at, symbols),
        longest_hold_at: spot(lock.hold_max_at, symbols),
        waiters: sites(&lock.waiters, symbols),
        holders: sites(&lock.holders, symbols),
        threads: threads::of(&lock.threads),
        course: Vec::new(),
        events: None,
        advice: None,
    }
}

fn at(address: u64) -> At {
    if address > 2 { At::Address(address) } else { At::Unknown }
}

/// A lock's name. One without a variable is known by who waits for it.
pub(crate) fn lock_name(address: u64, place: Option<String>, symbols: &mut Symboliser) -> String {
    let data = symbols.data(address);
    match (&data, place) {
        (Place::Symbol { .. } | Place::Section { .. } | Place::ThreadLocal { .. }, _)
        | (_, None) => data.to_string(),
        (_, Some(function)) => format!("{address:#x}, of {function}"),
    }
}

fn sites(sites: &[Seen], symbols: &mut Symboliser) -> Vec<Site> {
    let total: u64 = sites.iter().map(|site| site.ns).sum();
    let named = sites.iter().map(|site| {
        let (function, place) = called_at(site.at, &site.stack, symbols);
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
            share: site.ns as f64 / total.max(1) as f64,
            stack: stack.collect(),
            samples: None,
        }
    });
    named.collect()
}

/// Function, and file with line, of the call that returns to this address, or of a caller's in `stack`: a guard's methods, inlined
/// or not, are nobody's critical section.
fn called_at(at: At, stack: &[u64], symbols: &mut Symboliser) -> (String, String) {
    match at {
        At::Address(address) => {
            let call = symbols.call_site(address, is_lock_function);
            let frames = symbols.code(call);
            let own = |frames: &[Frame]| frames.iter().find(|frame| !is_of_a_lock(frame)).cloned();
            let callers = || {
                let mut pairs = stack.windows(2).take_while(|pair| symbols.calls(pair[1], pair[0]));
                let callers: Vec<u64> = pairs.by_ref().map(|pair| pair[1]).collect();
                callers.iter().find_map(|caller| own(&symbols.code(caller.saturating_sub(1))))
            };
            let frame = own(&frames).or_else(callers).or_else(|| frames.last().cloned());
            let name = frame.as_ref().map_or_else(String::new, Frame::name);
            (name, frame.as_ref().and_then(Frame::site).unwrap_or_default())
        }
        At::Unknown => ("(not known)".to_owned(), String::new()),
        At::Others => ("(other places)".to_owned(), String::new()),
    }
}

/// Is it what programs call to lock and unlock, linked in?
fn is_lock_function(symbol: &str) -> bool {
    ["pthread_", "__pthread_", "mtx_"].iter().any(|start| symbol.starts_with(start))
        || symbol.contains("lockwright")
}

/// Is it a function of the lock's own interface?
pub(crate) fn is_of_a_lock(frame: &Frame) -> bool {
    const OURS: [&str; 12] = [
        "lockwright_sync::",
        "lockwright_runtime::",
        "lock_api::",
        "core::",
        "std::mutex",
        "std::lock_guard",
        "std::unique_lock",
        "std::scoped_lock",
        "std::shared_mutex",
        "std::recursive_mutex",
        "std::_V2::condition_variable_any",
        "__gthread_",
    ];
    // Where debug information holds lines only, functions have no paths.
    const FILES: [&str; 6] = [
        "/lock_api-",
        "/lockwright-",
        "crates/sync/src/",
        "crates/runtime/src/",
        "/library/core/src/",
        "/gthr-default.h",
    ];
    let name = frame.function.as_deref().unwrap_or_default();
    let name = name.trim_start_matches('<');
    OURS.iter().any(|ours| name.starts_with(ours))
        || frame.file.as_ref().is_some_and(|file| FILES.iter().any(|part| file.contains(part)))
}

fn spot(at: At, symbols: &mut Symboliser) -> String {
    match called_at(at, &[], symbols) {
        (name, place) if place.is_empty() => name,
        (name, place) => format!("{name} ({place})"),
    }
}
