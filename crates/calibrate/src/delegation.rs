//! From which share of time in critical sections on delegation beats locks here: RCL's thresholds.
//!
//! RCL's authors measured them on two machines of theirs, with a microbenchmark (Lozi et al., *Remote Core Locking*,
//! USENIX ATC 2012, section 5; Lozi's PhD defence): threads change one cache line in each section, and wait for a random
//! delay between two. The shorter the delay, the more of their time they spend in sections or waiting for them, under the
//! POSIX lock. A threshold is the share from which on delegation has more throughput. Here all CPUs have one thread, and
//! the delegated lock is `combiner`, which needs no CPU of its own.

use crate::ledger::Ledger;
use lockwright_bench::{Rcl, interrupted, turns_per_ns};
use lockwright_numbers::{Spread, median};
use lockwright_sim::profile::Delegation;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The locks that delegation is compared with, glibc's first.
pub const LOCKS: [&str; 3] = ["glibc", "auto", "mcs"];
/// The delegated lock.
pub const DELEGATED: &str = "combiner";
/// Cache lines that a section changes.
const LINES: u32 = 1;
/// Number of delays; each is half of the one before.
const DELAYS: u32 = 10;
/// The shortest delay, for each CPU, ns. On few CPUs, glibc's lock would stay with one thread if there was none.
const SHORTEST_NS: u32 = 25;
/// Fewer rounds show nothing.
const FEWEST: usize = 5;
/// Delegation must be ahead at this many neighbouring shares.
const NEIGHBOURS: usize = 2;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// How long sections are counted for one lock at one delay.
    pub(crate) run: Duration,
    /// Most rounds.
    pub(crate) rounds: usize,
    /// No round begins after this time.
    pub(crate) time: Duration,
}

impl Budget {
    /// For a whole calibration: about 15 s.
    pub(crate) const WHOLE: Self =
        Self { run: Duration::from_millis(15), rounds: 25, time: Duration::from_secs(14) };
}

/// What was measured with one delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelegationPoint {
    /// Mean time between two sections of a thread, ns.
    pub delay_ns: u32,
    /// The share (0 to 1) of the threads' time in sections or waiting for them, under glibc's lock: the rounds' median.
    pub share: f64,
    /// For each of [`LOCKS`]: the throughput of [`DELEGATED`] divided by the lock's, round by round.
    pub over: [Spread; LOCKS.len()],
    /// The same for the lock that was the fastest in a round.
    pub over_all: Spread,
}

/// The measured points, by ascending share, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Thresholds {
    pub(crate) points: Vec<DelegationPoint>,
    /// `None`: nothing could be measured.
    pub(crate) delegation: Option<Delegation>,
    /// Why not.
    pub(crate) note: Option<String>,
}

impl Thresholds {
    fn nothing(why: &str) -> Self {
        let note = Some(format!("when delegation pays was not measured: {why}"));
        Self { note, ..Self::default() }
    }
}

/// One round with one delay.
#[derive(Clone, Copy, Debug)]
struct Round {
    share: f64,
    /// For each of [`LOCKS`].
    over: [f64; LOCKS.len()],
}

/// Measures with a thread on each of `cpus` CPUs, and enters the thresholds. Ctrl-C ends it early.
pub(crate) fn measure(cpus: usize, budget: Budget, ledger: &mut Ledger) -> Thresholds {
    if cpus < 2 {
        return Thresholds::nothing("one CPU");
    }
    let threads = u32::try_from(cpus).unwrap_or(u32::MAX);
    let delays: Vec<u32> = delays(threads).collect();
    let rounds = match rounds(threads, &delays, budget) {
        Ok(rounds) => rounds,
        Err(why) => return Thresholds::nothing(&why),
    };
    let mut points: Vec<_> =
        delays.iter().zip(&rounds).filter_map(|(&delay, rounds)| point(delay, rounds)).collect();
    if points.is_empty() {
        return Thresholds::nothing("too few rounds in the time for it");
    }
    points.sort_by(|one, other| one.share.total_cmp(&other.share));
    let delegation = thresholds(threads, &points, ledger);
    Thresholds { points, delegation, note: None }
}

