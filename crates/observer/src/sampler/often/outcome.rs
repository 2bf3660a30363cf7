//! The functions that take locks often, with names.

use super::watch::{FEWEST, LEAST, Often, Times, frames};
use crate::counts::outcome::lock_name;
use crate::findings::{OftenSite, TakenOften};
use crate::sampler::plumbing::{is_plumbing, own};
use lockwright_symbols::{Frame, Symboliser};
use lockwright_text::cause;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// More than one part in this many of a place's samples in code that waits: threads do wait there.
const WAITING: u64 = 10;

/// Where locks are taken: the function, and the function of the program that called it, if that is a library's.
type Key = (String, Option<String>);

#[derive(Default)]
struct PlaceSum {
    times: Times,
    /// By line.
    places: BTreeMap<String, u64>,
    stacks: Vec<(u64, Vec<u64>)>,
    inner: std::collections::BTreeSet<String>,
    /// Calls by lock.
    locks: HashMap<u64, u64>,
}

impl Often {
    /// What was seen. `sample_ns`: the CPU time between two samples.
    pub(in crate::sampler) fn outcome(
        &self,
        symbols: &mut Symboliser,
        sample_ns: u64,
        took: Duration,
    ) -> TakenOften {
        let (samples, of) = (self.taking(), self.all);
        let program = symbols.space().mappings.iter().find(|one| one.is_file());
        let program = program.and_then(|one| one.path.file_name());
        let program = program.map(|name| name.display().to_string()).unwrap_or_default();
        let mut groups: HashMap<Key, PlaceSum> = HashMap::new();
        for (stack, times) in &self.stacks {
            let frames = frames(stack, symbols);
            let Some(site) = CallPlace::of(&frames, &program) else { continue };
            let group = groups.entry(site.key).or_default();
            group.times.taking += times.taking;
            group.times.waiting += times.waiting;
            group.times.acquiring += times.acquiring;
            *group.places.entry(site.place).or_default() += times.taking;
            group.stacks.push((times.taking, stack.clone()));
            group.inner.insert(site.inner);
        }
        let mut calls = 0;
        for (stack, locks) in &self.rate.places {
            calls += locks.values().sum::<u64>();
            let frames = frames(stack, symbols);
            let Some(site) = CallPlace::of(&frames, &program) else { continue };
            let Some(group) = groups.get_mut(&site.key) else { continue };
            for (lock, count) in locks {
                *group.locks.entry(*lock).or_default() += count;
            }
        }
        let waiting: u64 = self.stacks.values().map(|times| times.waiting).sum();
        let (at_least, is_too_often) = (self.at_least(sample_ns, took), self.is_too_often());
        let mut sites: Vec<OftenSite> = Vec::new();
        for ((function, caller), group) in groups {
            let Times { taking, acquiring, waiting: here } = group.times;
            let acquires = acquiring * WAITING > taking;
            // Who only releases locks doesn't wait: so it goes by all that do.
            let has_waits = match acquires {
                true => here * WAITING > taking,
                false => waiting * WAITING > samples,
            };
            if taking < FEWEST || (taking as f64) < LEAST * of as f64 || has_waits {
                continue;
            }
            let waiting = here;
            let most = group.places.iter().max_by_key(|(_, count)| **count);
            let place = most.map(|(place, _)| place.clone()).unwrap_or_default();
            let most = group.stacks.iter().max().map(|(_, stack)| stack.clone());
            let stack = frames(&most.unwrap_or_default(), symbols);
            let here: u64 = group.locks.values().sum();
            let part = here as f64 / calls.max(1) as f64;
            let lock = group.locks.iter().max_by_key(|(at, count)| (**count, **at));
            let lock = lock.filter(|(at, count)| **at != 0 && **count * 10 >= here * 9);
            sites.push(OftenSite {
                place,
                share: taking as f64 / of.max(1) as f64,
                samples: taking,
                waiting,
                waits: 0,
                wait_ns: 0,
                acquires,
                at_least: at_least.map(|all| all * part).filter(|rate| *rate > 0.0),
                is_too_often: part > 0.0 && is_too_often,
                lock: lock.map(|(at, _)| lock_name(*at, Some(function.clone()), symbols)),
                locks: group.locks.len(),
                stack: stack.iter().map(Frame::to_string).collect(),
                inner: group.inner,
                function,
                caller,
            });
        }
        sites.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.function.cmp(&b.function)));
        let uncounted = self.rate.refused.as_ref().filter(|_| !sites.is_empty());
        TakenOften {
            share: samples as f64 / of.max(1) as f64,
            samples,
            of,
            sample_ns,
            sites,
            uncounted: uncounted.map(why),
        }
    }
}

