//! The samples with names: which locks were waited for, who waited, who held them.

use super::plumbing::{is_plumbing, own};
use super::sample::{End, Sampled};
use super::seen::{BATCHES, Holder, LockKind, Seen, StackId, Stacks, WaitedLock};
use super::target::{Target, Unlike, variable};
use crate::findings::{Holding, OwnLock, TakenOften, WaitSite};
use crate::origin::Origin;
use lockwright_symbols::{Frame, Symboliser};
use lockwright_text::cause;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The result of `profile --sample`.
#[derive(Debug, Serialize)]
pub struct SampledProfile {
    /// The process's id.
    pub pid: libc::pid_t,
    /// Its name.
    pub program: String,
    /// Maximum number of threads at one time.
    pub threads: usize,
    /// Number of samples.
    pub samples: u64,
    /// How long they took.
    pub seconds: f64,
    /// How the sampling ended.
    #[serde(skip)]
    pub end: Option<End>,
    /// The locks with the most waiting first.
    pub locks: Vec<LockSeen>,
    /// Locks that aren't pthread's: a language's, a library's, or glibc's inner ones; those with the most waiting first.
    pub own_locks: Vec<OwnLock>,
    /// Futex waits that were not for a lock: the average number of waiting threads, and their places.
    pub other_waiting: f64,
    /// The places of these waits.
    pub others: Vec<WaitSite>,
    /// Do its mutexes belong to lockwright?
    pub under_lockwright: bool,
    /// Is it written in Go, whose goroutines don't sleep in the kernel?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_go: bool,
    /// Its locks can't be told from its other waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks_unknown: Option<Unlike>,
    /// CPU time that goes into taking locks without waiting.
    pub taken_often: TakenOften,
    /// Why running threads could not be sampled.
    pub running_unseen: Option<String>,
}

/// A lock that threads waited for.
#[derive(Debug, Serialize)]
pub struct LockSeen {
    /// The variable, or the location.
    pub name: String,
    /// Its address, in hexadecimal digits.
    pub address: String,
    /// The file that contains the variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// What it is: `mutex`, `readers-writer lock`, ...
    pub kind: &'static str,
    /// The share of samples in which a thread waited.
    pub share: f64,
    /// The error of `share`, plus or minus, at 95 % confidence.
    pub share_error: f64,
    /// Average number of waiting threads over all samples.
    pub waiting: f64,
    /// The sum of waiting threads over all samples.
    pub waits: u64,
    /// Does the lock record its holder?
    pub has_owner: bool,
    /// Shares of the samples in which a thread waited.
    pub holders: Vec<WaitSite>,
    /// Shares of all waits.
    pub waiters: Vec<WaitSite>,
    /// What its holders did meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holding: Option<Holding>,
}

/// Samples of a stack, outermost function first, for a flame graph.
pub type Folded = Vec<(Vec<String>, u64)>;

/// Names only the locks that our library doesn't serve, as far as this can tell: the caller knows which are counted. Also returns the number of samples.
pub fn own_locks(sampled: &mut Sampled) -> (Vec<OwnLock>, u64) {
    let Sampled { target, seen, .. } = sampled;
    let Target { has_library, symboliser, environment, .. } = target;
    let mut namer = Namer { symboliser, stacks: &seen.stacks, known: HashMap::new() };
    let by_origin = namer.by_origin(seen);
    let samples = seen.samples();
    let mut all = namer.own_locks(&by_origin, samples, |name| variable(environment, name));
    all.extend(namer.left_to_glibc(seen, samples, *has_library));
    all.sort_by(|a, b| b.waiting.total_cmp(&a.waiting));
    (all, samples)
}

/// Names the places where holders slept.
pub(super) fn name_sleeps(sampled: &mut Sampled) {
    let Sampled { target, seen, holdings, asleep, .. } = sampled;
    let symboliser = &mut target.symboliser;
    let mut namer = Namer { symboliser, stacks: &seen.stacks, known: HashMap::new() };
    for (lock, stack) in asleep {
        let Some(holding) = holdings.get_mut(lock) else { continue };
        let frames = namer.frames(*stack);
        holding.asleep_in = frames.get(own(frames)).map(Frame::to_string);
    }
}