/// From the longest to the shortest, ns.
fn delays(threads: u32) -> impl Iterator<Item = u32> {
    let shortest = threads.saturating_mul(SHORTEST_NS);
    (0..DELAYS).rev().map(move |power| shortest.saturating_mul(1 << power))
}

/// The rounds of each delay. In a round, all locks run with all delays; the order alternates, so that what changes
/// slowly touches all alike. The error says why a lock doesn't run.
fn rounds(threads: u32, delays: &[u32], budget: Budget) -> Result<Vec<Vec<Round>>, String> {
    let turns_per_ns = turns_per_ns();
    let start = Instant::now();
    let mut all = vec![Vec::new(); delays.len()];
    for round in 0..budget.rounds {
        if start.elapsed() > budget.time {
            break;
        }
        for (at, &delay_ns) in delays.iter().enumerate() {
            let seed = round as u64;
            let load =
                Rcl { threads, lines: LINES, delay_ns, time: budget.run, turns_per_ns, seed };
            let mut rates = [0.0; LOCKS.len()];
            let (mut ours, mut share) = (0.0, 0.0);
            let mut turns: Vec<usize> = (0..=LOCKS.len()).collect();
            turns.rotate_left(round % (LOCKS.len() + 1));
            if round % 2 == 1 {
                turns.reverse();
            }
            for turn in turns {
                if interrupted() {
                    return Ok(all);
                }
                let lock = LOCKS.get(turn).copied().unwrap_or(DELEGATED);
                let result = load.run(lock, turn == 0).map_err(|why| why.to_string())?;
                share = result.share.unwrap_or(share);
                match rates.get_mut(turn) {
                    Some(rate) => *rate = result.rate,
                    None => ours = result.rate,
                }
            }
            all[at].push(Round { share, over: rates.map(|rate| ours / rate) });
        }
    }
    Ok(all)
}

/// The point of these rounds, without those in which a lock did nothing at all, because others had the CPUs; `None`: too few
/// are left.
fn point(delay_ns: u32, rounds: &[Round]) -> Option<DelegationPoint> {
    let counts = |round: &&Round| round.over.iter().all(|over| over.is_finite() && *over > 0.0);
    let rounds: Vec<_> = rounds.iter().filter(counts).collect();
    if rounds.len() < FEWEST {
        return None;
    }
    let all = |of: &dyn Fn(&Round) -> f64| rounds.iter().map(|round| of(round)).collect::<Vec<_>>();
    let over = |lock: usize| Spread::of(&all(&|round| round.over[lock]));
    let least = |round: &Round| round.over.iter().copied().fold(f64::INFINITY, f64::min);
    Some(DelegationPoint {
        delay_ns,
        share: median(&all(&|round| round.share))?,
        over: [over(0)?, over(1)?, over(2)?],
        over_all: Spread::of(&all(&least))?,
    })
}

/// The share from which on delegation is ahead, and the highest share below it at which it is not (0: at none). It is
/// ahead where at least three quarters of the rounds say so. `None`: not at the two highest shares.
fn threshold(points: &[(f64, Spread)]) -> Option<(f64, f64)> {
    let ahead = points.iter().rev().take_while(|(_, ratio)| ratio.q1 > 1.0).count();
    if ahead < NEIGHBOURS {
        return None;
    }
    let first = points.len() - ahead;
    let below = first.checked_sub(1).map_or(0.0, |below| points[below].0);
    Some((points[first].0, below))
}

