//! Several processes of one program as one: sums by a lock's name, and by place.
//!
//! A server's workers have the same locks at other addresses. One report on all of them says more than one on each.

use super::observation::{Observed, Percentiles, Ranked, Site};
use crate::findings::Holding;
use crate::findings::OwnLock;

/// Processes of one program.
pub struct Together {
    /// All of them together. Its time is the sum of theirs, so that shares are averages over the processes.
    pub sum: Observed,
    /// The processes.
    pub processes: Vec<Observed>,
}

/// Puts processes of the same program, under the same lock, together; in their order.
pub fn groups(outcomes: &[Observed]) -> Vec<Together> {
    let mut groups: Vec<Together> = Vec::new();
    for outcome in outcomes {
        let is_its = |group: &&mut Together| {
            program(&group.sum) == program(outcome)
                && group.sum.lock == outcome.lock
                && group.sum.emulated == outcome.emulated
        };
        match groups.iter_mut().find(is_its) {
            Some(group) => {
                add(&mut group.sum, outcome);
                group.processes.push(outcome.clone());
            }
            None => {
                groups.push(Together { sum: outcome.clone(), processes: vec![outcome.clone()] });
            }
        }
    }
    for group in groups.iter_mut().filter(|group| group.processes.len() > 1) {
        group.sum.pid = 0;
        group.sum.processes = group.processes.iter().map(|process| process.pid).collect();
        group.sum.locks.sort_by_key(|lock| std::cmp::Reverse((lock.wait_ns, lock.blamed_ns)));
    }
    groups
}

/// The first word of its command line. Servers write what they do behind it.
fn program(outcome: &Observed) -> &str {
    outcome.command.split(' ').next().unwrap_or_default()
}

fn add(sum: &mut Observed, part: &Observed) {
    let (before, more) = (sum.elapsed_ns as f64, part.elapsed_ns as f64);
    let share = more / (before + more).max(1.0);
    sum.elapsed_ns = sum.elapsed_ns.saturating_add(part.elapsed_ns);
    sum.threads = sum.threads.saturating_add(part.threads);
    sum.samples = sum.samples.saturating_add(part.samples);
    for (sum, part) in [(&mut sum.locks, &part.locks), (&mut sum.conditions, &part.conditions)] {
        for lock in sum.iter_mut() {
            lock.waiting *= 1.0 - share;
        }
        for lock in part {
            let lock = Ranked { waiting: lock.waiting * share, ..lock.clone() };
            match sum.iter_mut().find(|one| is_same(one, &lock)) {
                Some(known) => add_lock(known, &lock),
                None => sum.push(lock),
            }
        }
    }
    for suspects in &part.false_sharing {
        if !sum.false_sharing.contains(suspects) {
            sum.false_sharing.push(suspects.clone());
        }
    }
    for lock in &part.own_locks {
        match sum
            .own_locks
            .iter_mut()
            .find(|one| (one.origin, &one.name) == (lock.origin, &lock.name))
        {
            Some(known) => add_own(known, lock),
            None => sum.own_locks.push(lock.clone()),
        }
    }
    match (&mut sum.taken_often, &part.taken_often) {
        (Some(sum), Some(part)) => sum.add(part),
        (sum @ None, part) => sum.clone_from(part),
        (Some(_), None) => {}
    }
    if sum.running_unseen.is_none() {
        sum.running_unseen.clone_from(&part.running_unseen);
    }
    sum.signals.semaphores = sum.signals.semaphores.saturating_add(part.signals.semaphores);
    sum.signals.waits = sum.signals.waits.saturating_add(part.signals.waits);
    sum.signals.wait_ns = sum.signals.wait_ns.saturating_add(part.signals.wait_ns);
    sum.lost.unplaced = sum.lost.unplaced.saturating_add(part.lost.unplaced);
    sum.lost.evicted = sum.lost.evicted.saturating_add(part.lost.evicted);
    sum.lost.retired = sum.lost.retired.saturating_add(part.lost.retired);
    sum.lost.stacks = sum.lost.stacks.saturating_add(part.lost.stacks);
    sum.lost.memory = sum.lost.memory.saturating_add(part.lost.memory);
    if sum.python_unread.is_none() {
        sum.python_unread.clone_from(&part.python_unread);
    }
}

/// Is it the same lock of another process? A variable has the same name there. One in the heap has another address, but the same
/// function waits for it.
fn is_same(one: &Ranked, other: &Ranked) -> bool {
    let function = |lock: &Ranked| lock.name.split_once(", of ").map(|(_, name)| name.to_owned());
    one.kind == other.kind
        && match (function(one), function(other)) {
            (Some(one), Some(other)) => one == other,
            (None, None) => one.name == other.name,
            _ => false,
        }
}

