//! Advice about a lock: rules, their thresholds, and a command to run.

use super::delegate::delegate;
use super::target::Target;
use super::{slow, starved};
use crate::profile::words::called;
use lockwright_calibrate::Delegation;
use lockwright_numbers::format::time;
use lockwright_observer::counts::lifetimes::Lifetimes;
use lockwright_observer::counts::observation::{Advice, Observed, Ranked, Rule, Site};
use lockwright_observer::counts::snapshot::LockKind;

/// If threads lose less than this share of their time, another lock gains nothing.
const LITTLE: f64 = 0.02;
/// Duration of a wake-up where it can't be measured, ns. For critical sections longer than this, the way in which the
/// lock is handed over matters little.
const WAKE_UP_NS: u64 = 50_000;
/// Waits of at least this length deserve attention if critical sections are far shorter, ns.
const STARVED_NS: u64 = 10_000_000;
/// So many waits are timed now and then. If none was, something else is unknown, too.
const MANY: u64 = 1000;
/// A wait that is still open at the end deserves attention if it has lasted this long, ns.
const OPEN_NS: u64 = 500_000_000;
/// The factor that counts as "far".
const FAR: u64 = 10;

/// The duration of a wake-up on this machine, ns.
pub(crate) fn wake_up_ns() -> u64 {
    lockwright_calibrate::wake_up().map_or(WAKE_UP_NS, |took| took.as_nanos() as u64)
}

/// What is known apart from the counts.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    /// CPU time of all threads, ns; together with their waits, this is the threads' time.
    pub(crate) cpu_ns: u64,
    /// The result of [`wake_up_ns`].
    pub(crate) wake_up_ns: u64,
    /// How long the threads ran. The time of processes that it doesn't know is CPU time and waits.
    pub(crate) lifetimes: &'a Lifetimes,
    /// When delegation beats locks on this machine, if that was measured.
    pub(crate) here: Option<&'a Delegation>,
    pub(crate) target: &'a Target,
}

/// Adds advice to each lock.
pub(crate) fn advise(outcomes: &mut [Observed], known: Circumstances<'_>) {
    let waits = outcomes.iter().flat_map(|outcome| &outcome.locks).map(|lock| lock.wait_ns);
    let busy_ns = (known.cpu_ns + waits.sum::<u64>()).max(1);
    for outcome in outcomes.iter_mut() {
        let running_ns = known.lifetimes.of(outcome.pid).filter(|&ns| ns > 0).unwrap_or(busy_ns);
        let Observed { lock: algorithm, locks, emulated, .. } = outcome;
        // An emulated machine is another.
        let known = Circumstances { here: known.here.filter(|_| emulated.is_none()), ..known };
        for lock in locks {
            lock.advice = Some(advice(lock, algorithm, (busy_ns, running_ns), known));
        }
    }
}