/// Enters the thresholds of these points, by ascending share; `None`: there are no points.
fn thresholds(threads: u32, points: &[DelegationPoint], ledger: &mut Ledger) -> Option<Delegation> {
    let highest = points.last()?;
    let load = format!(
        "RCL's microbenchmark, a thread on each CPU, {} to {} ns between two sections; {DELEGATED}",
        highest.delay_ns, points[0].delay_ns
    );
    let rounds = highest.over_all.n;
    let up_to = ledger.told(
        "delegation.up_to",
        highest.share,
        &format!("{load}: the highest share of time in sections, under glibc's lock"),
    );
    let mut enter = |path: &str, others: &str, of: &dyn Fn(&DelegationPoint) -> Spread| {
        let points: Vec<_> = points.iter().map(|point| (point.share, of(point))).collect();
        let (share, below) = threshold(&points)?;
        let how = format!(
            "{load}: the share of time in sections, under glibc's lock, from which on it had more throughput than {others} in \
             three quarters of {rounds} rounds"
        );
        Some(ledger.between(path, share, (below, share), &how))
    };
    let over_glibc = enter("delegation.over_glibc", LOCKS[0], &|point| point.over[0]);
    let over_all = enter("delegation.over_all", &LOCKS.join(", "), &|point| point.over_all);
    ledger.told("delegation.threads", f64::from(threads), "a thread on each CPU");
    ledger.told("delegation.lines", f64::from(LINES), "as in the paper's microbenchmark");
    Some(Delegation { threads, lines: LINES, up_to, over_glibc, over_all })
}