fn add_lock(sum: &mut Ranked, part: &Ranked) {
    // It is no longer one lock, which has an address.
    sum.address = 0;
    sum.locks = sum.locks.saturating_add(part.locks);
    for (sum, part) in [
        (&mut sum.acquired, part.acquired),
        (&mut sum.contended, part.contended),
        (&mut sum.gave_up, part.gave_up),
        (&mut sum.slept, part.slept),
        (&mut sum.blamed_ns, part.blamed_ns),
        (&mut sum.wait_ns, part.wait_ns),
        (&mut sum.unended_ns, part.unended_ns),
        (&mut sum.hold_ns, part.hold_ns),
    ] {
        *sum = sum.saturating_add(part);
    }
    sum.waiting += part.waiting;
    if part.wait.max_ns > sum.wait.max_ns {
        sum.longest_wait_at.clone_from(&part.longest_wait_at);
    }
    if part.hold.max_ns > sum.hold.max_ns {
        sum.longest_hold_at.clone_from(&part.longest_hold_at);
    }
    sum.wait_times.merge(&part.wait_times);
    let waits = if sum.wait_times.count() == 0 { sum.contended } else { sum.wait_times.count() };
    sum.mean_ns = sum.wait_ns.saturating_sub(sum.unended_ns) / waits.max(1);
    sum.hold_times.merge(&part.hold_times);
    sum.wait = Percentiles::of(&sum.wait_times, sum.wait.max_ns.max(part.wait.max_ns));
    sum.hold = Percentiles::of(&sum.hold_times, sum.hold.max_ns.max(part.hold.max_ns));
    // Each process knows these only of its own threads and cores.
    sum.wait_by_class.clear();
    sum.threads.clear();
    (sum.owner_changes, sum.core_changes, sum.events) = (None, None, None);
    add_sites(&mut sum.waiters, &part.waiters);
    add_sites(&mut sum.holders, &part.holders);
    sum.beyond.add(&part.beyond);
    add_sites(&mut sum.beyond.triers, &part.beyond.triers);
    add_sites(&mut sum.beyond.tried_holders, &part.beyond.tried_holders);
    if sum.course.len() < part.course.len() {
        sum.course.resize(part.course.len(), 0);
    }
    for (sum, part) in sum.course.iter_mut().zip(&part.course) {
        *sum = sum.saturating_add(*part);
    }
    match (&mut sum.holding, &part.holding) {
        (Some(sum), Some(part)) => add_holding(sum, part),
        (sum @ None, part) => sum.clone_from(part),
        (Some(_), None) => {}
    }
}

fn add_sites(sum: &mut Vec<Site>, parts: &[Site]) {
    for part in parts {
        let same = |one: &&mut Site| (&one.function, &one.place) == (&part.function, &part.place);
        match sum.iter_mut().find(same) {
            Some(known) => {
                known.count = known.count.saturating_add(part.count);
                known.ns = known.ns.saturating_add(part.ns);
                if part.max_ns > known.max_ns {
                    (known.max_ns, known.max_tid) = (part.max_ns, part.max_tid);
                    known.stack.clone_from(&part.stack);
                }
            }
            None => sum.push(part.clone()),
        }
    }
    // Tries in vain take no time.
    let is_timed = sum.iter().any(|site| site.ns > 0);
    let part = |site: &Site| if is_timed { site.ns } else { site.count };
    let total = sum.iter().map(part).fold(0, u64::saturating_add).max(1) as f64;
    for site in sum.iter_mut() {
        site.share = part(site) as f64 / total;
    }
    sum.sort_by_key(|site| std::cmp::Reverse(part(site)));
}

/// Weighs both by their samples.
fn add_holding(sum: &mut Holding, part: &Holding) {
    let (before, more) = (sum.samples as f64, part.samples as f64);
    let all = (before + more).max(1.0);
    for (_, share) in &mut sum.causes {
        *share *= before / all;
    }
    for (cause, share) in &part.causes {
        match sum.causes.iter_mut().find(|(one, _)| one == cause) {
            Some((_, known)) => *known += share * more / all,
            None => sum.causes.push((cause.clone(), share * more / all)),
        }
    }
    sum.causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    if sum.classes.len() == part.classes.len() {
        for (sum, part) in sum.classes.iter_mut().zip(&part.classes) {
            *sum = (*sum * before + part * more) / all;
        }
    }
    sum.samples += part.samples;
    if sum.asleep_in.is_none() {
        sum.asleep_in.clone_from(&part.asleep_in);
    }
    if sum.inversion.is_none() {
        sum.inversion.clone_from(&part.inversion);
    }
}