/// Where locks are taken often.
pub(super) fn taken_often(sampled: &mut Sampled) -> TakenOften {
    let Sampled { target, often, sample_ns, took, .. } = sampled;
    often.outcome(&mut target.symboliser, *sample_ns, *took)
}

/// Names everything that was seen. Also returns the stacks for a flame graph.
pub fn outcome(sampled: &mut Sampled) -> (SampledProfile, Folded) {
    name_sleeps(sampled);
    let mut taken_often = taken_often(sampled);
    let Sampled { target, seen, holdings, took, end, refused, .. } = sampled;
    let Target { pid, name, has_library, symboliser, is_go, unlike, environment } = target;
    let mut namer = Namer { symboliser, stacks: &seen.stacks, known: HashMap::new() };
    let mut others = seen.others.clone();
    let (mut locks, mut folded) = (Vec::new(), Vec::new());
    let by_origin = namer.by_origin(seen);
    others.retain(|stack, _| !by_origin.iter().any(|(_, stacks)| stacks.contains_key(stack)));
    for (&address, lock) in &seen.locks {
        if let Some(origin) = namer.origin(lock) {
            namer.fold(origin.name(), lock, &mut folded);
            continue;
        }
        if !namer.is_lock(lock) {
            // Waits on words that looked like a lock's but were not.
            for (stack, count) in &lock.waiters {
                *others.entry(*stack).or_default() += count;
            }
            continue;
        }
        let mut found = namer.lock(address, lock, &seen.batches);
        found.holding = holdings.get(&address).cloned();
        namer.fold(&found.name, lock, &mut folded);
        locks.push(found);
    }
    locks.sort_by(|a, b| b.waits.cmp(&a.waits).then_with(|| a.address.cmp(&b.address)));
    folded.sort();
    let samples = seen.samples();
    let other_waits: u64 = others.values().sum();
    let others = namer.sites(
        others.iter().map(|(stack, count)| ((None, Some(*stack)), *count)),
        other_waits,
        false,
    );
    let own_locks = namer.own_locks(&by_origin, samples, |name| variable(environment, name));
    let look_ns = took.as_nanos() as f64 / samples.max(1) as f64;
    let waiters = || locks.iter().flat_map(|lock| &lock.waiters);
    let waits: Vec<_> = waiters()
        .filter_map(|site| {
            let ns = site.samples as f64 * look_ns;
            Some((site.function.as_deref()?, site.samples, ns as u64))
        })
        .collect();
    taken_often.without_waits(&waits);
    let outcome = SampledProfile {
        pid: *pid,
        program: name.clone(),
        threads: seen.threads,
        samples,
        seconds: took.as_secs_f64(),
        end: Some(*end),
        locks,
        own_locks,
        other_waiting: ratio(other_waits, samples),
        others,
        under_lockwright: *has_library,
        is_go: *is_go,
        locks_unknown: *unlike,
        taken_often,
        running_unseen: refused.as_ref().map(|error| cause(error).to_string()),
    };
    (outcome, folded)
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Half the width of the 95 % confidence interval of the share. Consecutive samples are not independent, because one
/// wait may span many of them. So we also compare the shares of batches, and return the larger error.
fn share_error(lock: &[u64; BATCHES], all: &[u64; BATCHES]) -> f64 {
    let (hits, samples): (u64, u64) = (lock.iter().sum(), all.iter().sum());
    let share = ratio(hits, samples);
    let independent = (share * (1.0 - share) / samples.max(1) as f64).sqrt();
    let batches = lock.iter().zip(all).filter(|(_, all)| **all > 0);
    let shares: Vec<f64> = batches.map(|(lock, all)| ratio(*lock, *all)).collect();
    let count = shares.len() as f64;
    if count < 2.0 {
        return (1.96 * independent).min(1.0);
    }
    let middle = shares.iter().sum::<f64>() / count;
    let variance = shares.iter().map(|share| (share - middle).powi(2)).sum::<f64>() / (count - 1.0);
    // Student's t for 19 degrees of freedom, and the normal distribution's value.
    (2.09 * (variance / count).sqrt()).max(1.96 * independent).min(1.0)
}

struct Namer<'a> {
    symboliser: &'a mut Symboliser,
    stacks: &'a Stacks,
    known: HashMap<StackId, Vec<Frame>>,
}