/// The thresholds in words, with the number of threads that they hold for.
pub fn in_words(delegation: &Delegation) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let (glibc, all) = (LOCKS[0], LOCKS.join(", "));
    let up_to = format!("up to {}", percent(delegation.up_to));
    let threads = delegation.threads;
    // Ahead of all is ahead of glibc's. "For good": it may have been ahead at some lower share.
    let Some(over_glibc) = delegation.over_glibc.or(delegation.over_all) else {
        return format!(
            "delegation never overtook {glibc} for good here ({up_to} of time in sections, {threads} threads)"
        );
    };
    let over_all = match delegation.over_all {
        Some(share) => format!("and all of {all} from {} on", percent(share)),
        None => format!("but never all of {all}"),
    };
    format!(
        "delegation overtook {glibc} here from {} of time in sections on, {over_all} ({up_to}, {threads} threads)",
        percent(over_glibc)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(q1: f64, median: f64) -> Spread {
        Spread { min: q1, q1, median, q3: median, max: median, n: 9 }
    }

    #[test]
    fn a_threshold_is_the_share_from_which_on_delegation_stays_ahead() {
        let (behind, unclear, ahead) = (ratio(0.7, 0.8), ratio(0.99, 1.1), ratio(1.1, 1.3));
        let of = |ratios: [Spread; 4]| {
            let points: Vec<_> = [0.1, 0.2, 0.4, 0.8].into_iter().zip(ratios).collect();
            threshold(&points)
        };
        assert_eq!(of([behind, behind, ahead, ahead]), Some((0.4, 0.2)));
        assert_eq!(of([ahead; 4]), Some((0.1, 0.0)));
        assert_eq!(of([ahead, behind, ahead, ahead]), Some((0.4, 0.2)), "for good");
        assert_eq!(of([behind, unclear, ahead, ahead]), Some((0.4, 0.2)));
        assert_eq!(of([behind, ahead, ahead, behind]), None, "not at the highest");
        assert_eq!(of([behind, behind, behind, ahead]), None, "one share may be chance");
        assert_eq!(of([ahead, ahead, ahead, unclear]), None);
        assert_eq!(threshold(&[]), None);
    }

    #[test]
    fn a_point_has_the_medians_of_its_rounds_and_of_the_best_lock_in_each() {
        let round = |share, over| Round { share, over };
        let mut rounds = vec![
            round(0.3, [1.0, 2.0, 4.0]),
            round(0.5, [3.0, 2.0, 0.5]),
            round(0.4, [2.0, 2.0, 1.5]),
            round(0.2, [1.0, 2.0, 1.0]),
            round(0.9, [f64::INFINITY, 2.0, 1.0]),
            round(0.9, [0.0, 2.0, 1.0]),
        ];
        assert_eq!(point(100, &rounds), None, "a lock that did nothing shows nothing");
        rounds.push(round(0.6, [5.0, 3.0, 6.0]));
        let point = point(100, &rounds).unwrap();
        assert_eq!((point.share, point.over_all.median, point.over_all.min), (0.4, 1.0, 0.5));
        assert_eq!(point.over.map(|over| over.median), [2.0, 2.0, 1.5]);
    }

    #[test]
    fn thresholds_are_entered_with_what_they_lie_between_and_only_if_there_are_any() {
        let point = |share, glibc, all| DelegationPoint {
            delay_ns: 100,
            share,
            over: [glibc; 3],
            over_all: all,
        };
        let (behind, ahead) = (ratio(0.7, 0.8), ratio(1.1, 1.3));
        let points =
            [point(0.1, behind, behind), point(0.3, ahead, behind), point(0.9, ahead, behind)];
        let mut ledger = Ledger::default();
        let made = thresholds(4, &points, &mut ledger).unwrap();
        assert_eq!((made.over_glibc, made.over_all, made.up_to), (Some(0.3), None, 0.9));
        let figures = ledger.figures();
        let entered = |path: &str| figures.iter().find(|figure| figure.path == path);
        let over = entered("delegation.over_glibc").unwrap();
        assert_eq!((over.value, over.between), (0.3, Some((0.1, 0.3))));
        assert_eq!(entered("delegation.over_all"), None);
        assert_eq!(thresholds(4, &[], &mut Ledger::default()), None);
    }

    #[test]
    fn words_say_what_was_found_or_how_far_it_was_looked_for() {
        let words = |over_glibc, over_all| {
            in_words(&Delegation { threads: 8, lines: 1, up_to: 0.934, over_glibc, over_all })
        };
        assert_eq!(
            words(None, None),
            "delegation never overtook glibc for good here (up to 93 % of time in sections, 8 threads)"
        );
        assert_eq!(
            words(Some(0.15), None),
            "delegation overtook glibc here from 15 % of time in sections on, but never all of glibc, auto, mcs (up to 93 %, \
             8 threads)"
        );
        assert_eq!(
            words(Some(0.15), Some(0.6)),
            "delegation overtook glibc here from 15 % of time in sections on, and all of glibc, auto, mcs from 60 % on (up to 93 %, \
             8 threads)"
        );
    }

    #[test]
    fn delays_halve_and_grow_with_the_machine() {
        assert_eq!(delays(2).collect::<Vec<_>>()[8..], [100, 50]);
        assert_eq!(delays(128).next(), Some(128 * 25 * 512));
    }

    #[test]
    fn what_one_cpu_can_not_show_is_said() {
        let made = measure(1, Budget::WHOLE, &mut Ledger::default());
        assert_eq!(made.note.as_deref(), Some("when delegation pays was not measured: one CPU"));
        assert!(made.points.is_empty() && made.delegation.is_none());
    }

    #[test]
    fn all_delays_are_measured_in_each_round() {
        let budget = Budget {
            run: Duration::from_micros(200),
            rounds: FEWEST,
            time: Duration::from_secs(600),
        };
        let mut ledger = Ledger::default();
        let made = measure(2, budget, &mut ledger);
        // Where others have the CPUs, a lock may do nothing in such a short time.
        assert_eq!(made.points.is_empty(), made.note.is_some(), "{made:?}");
        assert!(made.points.is_sorted_by_key(|point| point.share), "{made:?}");
        for point in &made.points {
            assert!((0.0..=1.0).contains(&point.share), "{point:?}");
            assert_eq!(point.over_all.n, FEWEST);
        }
    }
}