fn add_own(sum: &mut OwnLock, part: &OwnLock) {
    let all = (sum.waits + part.waits).max(1) as f64;
    for site in &mut sum.waiters {
        site.share *= sum.waits as f64 / all;
    }
    for site in &part.waiters {
        let share = site.share * part.waits as f64 / all;
        let same = |one: &&mut crate::findings::WaitSite| {
            (&one.function, one.line) == (&site.function, site.line)
        };
        match sum.waiters.iter_mut().find(same) {
            Some(known) => {
                known.share += share;
                known.samples += site.samples;
            }
            None => {
                let mut site = site.clone();
                site.share = share;
                sum.waiters.push(site);
            }
        }
    }
    sum.waiters.sort_by(|a, b| b.share.total_cmp(&a.share));
    sum.waiting += part.waiting;
    sum.waits += part.waits;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::beyond::{Side, Sides};
    use crate::findings::Cause;
    use lockwright_numbers::Times;

    fn lock(name: &str, wait_ns: u64, functions: &[(&str, u64)]) -> Ranked {
        let site = |(function, ns): &(&str, u64)| Site {
            function: (*function).to_owned(),
            place: "a.c:1".to_owned(),
            address: 1,
            count: 1,
            ns: *ns,
            max_ns: *ns,
            max_tid: 7,
            share: 1.0,
            stack: Vec::new(),
            samples: None,
        };
        Ranked {
            name: name.to_owned(),
            address: 64,
            locks: 1,
            contended: 10,
            wait_ns,
            waiting: wait_ns as f64 / 1_000.0,
            mean_ns: wait_ns,
            wait_times: [wait_ns].into_iter().collect::<Times>(),
            holders: functions.iter().map(site).collect(),
            ..Ranked::default()
        }
    }

    fn process(pid: u32, command: &str, locks: Vec<Ranked>) -> Observed {
        Observed {
            pid,
            command: command.to_owned(),
            lock: "auto".to_owned(),
            elapsed_ns: 1_000,
            locks,
            ..Observed::default()
        }
    }

    #[test]
    fn processes_of_one_program_are_one() {
        let all = [
            process(1, "srv: worker 1", vec![lock("big", 100, &[("put", 60), ("get", 40)])]),
            process(2, "srv: worker 2", vec![lock("big", 300, &[("get", 300)])]),
            process(3, "other", vec![lock("big", 5, &[("x", 5)])]),
            process(4, "srv: idle", vec![lock("0x7f10, of pop", 900, &[("pop", 900)])]),
            process(5, "srv: idle", vec![lock("0x7f20, of pop", 100, &[("pop", 100)])]),
        ];
        let groups = groups(&all);
        let told: Vec<_> = groups.iter().map(|one| one.processes.len()).collect();
        assert_eq!(told, [4, 1]);
        let sum = &groups[0].sum;
        assert_eq!((sum.elapsed_ns, sum.locks.len()), (4_000, 2));
        assert_eq!((sum.pid, &sum.processes[..]), (0, &[1, 2, 4, 5][..]));
        assert_eq!((groups[1].sum.pid, groups[1].sum.processes.len()), (3, 0));
        let [heap, big] = &sum.locks[..] else { panic!("two locks") };
        assert_eq!((heap.wait_ns, heap.locks, heap.address), (1_000, 2, 0));
        assert_eq!(heap.mean_ns, 500);
        assert!((heap.waiting - 0.25).abs() < 1e-9, "of four processes' time");
        assert_eq!((big.wait_ns, big.contended, big.wait.count), (400, 20, 2));
        let places: Vec<_> =
            big.holders.iter().map(|site| (site.function.as_str(), site.ns)).collect();
        assert_eq!(places, [("get", 340), ("put", 60)]);
        assert_eq!(big.holders[0].share, 0.85);
    }

    #[test]
    fn tries_in_vain_sides_and_conditions_are_added_too() {
        let tried = |pid, count| {
            let mut lock = lock("big", 0, &[("put", 0)]);
            lock.beyond.failed_tries = count;
            lock.beyond.triers = lock.holders.clone();
            lock.beyond.triers[0].count = count;
            lock.beyond.sides = Some(Sides {
                writers: Side { waits: count, ..Side::default() },
                ..Sides::default()
            });
            let conditions = vec![lock.clone()];
            Observed { conditions, ..process(pid, "srv", vec![lock]) }
        };
        let sum = &groups(&[tried(1, 3), tried(2, 4)])[0].sum;
        for one in [&sum.locks[..], &sum.conditions[..]] {
            let [one] = one else { panic!("one lock") };
            let writers = one.beyond.sides.unwrap().writers;
            assert_eq!((one.beyond.failed_tries, writers.waits), (7, 7));
            assert_eq!((one.beyond.triers[0].count, one.beyond.triers[0].share), (7, 1.0));
        }
    }

    #[test]
    fn what_holders_did_is_weighed_by_samples() {
        let holding = |samples, share| Holding {
            samples,
            causes: vec![(Cause::Running, 1.0 - share), (Cause::Preempted, share)],
            ..Holding::default()
        };
        let mut sum = holding(10, 0.0);
        add_holding(&mut sum, &holding(30, 1.0));
        assert_eq!((sum.samples, sum.share(&Cause::Preempted)), (40, 0.75));
        assert_eq!(sum.main(), Some(&(Cause::Preempted, 0.75)));
    }
}