/// Advice about a lock whose threads were busy and running for that long, ns.
fn advice(
    lock: &Ranked,
    algorithm: &str,
    (busy_ns, running_ns): (u64, u64),
    known: Circumstances<'_>,
) -> Advice {
    let Circumstances { wake_up_ns, target, .. } = known;
    let part = |ns: u64, of_ns: u64| (ns as f64 / of_ns as f64).min(1.0);
    let lost = part(lock.wait_ns, busy_ns);
    let (waiting_share, in_sections) =
        (part(lock.wait_ns, running_ns), part(lock.wait_ns + lock.hold_ns, running_ns));
    let mean = |site: &&Site| site.ns / site.count.max(1);
    let slow = lock.holders.first().filter(|site| mean(site) >= wake_up_ns);
    let is_starved = lock.wait.max_ns >= STARVED_NS
        && lock.holders.iter().all(|site| site.max_ns.saturating_mul(FAR) <= lock.wait.max_ns)
        && !algorithm.starts_with("fifo");
    let waiter = lock.waiters.first().map_or_else(|| "those functions".to_owned(), called);
    let (rule, text, command) = if let Some(found) = starved::advise(lock, target) {
        found
    } else if let Some((rule, text)) = slow::advise(lock).filter(|_| lock.unended_ns >= OPEN_NS) {
        (rule, text, String::new())
    } else if lock.unended_ns >= OPEN_NS {
        let so_far = time(lock.unended_ns as f64);
        let text = match target {
            Target::Program(_) => format!(
                "find out who holds it: at the end a thread had waited {so_far} for it, and still did"
            ),
            Target::Process(_) => format!(
                "find out who holds it: a thread has waited {so_far} for it, and still does"
            ),
        };
        (Rule::Unended, text, target.who_waits())
    } else if lock.wait.count == 0 && (lock.unended_ns > 0 || lock.contended >= MANY) {
        let text =
            "watch for longer: none of its waits has ended, or they were too short to be timed";
        (Rule::Unknown, text.to_owned(), String::new())
    } else if lost < LITTLE {
        (Rule::Little, "leave it: threads lose hardly any time here".to_owned(), String::new())
    } else if let Some((rule, text)) = slow::advise(lock) {
        (rule, text, String::new())
    } else if let Some(site) = slow {
        let text = format!(
            "do less in {} with the lock: each time, it keeps others waiting for {}, so another kind of lock would help little",
            called(site),
            time(mean(&site) as f64)
        );
        (Rule::LongSections, text, String::new())
    } else if lock.kind != LockKind::Mutex {
        let rule = if is_starved { Rule::Starved } else { Rule::ShortSections };
        (
            rule,
            format!(
                "take it less often in {waiter}, or split it: no other kind of lock can serve it"
            ),
            String::new(),
        )
    } else if is_starved {
        let text = format!(
            "try a lock that serves waiters in order: a thread waited {} in {}, though nobody holds it for long",
            time(lock.wait.max_ns as f64),
            lock.waiters.iter().max_by_key(|site| site.max_ns).map_or(waiter, called)
        );
        (Rule::Starved, text, target.compare(lock, "fifo"))
    } else {
        let text = format!(
            "take it less often in {waiter}, as by an atomic variable or a copy for each thread, or try another kind of lock: nobody holds it for long, but many want it"
        );
        let other = if algorithm.starts_with("fifo") { "auto" } else { "fifo" };
        (Rule::ShortSections, text, target.compare(lock, other))
    };
    let may_hand_over = matches!(rule, Rule::ShortSections | Rule::Starved | Rule::LongSections);
    let note = match may_hand_over && lock.kind == LockKind::Mutex {
        true => delegate(in_sections, known.here).unwrap_or_default(),
        false => String::new(), // what semaphores guard can't be handed over
    };
    Advice {
        rule,
        lost,
        waiting_share,
        holding: in_sections - waiting_share,
        in_sections,
        text,
        note,
        command,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lockwright_observer::counts::observation::Percentiles;
    use lockwright_observer::counts::snapshot::Of;

    /// A lock with one holder. `holder` has how often it made others wait, for how long, and the longest such wait, ns.
    pub(crate) fn lock(wait_ns: u64, holder: (u64, u64, u64)) -> Ranked {
        let (count, ns, max_ns) = holder;
        let site = Site {
            function: "update".into(),
            place: "a.c:1".into(),
            address: 1,
            count,
            ns,
            max_ns,
            max_tid: 1,
            share: 1.0,
            ..Site::default()
        };
        Ranked {
            of: Of::Lock(64),
            name: "lock".into(),
            address: 64,
            locks: 1,
            contended: 1000,
            blamed_ns: wait_ns,
            wait_ns,
            wait: Percentiles { count: 1000, max_ns: 2 * max_ns, ..Percentiles::default() },
            holders: vec![site],
            ..Ranked::default()
        }
    }

    fn rule(lock: Ranked, cpu_ns: u64) -> (Rule, String) {
        let mut outcomes =
            [Observed { lock: "auto".into(), locks: vec![lock], ..Observed::default() }];
        let known = Circumstances {
            cpu_ns,
            wake_up_ns: WAKE_UP_NS,
            lifetimes: &Lifetimes::begin(),
            here: None,
            target: &Target::Program("./server 'a b'".into()),
        };
        advise(&mut outcomes, known);
        let advice = outcomes[0].locks[0].advice.clone().expect("advice");
        (advice.rule, advice.command)
    }

    #[test]
    fn each_rule_speaks_where_it_should() {
        let second = 1_000_000_000;
        assert_eq!(
            rule(lock(10_000_000, (1, 1_000_000, 1)), second),
            (Rule::Little, String::new())
        );
        let (long, command) = rule(lock(second, (1000, second, 2_000_000)), second);
        assert_eq!(long, Rule::LongSections);
        assert_eq!(command, "", "the user changes the program");
        let (short, command) = rule(lock(second, (1_000_000, second, 5_000)), second);
        assert_eq!(short, Rule::ShortSections);
        assert_eq!(command, "lockwright compare --lock glibc,auto,fifo -- ./server 'a b'");
        let begun = Ranked { wait: Percentiles::default(), ..lock(0, (0, 0, 0)) };
        assert_eq!(
            rule(begun, second),
            (Rule::Unknown, String::new()),
            "who waits may wait for ever"
        );
        let open = Ranked { unended_ns: second / 2, ..lock(10_000_000, (1, 1_000_000, 1)) };
        assert_eq!(rule(open, 100 * second), (Rule::Unended, String::new()));
        let mut starved = lock(second, (1_000_000, second, 5_000));
        starved.wait.max_ns = 40_000_000;
        assert_eq!(rule(starved.clone(), second).0, Rule::Starved);
        starved.kind = LockKind::Semaphore;
        let (starved, command) = rule(starved, second);
        assert_eq!((starved, command.contains("compare")), (Rule::Starved, false));
    }

    #[test]
    fn waits_and_holds_are_parts_of_the_running_time() {
        let mut lock = lock(300, (10, 300, 30));
        lock.hold_ns = 100;
        let target = Target::Program("./server".into());
        let (lifetimes, here) = (
            Lifetimes::begin(),
            Delegation { threads: 2, lines: 1, up_to: 0.9, over_glibc: Some(0.4), over_all: None },
        );
        let known = Circumstances {
            cpu_ns: 0,
            wake_up_ns: WAKE_UP_NS,
            lifetimes: &lifetimes,
            here: Some(&here),
            target: &target,
        };
        let of = |lock: &Ranked, running_ns| advice(lock, "auto", (600, running_ns), known);
        let made = of(&lock, 1000);
        assert_eq!((made.waiting_share, made.in_sections, made.lost), (0.3, 0.4, 0.5));
        assert!((made.holding - 0.1).abs() < 1e-9 && made.note.starts_with("delegate this one"));
        assert_eq!(of(&lock, 1001).note, "", "below the threshold");
        let short = of(&lock, 350);
        assert_eq!(short.in_sections, 1.0, "the running time is an estimate");
        lock.kind = LockKind::Semaphore;
        assert_eq!(of(&lock, 1000).note, "");
    }
}