impl Namer<'_> {
    fn frames(&mut self, stack: StackId) -> &[Frame] {
        self.known.entry(stack).or_insert_with(|| {
            let addresses = self.stacks.get(stack).iter();
            addresses.flat_map(|&address| self.symboliser.code(address).to_vec()).collect()
        })
    }

    /// Is it a lock? A mutex with a holder is. Otherwise, the waiting functions must be lock functions. If none of them
    /// has a name, we trust a word with the value 2.
    fn is_lock(&mut self, lock: &WaitedLock) -> bool {
        let wanted = match lock.kind {
            LockKind::Mutex(_) | LockKind::ReadWrite | LockKind::SharedReadWrite => return true,
            LockKind::Word => "lock",
        };
        let for_else = |name: &str| {
            ["cond", "sem_", "barrier", "join", "once"].iter().any(|part| name.contains(part))
        };
        let stacks: Vec<_> = lock.waiters.keys().copied().collect();
        stacks.into_iter().any(|stack| {
            let frames = self.frames(stack);
            // Include the innermost function of the program itself: its name may say "lock".
            let inner = frames.iter().take_while(|frame| is_plumbing(frame)).count() + 1;
            // The paths of our own functions say "lock", whatever their threads wait for.
            let mut ours = frames.iter().take(inner).filter(|f| f.module.contains("lockwright"));
            if ours.any(|frame| frame.function.as_deref().is_some_and(for_else)) {
                return false;
            }
            let mut names = frames.iter().take(inner).filter_map(|frame| frame.function.as_ref());
            let named = names.clone().any(|name| {
                let name = name.to_lowercase();
                (name.contains(wanted) || name.contains("mutex")) && !for_else(&name)
            });
            named || (lock.kind == LockKind::Word && names.next().is_none())
        })
    }

    /// Its functions by symbol tables alone: enough to know runtimes by, without reading all debug information.
    fn functions(&mut self, stack: StackId) -> Vec<Frame> {
        let addresses = self.stacks.get(stack).iter();
        addresses.map(|&address| self.symboliser.bare(address)).collect()
    }

    /// The waits for locks that aren't pthread's: by origin, and by stack.
    fn by_origin(&mut self, seen: &Seen) -> BTreeMap<Origin, HashMap<StackId, u64>> {
        let mut by_origin: BTreeMap<Origin, HashMap<StackId, u64>> = BTreeMap::new();
        for (&stack, &count) in &seen.others {
            if let Some(origin) = Origin::of(&self.functions(stack)) {
                *by_origin.entry(origin).or_default().entry(stack).or_default() += count;
            }
        }
        for lock in seen.locks.values() {
            let Some(origin) = self.origin(lock) else { continue };
            for (&stack, &count) in &lock.waiters {
                *by_origin.entry(origin).or_default().entry(stack).or_default() += count;
            }
        }
        by_origin
    }

    fn own_locks(
        &mut self,
        by_origin: &BTreeMap<Origin, HashMap<StackId, u64>>,
        samples: u64,
        setting: impl Fn(&str) -> Option<String>,
    ) -> Vec<OwnLock> {
        let all = by_origin.iter();
        let mut all: Vec<OwnLock> =
            all.map(|(&origin, stacks)| self.own_lock(origin, stacks, samples, &setting)).collect();
        all.sort_by(|a, b| b.waiting.total_cmp(&a.waiting));
        all
    }

    /// pthread's locks that glibc serves, each by its name. Beside our library, these are the ones of kinds that it always
    /// leaves to glibc: what else a sample sees may be ours.
    fn left_to_glibc(&mut self, seen: &Seen, samples: u64, has_library: bool) -> Vec<OwnLock> {
        use super::wait::Mutex::{PriorityInheriting, PriorityProtected, Robust, Shared};
        let mut never_ours =
            [Robust, PriorityInheriting, PriorityProtected, Shared].map(LockKind::Mutex).to_vec();
        never_ours.push(LockKind::SharedReadWrite);
        let is_glibcs = |lock: &WaitedLock| {
            lock.kind != LockKind::Word && (!has_library || never_ours.contains(&lock.kind))
        };
        // Who waits in our library waits for a lock of ours, also in a process that had not loaded it when we met it.
        let mut is_ours = |lock: &WaitedLock| {
            let mut stacks = lock.waiters.keys();
            stacks.any(|&stack| {
                let frames = self.frames(stack);
                frames.iter().any(|frame| frame.module.starts_with("liblockwright"))
            })
        };
        let is_left: Vec<u64> = seen
            .locks
            .iter()
            .filter(|(_, lock)| is_glibcs(lock))
            .filter(|(_, lock)| never_ours.contains(&lock.kind) || !is_ours(lock))
            .map(|(address, _)| *address)
            .collect();
        let locks = is_left.iter().map(|address| (address, &seen.locks[address]));
        let one = |(&address, lock): (&u64, &WaitedLock)| {
            let origin = Origin::LeftToGlibc;
            let kind = match lock.kind {
                LockKind::Mutex(kind) => kind.word(),
                LockKind::SharedReadWrite => "process-shared readers-writer lock",
                LockKind::ReadWrite | LockKind::Word => "readers-writer lock",
            };
            let found = self.own_lock(origin, &lock.waiters, samples, &|_| None);
            let name = format!("{}, a {kind} that glibc serves", self.symboliser.data(address));
            OwnLock { address, name, ..found }
        };
        locks.map(one).collect()
    }

    /// Whose lock it is, if it is none of pthread's: what most of its waiters say.
    fn origin(&mut self, lock: &WaitedLock) -> Option<Origin> {
        if lock.kind != LockKind::Word {
            return None;
        }
        let (&most, _) = lock.waiters.iter().max_by_key(|(stack, count)| (**count, **stack))?;
        Origin::of(&self.functions(most))
    }

    fn own_lock(
        &mut self,
        origin: Origin,
        stacks: &HashMap<StackId, u64>,
        samples: u64,
        setting: &impl Fn(&str) -> Option<String>,
    ) -> OwnLock {
        let waits = stacks.values().sum();
        let most = stacks.iter().max_by_key(|(stack, count)| (**count, **stack));
        let called = most.and_then(|(&stack, _)| {
            let frames = self.frames(stack);
            Origin::called(frames, own(frames))
        });
        let name = match called.filter(|_| origin.is_glibcs()) {
            Some(called) => format!("{} ({called})", origin.name()),
            None => origin.name().to_owned(),
        };
        let waiters = stacks.iter().map(|(stack, count)| ((None, Some(*stack)), *count));
        OwnLock {
            address: 0,
            origin,
            name,
            waiting: ratio(waits, samples),
            waits,
            waiters: self.sites(waiters, waits, true),
            advice: origin.advice(setting),
        }
    }

    fn lock(&mut self, address: u64, lock: &WaitedLock, batches: &[u64; BATCHES]) -> LockSeen {
        use lockwright_symbols::Place;
        let place = self.symboliser.data(address);
        let module = match &place {
            Place::Symbol { module, .. } | Place::Section { module, .. } => Some(module.clone()),
            _ => None,
        };
        let samples = batches.iter().sum();
        let held = lock.samples();
        let holders = lock.holders.iter().map(|(holder, count)| {
            let (state, stack) = match *holder {
                Holder::Sleeping(stack) => ("sleeping", Some(stack)),
                Holder::Running(stack) => ("running", Some(stack)),
                Holder::Unseen => ("running, place unknown", None),
                Holder::Readers => ("readers: the lock only counts them", None),
                Holder::Unknown => ("unknown: it changed hands, or its holder has ended", None),
            };
            ((Some(state), stack), *count)
        });
        let has_owner = lock.kind != LockKind::Word;
        LockSeen {
            name: place.to_string(),
            address: format!("{address:#x}"),
            module,
            kind: match lock.kind {
                LockKind::Mutex(kind) => kind.word(),
                LockKind::ReadWrite => "readers-writer lock",
                LockKind::SharedReadWrite => "process-shared readers-writer lock",
                LockKind::Word => "lock that records no owner",
            },
            share: ratio(held, samples),
            share_error: share_error(&lock.batches, batches),
            waiting: ratio(lock.waits, samples),
            waits: lock.waits,
            has_owner,
            holders: if has_owner { self.sites(holders, held, false) } else { Vec::new() },
            waiters: self.sites(
                lock.waiters.iter().map(|(stack, count)| ((None, Some(*stack)), *count)),
                lock.waits,
                true,
            ),
            holding: None,
        }
    }

    /// Merges stacks with the same innermost function of the program; `by_line`: also by line.
    fn sites(
        &mut self,
        all: impl IntoIterator<Item = ((Option<&'static str>, Option<StackId>), u64)>,
        whole: u64,
        by_line: bool,
    ) -> Vec<WaitSite> {
        type Key = (Option<&'static str>, Option<(String, Option<u32>)>);
        let mut groups: HashMap<Key, Vec<(Option<StackId>, u64)>> = HashMap::new();
        for ((state, stack), count) in all {
            let place = stack.map(|stack| {
                let frames = self.frames(stack);
                let frame = &frames[own(frames)];
                (frame.name(), frame.line.filter(|_| by_line))
            });
            groups.entry((state, place)).or_default().push((stack, count));
        }
        let mut sites: Vec<WaitSite> = groups
            .into_iter()
            .map(|((state, _), mut stacks)| {
                stacks.sort_by_key(|&(stack, count)| (std::cmp::Reverse(count), stack));
                let samples = stacks.iter().map(|(_, count)| count).sum();
                let share = ratio(samples, whole);
                let none = WaitSite {
                    share,
                    samples,
                    state,
                    function: None,
                    file: None,
                    line: None,
                    stack: Vec::new(),
                    callers: Vec::new(),
                };
                let Some(stack) = stacks[0].0 else { return none };
                let frames = self.frames(stack);
                let at = own(frames);
                WaitSite {
                    function: Some(frames[at].name()),
                    file: frames[at].file.clone(),
                    line: frames[at].line,
                    stack: frames.iter().map(Frame::to_string).collect(),
                    callers: frames[at + 1..]
                        .iter()
                        .filter(|f| !is_plumbing(f))
                        .map(Frame::name)
                        .collect(),
                    ..none
                }
            })
            .collect();
        sites.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.function.cmp(&b.function)));
        sites
    }

    fn fold(&mut self, name: &str, lock: &WaitedLock, folded: &mut Folded) {
        let waiters = lock.waiters.iter().map(|(stack, count)| ("waiters", *stack, *count));
        let holders = lock.holders.iter().filter_map(|(holder, count)| match holder {
            Holder::Sleeping(stack) | Holder::Running(stack) => Some(("holders", *stack, *count)),
            _ => None,
        });
        for (what, stack, count) in waiters.chain(holders) {
            let mut frames = vec![what.to_owned(), name.to_owned()];
            frames.extend(self.frames(stack).iter().rev().map(Frame::name));
            folded.push((frames, count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_grow_with_what_varies() {
        let all = [25; BATCHES];
        // The error that independent samples would have.
        let even = share_error(&[12; BATCHES], &all);
        assert!((0.04..0.05).contains(&even), "{even}");
        // Waits that each span a quarter of the time.
        let mut clustered = [0; BATCHES];
        clustered[..10].fill(24);
        assert!(share_error(&clustered, &all) > 4.0 * even);
        assert_eq!(share_error(&[0; BATCHES], &[0; BATCHES]), 0.0);
    }
}
