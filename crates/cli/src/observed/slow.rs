//! Advice by why a lock's holders were slow: the answer isn't always shorter code.

use crate::profile::words::{FEW, called};
use lockwright_numbers::format::{count, time};
use lockwright_observer::counts::observation::{Ranked, Rule};
use lockwright_observer::findings::{Cause, Holding};

/// A lock that is taken this often is taken often.
const OFTEN: u64 = 1_000_000;
/// A cause with at least this share is what made others wait.
const MAIN: f64 = 0.4;

/// The rule and the advice; `None`: the holders mostly ran, or too little was seen of them.
pub(super) fn advise(lock: &Ranked) -> Option<(Rule, String)> {
    let holder = lock.holders.first();
    let (rule, text) =
        of(lock.holding.as_ref()?, holder.map(|site| site.function.as_str()), holder.map(called))?;
    // The more often it is taken, the more often a holder loses its CPU.
    let often = holder.filter(|_| rule == Rule::HolderPreempted && lock.acquired >= OFTEN);
    let text = match often {
        Some(site) => format!(
            "take it less often in {}, for it was taken {} times; or {text}",
            called(site),
            count(lock.acquired)
        ),
        None => text,
    };
    Some((rule, text))
}

/// The same, for holders whose first function has this name, and lies at this place.
pub(crate) fn of(
    holding: &Holding,
    function: Option<&str>,
    place: Option<String>,
) -> Option<(Rule, String)> {
    if holding.samples < FEW {
        return None;
    }
    if let Some(said) = inverted(holding) {
        return Some((Rule::Inverted, said));
    }
    let (cause, share) = main(holding)?;
    let share = format!("{:.0} % of the time that others waited", 100.0 * share);
    let holder = place.unwrap_or_else(|| "its holder".to_owned());
    let said = match cause {
        Cause::Asleep(call) => {
            // Where it slept says more than where it released the lock.
            let place = holding.asleep_in.as_deref().unwrap_or(&holder);
            let within = function.filter(|whose| place.split(" (").next() != Some(*whose));
            let within = within.map_or_else(String::new, |whose| format!(", which {whose} calls"));
            let text = format!(
                "take {call} out of {place}{within}: it sleeps there with the lock, {share}"
            );
            (Rule::HolderSleeps, text)
        }
        Cause::Preempted => (
            Rule::HolderPreempted,
            format!(
                "run fewer threads, or give the program more CPUs: {holder} had the lock but no CPU, {share}"
            ),
        ),
        Cause::Throttled => (
            Rule::HolderThrottled,
            format!(
                "raise its cgroup's CPU quota: {holder} had the lock but no quota left, {share}"
            ),
        ),
        Cause::PageFaults => (
            Rule::HolderFaults,
            format!(
                "get and touch memory before {holder} takes the lock, and keep that memory: page faults took {share}"
            ),
        ),
        Cause::Paging => (
            Rule::HolderFaults,
            format!("add memory, or mlock what {holder} uses: it was read from a disk for {share}"),
        ),
        Cause::Lock => (
            Rule::HolderWaits,
            format!(
                "look at the other locks first: {holder} had this lock and waited for another, {share}"
            ),
        ),
        Cause::Signal => (
            Rule::HolderWaits,
            format!(
                "don't wait for other threads in {holder} while it has the lock: it did, {share}"
            ),
        ),
        Cause::Stopped => (
            Rule::HolderWaits,
            format!("don't stop the program: a signal or a debugger had stopped {holder}, {share}"),
        ),
        Cause::Running => {
            // Only told where it is the slow cores.
            let slowest = 100.0 * holding.classes.last()?;
            (
                Rule::HolderOnSlowCore,
                format!(
                    "keep {holder} off slow cores, or try a lock for unequal cores (asl): it ran on one for {slowest:.0} % of the time \
                     that others waited"
                ),
            )
        }
    };
    Some(said)
}