fn why(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel sets no breakpoints for us: sudo sysctl kernel.perf_event_paranoid=2"
                .to_owned()
        }
        Some(libc::ENOSPC | libc::EBUSY) => "a debugger uses the CPU's breakpoints".to_owned(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENODEV | libc::ENOENT) => {
            "this machine sets no breakpoints".to_owned()
        }
        _ => cause(error).to_string(),
    }
}

/// A place in the program.
struct CallPlace {
    key: Key,
    place: String,
    inner: String,
}

impl CallPlace {
    /// Of a stack, the innermost function first. `None`: nobody has called the lock's function, as far as the stack tells.
    fn of(frames: &[Frame], program: &str) -> Option<Self> {
        let first = frames.iter().position(|one| !is_plumbing(one));
        let first = first.or_else(|| (frames.len() > 1).then(|| own(frames)))?;
        let innermost = &frames[first];
        let inner = innermost.name();
        let in_program = frames.iter().skip(first).position(|one| one.module == program);
        // Users can change their own code: so the library's function that they call, and where.
        if let Some(at) = in_program.map(|at| first + at).filter(|at| *at > first) {
            let (called, caller) = (&frames[at - 1], &frames[at]);
            let key = (called.name(), Some(caller.name()));
            return Some(Self { key, place: caller.site().unwrap_or_default(), inner });
        }
        let place = innermost.site().unwrap_or_default();
        Some(Self { key: (inner.clone(), None), place, inner })
    }
}

impl TakenOften {
    /// Drops sites for which threads have waited for long. `waits` are the functions in which waits began, how many, and how long they took in all, ns.
    pub fn without_waits(&mut self, waits: &[(&str, u64, u64)]) {
        let sample_ns = self.sample_ns;
        self.sites.retain_mut(|site| {
            // Who only releases locks doesn't wait: so it goes by all that do.
            let there = waits.iter().filter(|(at, ..)| !site.acquires || site.inner.contains(*at));
            (site.waits, site.wait_ns) =
                there.fold((0, 0), |(count, ns), (_, more, longer)| (count + more, ns + longer));
            site.wait_ns * WAITING <= site.samples * sample_ns
        });
    }

    /// The share (0 to 1) of the CPU time that goes into the sites that are told.
    pub fn told(&self) -> f64 {
        self.sites.iter().map(|site| site.share).sum()
    }