/// The cause that took most of the time, if it took much. Running isn't one, unless on the slowest cores.
fn main(holding: &Holding) -> Option<(&Cause, f64)> {
    let all = || holding.causes.iter().map(|(cause, share)| (cause, *share));
    let ran = holding.share(&Cause::Running);
    // A section that computes for longer than it has to wait for a CPU is long, whatever the other load.
    let is_main = |cause: &Cause, share: f64| *cause != Cause::Preempted || share >= ran;
    let mut slow = all().filter(|(cause, share)| {
        **cause != Cause::Running && *share >= MAIN && is_main(cause, *share)
    });
    let on_slowest = || holding.classes.last().is_some_and(|share| *share >= 2.0 * MAIN);
    slow.next().or_else(|| all().find(|(cause, _)| **cause == Cause::Running && on_slowest()))
}

/// A thread waited for one with a far lower priority, which had no CPU.
fn inverted(holding: &Holding) -> Option<String> {
    let inversion = holding.inversion.as_ref()?;
    let preempted = holding.share(&Cause::Preempted);
    if inversion.share < MAIN / 2.0 || preempted < MAIN / 2.0 {
        return None;
    }
    let ((waiter, above), (holder, below)) = (&inversion.waiter, &inversion.holder);
    Some(format!(
        "let the mutex inherit priorities (PTHREAD_PRIO_INHERIT): a {above} thread ({waiter}) waited about {} for one of {below} \
         ({holder}), which had no CPU",
        time(inversion.ns as f64)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::advice::tests::lock;
    use lockwright_observer::findings::Inversion;

    fn advice(causes: &[(Cause, f64)], mut holding: Holding) -> Option<(Rule, String)> {
        let mut lock = lock(1_000_000_000, (10, 1_000_000_000, 100_000_000));
        (holding.samples, holding.causes) = (100, causes.to_vec());
        lock.holding = Some(holding);
        advise(&lock)
    }

    #[test]
    fn each_cause_has_advice_of_its_own() {
        let sleeps = [(Cause::Asleep("fsync".into()), 0.8), (Cause::Running, 0.2)];
        let (rule, text) = advice(&sleeps, Holding::default()).unwrap();
        assert_eq!(rule, Rule::HolderSleeps);
        assert!(text.starts_with("take fsync out of update (a.c:1): it sleeps there"), "{text}");
        assert!(text.contains("80 %"), "{text}");
        for (cause, rule) in [
            (Cause::Preempted, Rule::HolderPreempted),
            (Cause::Throttled, Rule::HolderThrottled),
            (Cause::PageFaults, Rule::HolderFaults),
            (Cause::Lock, Rule::HolderWaits),
        ] {
            let causes = [(cause, 0.5), (Cause::Running, 0.5)];
            assert_eq!(advice(&causes, Holding::default()).unwrap().0, rule);
        }
        assert_eq!(advice(&[(Cause::Running, 1.0)], Holding::default()), None);
        let busy = [(Cause::Running, 0.57), (Cause::Preempted, 0.43)];
        assert_eq!(advice(&busy, Holding::default()), None, "the section is long");
        let mut slow = Holding::default();
        slow.classes.extend([0.1, 0.9]);
        let (rule, text) = advice(&[(Cause::Running, 1.0)], slow).unwrap();
        assert!(rule == Rule::HolderOnSlowCore && text.contains("90 %"));
    }

    #[test]
    fn an_inversion_needs_a_holder_without_a_cpu() {
        let names = |name: &str, how: &str| (name.to_owned(), how.to_owned());
        let inversion = Some(Inversion {
            waiter: names("control", "SCHED_FIFO 20"),
            holder: names("logger", "nice 10"),
            share: 0.9,
            ns: 300_000_000,
        });
        let of = |share| {
            let causes = [(Cause::Preempted, share), (Cause::Running, 1.0 - share)];
            let mut holding = Holding::default();
            holding.inversion.clone_from(&inversion);
            advice(&causes, holding)
        };
        let (rule, text) = of(0.9).unwrap();
        assert_eq!(rule, Rule::Inverted);
        assert!(text.contains("a SCHED_FIFO 20 thread (control) waited about 300 ms"), "{text}");
        assert_eq!(of(0.1), None);
    }

    #[test]
    fn few_samples_say_nothing() {
        let mut lock = lock(1_000_000_000, (10, 1_000_000_000, 100_000_000));
        let causes = vec![(Cause::Preempted, 1.0)];
        let holding = lock.holding.insert(Holding::default());
        (holding.samples, holding.causes) = (FEW - 1, causes);
        assert_eq!(advise(&lock), None);
    }
}