    /// Adds what another process of the same program did.
    pub fn add(&mut self, part: &Self) {
        let of = (self.of + part.of).max(1) as f64;
        for site in &part.sites {
            let same = |one: &&mut OftenSite| {
                (&one.function, &one.caller) == (&site.function, &site.caller)
            };
            match self.sites.iter_mut().find(same) {
                Some(known) => {
                    known.samples += site.samples;
                    known.waiting += site.waiting;
                    known.waits += site.waits;
                    known.wait_ns += site.wait_ns;
                    known.locks += site.locks;
                    known.is_too_often |= site.is_too_often;
                    known.at_least = match (known.at_least, site.at_least) {
                        _ if known.is_too_often => None,
                        (Some(a), Some(b)) => Some(a + b),
                        (a, b) => a.or(b),
                    };
                    if known.lock != site.lock {
                        known.lock = None;
                    }
                }
                None => self.sites.push(site.clone()),
            }
        }
        (self.samples, self.of) = (self.samples + part.samples, self.of + part.of);
        self.share = self.samples as f64 / of;
        for site in &mut self.sites {
            site.share = site.samples as f64 / of;
        }
        self.sites.retain(|site| site.share >= LEAST);
        self.sites.sort_by_key(|site| std::cmp::Reverse(site.samples));
        if self.uncounted.is_none() {
            self.uncounted.clone_from(&part.uncounted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str, line: Option<u32>) -> Frame {
        Frame {
            function: Some(function.into()),
            file: line.map(|_| "a.c".to_owned()),
            line,
            module: module.into(),
            ..Frame::default()
        }
    }

    #[test]
    fn the_programs_call_of_a_library_is_told() {
        let stack = [
            frame("___pthread_rwlock_rdlock", "libc.so.6", None),
            frame("CRYPTO_THREAD_read_lock", "libcrypto.so.3", None),
            frame("ossl_get", "libcrypto.so.3", None),
            frame("EVP_MD_fetch", "libcrypto.so.3", None),
            frame("work", "crypt", Some(8)),
            frame("start_thread", "libc.so.6", None),
        ];
        let site = CallPlace::of(&stack, "crypt").unwrap();
        assert_eq!(site.key, ("EVP_MD_fetch".to_owned(), Some("work".to_owned())));
        assert_eq!((&site.place[..], &site.inner[..]), ("a.c:8", "ossl_get"));
        let site = CallPlace::of(&stack[..4], "crypt").unwrap();
        assert_eq!(site.key, ("ossl_get".to_owned(), None), "nobody of the program's is seen");
        assert!(CallPlace::of(&stack[..1], "crypt").is_none());
    }

    #[test]
    fn wrappers_are_passed_by() {
        let mut stack = [
            frame("pthread_mutex_lock", "liblockwright.so", None),
            frame("std::mutex::lock", "server", Some(3)),
            frame("grab_lock", "server", Some(5)),
            frame("poll", "server", Some(9)),
        ];
        let site = CallPlace::of(&stack, "server").unwrap();
        assert_eq!((site.key, &site.place[..]), (("poll".to_owned(), None), "a.c:9"));
        stack[2] = frame("grab", "server", Some(5));
        let site = CallPlace::of(&stack, "server").unwrap();
        assert_eq!(site.key.0, "grab");
    }

    fn often(samples: u64, of: u64, function: &str) -> TakenOften {
        let site = OftenSite {
            function: function.to_owned(),
            samples,
            share: samples as f64 / of as f64,
            at_least: Some(1000.0),
            acquires: true,
            inner: [function.to_owned()].into(),
            ..OftenSite::default()
        };
        TakenOften {
            share: site.share,
            samples,
            of,
            sample_ns: 1000,
            sites: vec![site],
            uncounted: None,
        }
    }

    #[test]
    fn where_threads_wait_for_long_nothing_is_told() {
        let mut found = often(100, 200, "poll");
        let waits = [("poll", 3, 10_000), ("other", 1, 1)];
        found.without_waits(&waits);
        assert_eq!((found.sites[0].waits, found.sites[0].wait_ns), (3, 10_000));
        let mut releases = found.clone();
        releases.sites[0].acquires = false;
        releases.without_waits(&waits);
        assert!(releases.sites.is_empty(), "others may wait for what it releases");
        found.without_waits(&[("poll", 3, 10_001)]);
        assert!(found.sites.is_empty(), "a tenth of its time");
    }

    #[test]
    fn processes_are_added() {
        let mut sum = often(100, 200, "poll");
        sum.add(&often(100, 800, "poll"));
        assert_eq!((sum.samples, sum.of, sum.share), (200, 1000, 0.2));
        assert_eq!((sum.sites[0].share, sum.sites[0].at_least), (0.2, Some(2000.0)));
        sum.add(&often(1, 9000, "other"));
        assert!(sum.sites.is_empty(), "too little for both together");
    }
}
