//! Evaluates the slices of `--guard`: which figures they have, and whether one of them is worse.

use super::changed::Amount;
use crate::compare::figure::Figure;
use crate::compare::report::bound;
use crate::output::{plain, table};
use lockwright_bench::{Finding, Interval};
use lockwright_numbers::Spread;
use lockwright_numbers::Times;
use lockwright_numbers::format::time;
use lockwright_observer::counts::snapshot::Of;
use serde::Serialize;
use std::collections::BTreeSet;

/// This many rounds in a row are enough if each has less than half the throughput. Of four given rounds, all do in one
/// case of sixteen even if noise always halves or doubles throughput, and noise is hardly ever that large.
pub(super) const DISASTER: usize = 4;

/// How slices are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Smaller differences don't count.
    pub(crate) margin: f64,
    /// Do hand-overs stand for throughput where nothing better is known?
    pub(crate) hand_overs: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { margin: 0.05, hand_overs: false }
    }
}

/// Amount the waiters of one lock did in a slice.
#[derive(Clone, Debug)]
pub(super) struct Waited {
    pub(super) of: Of,
    /// Is it one of the switched locks, by the table that was in force?
    pub(super) is_meant: bool,
    pub(super) ns: f64,
    /// Of the waits that ended.
    pub(super) times: Times,
    /// One that went on at the end: all that is known of those.
    pub(super) open: Option<OpenWait>,
}

/// A wait that went on at the end of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenWait {
    /// How long it had taken at least: since the present holder got the lock.
    pub(super) length_ns: u64,
    /// The part of it in the slice.
    pub(super) here_ns: u64,
}

/// Amount happened in a slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    pub(super) locks: Vec<Waited>,
    pub(super) seconds: f64,
    /// The count of the user's command.
    pub(super) counted: Option<f64>,
    pub(super) epochs: f64,
    pub(super) missed: f64,
    pub(super) wait_ns: f64,
    pub(super) times: Times,
    pub(super) open: Vec<OpenWait>,
}

impl Slice {
    /// The number of waits that took longer than this, also of those that went on.
    fn long(&self, limit_ns: u64) -> f64 {
        let ended = self.times.count() - self.times.up_to(&[limit_ns])[0];
        let open = self.open.iter().filter(|open| open.length_ns > limit_ns).count();
        ended as f64 + open as f64
    }

    /// The time in them, ns. One that has ended counts for as much as the slice could have.
    fn long_ns(&self, limit_ns: u64) -> f64 {
        let most_ns = self.seconds * 1e9;
        let ended = self.times.counts().filter(|(ns, _)| *ns > limit_ns);
        let open = self.open.iter().filter(|open| open.length_ns > limit_ns);
        ended.map(|(ns, count)| most_ns.min(ns as f64) * count as f64).sum::<f64>()
            + open.map(|open| open.here_ns as f64).sum::<f64>()
    }
}

/// The waits of the switched locks, in all slices. Only the new table shows which locks those are; the old slices use
/// the same set.
pub(super) fn choose(mut slices: Vec<[Slice; 2]>) -> Vec<[Slice; 2]> {
    let all = slices.iter().flatten().flat_map(|slice| &slice.locks);
    let meant: BTreeSet<Of> = all.filter(|lock| lock.is_meant).map(|lock| lock.of).collect();
    for slice in slices.iter_mut().flatten() {
        for lock in slice.locks.iter().filter(|lock| meant.contains(&lock.of)) {
            slice.wait_ns += lock.ns;
            slice.times.merge(&lock.times);
            slice.open.extend(lock.open);
        }
    }
    slices
}

/// A figure of each slice, old and new, with how many times as good the new one is.
#[derive(Debug, Serialize)]
struct FigureChange {
    figure: Figure,
    /// For sentences.
    #[serde(skip)]
    what: Amount,
    values: [Vec<f64>; 2],
    #[serde(rename = "times_as_good")]
    interval: Option<Interval>,
}

/// The evaluation of all slices.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    pub(super) finding: Finding,
    /// The figures that are worse.
    worse: Vec<String>,
    /// Why, in words, for the finding.
    #[serde(skip)]
    reasons: Vec<String>,
    /// Waits that took longer than this are the long ones.
    #[serde(skip)]
    long_ns: Option<u64>,
    #[serde(rename = "figures")]
    rows: Vec<FigureChange>,
    /// P99 of all waits, old and new.
    wait_p99_ns: [Option<u64>; 2],
    /// Is throughput among the figures?
    throughput_known: bool,
    /// In how many slices --counter's number stood still; if it did, it doesn't count.
    counter_stood_still: usize,
    #[serde(skip)]
    slices: usize,
    /// Did the last rounds have less than half the throughput?
    pub(super) is_disaster: bool,
    /// Is the most likely throughput so low that it would count, even if noise alone may have made it?
    #[serde(skip)]
    pub(super) looks_worse: bool,
}

impl FigureChange {
    fn new(
        figure: Figure,
        what: Amount,
        slices: &[[Slice; 2]],
        value: impl Fn(&Slice) -> f64,
    ) -> Self {
        let of = |which: usize| slices.iter().map(|pair| value(&pair[which])).collect::<Vec<_>>();
        let values = [of(0), of(1)];
        let ratios: Vec<f64> =
            values[1].iter().zip(&values[0]).map(|(new, old)| figure.ratio(*new, *old)).collect();
        Self { figure, what, values, interval: Interval::of(&ratios) }
    }

    fn finding(&self, terms: Terms) -> Finding {
        self.interval.map_or(Finding::Unclear, |interval| interval.finding(terms.margin))
    }

    fn looks_worse(&self, terms: Terms) -> bool {
        self.interval.is_some_and(|interval| interval.middle <= 1.0 / (1.0 + terms.margin))
    }

    /// `37 times as many long waits`. None: too few rounds.
    fn said(&self) -> Option<String> {
        let good = self.interval?.middle;
        Some(self.what.times(if self.figure.more { good } else { 1.0 / good }))
    }

    /// The values of the last rounds, old and new.
    fn last(&self) -> impl Iterator<Item = [f64; 2]> {
        let [old, new] = &self.values;
        old.iter().zip(new).map(|(old, new)| [*old, *new]).rev().take(DISASTER)
    }

    /// Has the new table less than half of the old one's, in each of the last rounds?
    fn has_collapsed(&self) -> bool {
        self.values[0].len() >= DISASTER && self.last().all(|[old, new]| new < old / 2.0)
    }
}

pub(super) fn judge(slices: &[[Slice; 2]], terms: Terms) -> Judged {
    let all = |which: usize| {
        slices.iter().fold(Times::default(), |mut sum, pair| {
            sum.merge(&pair[which].times);
            sum
        })
    };
    let [old, new] = [all(0), all(1)];
    let each = || slices.iter().flatten();
    let counted: fn(&Slice) -> f64 = |slice| slice.counted.unwrap_or(0.0);
    let old_sum = |work: fn(&Slice) -> f64| slices.iter().map(|[old, _]| work(old)).sum::<f64>();
    // A counter that now and then stands still is too coarse. But if it mostly does so under the new table, and never under the old one, that
    // is the finding.
    let stopped = slices.iter().filter(|[_, new]| counted(new) <= 0.0).count();
    let is_counted = !slices.is_empty()
        && slices.iter().all(|[old, _]| counted(old) > 0.0)
        && (stopped == 0 || 2 * stopped > slices.len());
    let work = if is_counted {
        Some(counted)
    } else {
        let epochs: fn(&Slice) -> f64 = |slice| slice.epochs;
        (old_sum(epochs) > 0.0).then_some(epochs)
    };
    // Where nothing gets done in a slice, the ratio is still a positive number.
    let least = work.map_or(0.0, |work| old_sum(work) / slices.len() as f64 / 1000.0);
    let done = work.map(|work| move |slice: &Slice| work(slice).max(least));
    let mut rows = Vec::new();
    if let Some(done) = done {
        let (name, what) = match is_counted {
            true => ("counted/s", Amount::Much("work per second")),
            false => ("epochs/s", Amount::Many("epochs per second")),
        };
        rows.push(FigureChange::new(Figure::rate(name), what, slices, move |slice| {
            done(slice) / slice.seconds
        }));
    }
    let mut is_disaster = rows.iter().any(FigureChange::has_collapsed);
    let mut looks_worse = rows.iter().any(|row| row.looks_worse(terms));
    // Add one to each, so that zero misses isn't infinitely good.
    if each().any(|slice| slice.missed > 0.0) {
        let figure = Figure::count("missed SLOs/1000 epochs");
        let what = Amount::Many("missed SLOs");
        rows.push(FigureChange::new(figure, what, slices, |slice| {
            1000.0 * (slice.missed + 1.0) / (slice.epochs + 1.0)
        }));
    }
    let p99 = |times: &Times| (times.count() > 0).then(|| times.quantile(0.99));
    // One more each, so that none at all isn't infinitely good.
    if let Some(limit) = p99(&old) {
        let limit_text = time(limit as f64);
        rows.push(match done {
            Some(done) => {
                let figure = Figure::count(format!("waits > {limit_text} per 1000 done"));
                FigureChange::new(figure, Amount::Many("long waits"), slices, move |slice| {
                    1000.0 * (slice.long(limit) + 1.0) / done(slice)
                })
            }
            None => {
                let figure = Figure::count(format!("threads in waits > {limit_text}"));
                let what = Amount::Much("time in long waits");
                FigureChange::new(figure, what, slices, move |slice| {
                    (slice.long_ns(limit) + limit as f64) / slice.seconds / 1e9
                })
            }
        });
    }
    // A saturated lock keeps the same number of threads waiting, whatever its throughput.
    let what = Amount::Many("threads waiting");
    let waiting = FigureChange::new(Figure::count("threads waiting"), what, slices, |slice| {
        (slice.wait_ns + 1.0) / slice.seconds / 1e9
    });
    let decides = if done.is_none() { waiting.finding(terms) } else { Finding::Same };
    let mut findings: Vec<(String, Finding)> =
        rows.iter().map(|row| (row.figure.name.clone(), row.finding(terms))).collect();
    findings.push((waiting.figure.name.clone(), decides));
    if terms.hand_overs && done.is_none() {
        let what = Amount::Many("hand-overs per second");
        let row = FigureChange::new(Figure::rate("hand-overs/s"), what, slices, |slice| {
            (slice.times.count() as f64 + 1.0) / slice.seconds
        });
        // As many threads wait, and fewer of them get the lock. If fewer wait, too, the lock may just have become better.
        if row.finding(terms) == Finding::Worse && decides != Finding::Better {
            findings.push((row.figure.name.clone(), Finding::Worse));
        }
        looks_worse = row.looks_worse(terms) && decides != Finding::Better;
        is_disaster = row.has_collapsed() && waiting.last().all(|[old, new]| new >= old);
        rows.insert(0, row);
    }
    // Too few rounds for an interval, but enough for this.
    if is_disaster
        && let Some((_, finding)) =
            findings.iter_mut().find(|(name, _)| *name == rows[0].figure.name)
    {
        *finding = Finding::Worse;
    } else if is_disaster {
        findings.push((rows[0].figure.name.clone(), Finding::Worse));
    }
    rows.push(waiting);
    let finding = verdict(findings.iter().map(|(_, finding)| *finding));
    let has = |row: &&FigureChange| match finding {
        Finding::Unclear => row.looks_worse(terms) && findings[0].0 == row.figure.name,
        _ => findings.iter().any(|(name, one)| *name == row.figure.name && *one == finding),
    };
    let reasons = match is_disaster {
        true => vec![rows[0].what.halved(DISASTER)],
        false => rows.iter().filter(has).filter_map(FigureChange::said).collect(),
    };
    Judged {
        finding,
        worse: findings
            .into_iter()
            .filter_map(|(name, finding)| (finding == Finding::Worse).then_some(name))
            .collect(),
        rows,
        reasons,
        long_ns: p99(&old),
        wait_p99_ns: [&old, &new].map(p99),
        throughput_known: done.is_some() || slices.is_empty(),
        counter_stood_still: each()
            .filter(|slice| !is_counted && slice.counted.is_some_and(|counted| counted <= 0.0))
            .count(),
        slices: each().count(),
        is_disaster,
        looks_worse,
    }
}

impl Judged {
    /// Why it is as it is found to be: `: 30 % less work per second and 37 times as many long waits`. Empty, if there is nothing to say.
    pub(super) fn why(&self) -> String {
        match self.reasons.split_last() {
            None => String::new(),
            Some((last, [])) => format!(": {last}"),
            Some((last, rest)) => format!(": {} and {last}", rest.join(", ")),
        }
    }

    /// The figures behind the verdict.
    pub(super) fn text(&self) -> String {
        let mut drawn = table(&["", "before", "after", "times as good", "surely"])
            .least(&["before", "after"])
            .all_by("--format json");
        for row in &self.rows {
            let shown = |which: usize| {
                let spread = Spread::of(&row.values[which]);
                row.figure.shown(spread.map_or(0.0, |spread| spread.median))
            };
            let [good, surely] = match row.interval {
                Some(ratio) => [
                    lockwright_numbers::format::ratio(ratio.middle),
                    format!("{} to {}", bound(ratio.low), bound(ratio.high)),
                ],
                None => ["-".to_owned(), "-".to_owned()],
            };
            drawn.add_row([row.figure.name.clone(), shown(0), shown(1), good, surely]);
        }
        let [old, new] =
            self.wait_p99_ns.map(|p99| p99.map_or("-".to_owned(), |ns| time(ns as f64)));
        // Of the number of waits. The reports' P99 is of the time waited.
        let dash = || "-".to_owned();
        drawn.add_row(["1 wait in 100 takes over".to_owned(), old, new, dash(), dash()]);
        let mut text = plain(&drawn);
        text.push_str(
            "before, after: medians; times as good: within pairs of time slices, which see\n  the same load\n",
        );
        if let Some(long) = self.long_ns {
            text +=
                &format!("long waits: those over {}, as 1 in 100 was before\n", time(long as f64));
        }
        let (still, slices) = (self.counter_stood_still, self.slices);
        if still > 0 {
            text.push_str(&format!(
                "--counter's number stood still in {still} of {slices} time slices, so it doesn't count:\n  \
                 a longer --guard has longer slices\n"
            ));
        } else if !self.throughput_known {
            text.push_str(
                "throughput is unknown: the process has no epochs, and --counter is not given\n",
            );
        }
        text
    }
}

/// Worse in one figure means worse. Better in one and worse in none means better.
fn verdict(findings: impl Iterator<Item = Finding> + Clone) -> Finding {
    let mut first = [Finding::Worse, Finding::Better, Finding::Unclear].into_iter();
    let is_there = |finding: &Finding| findings.clone().any(|one| one == *finding);
    first.find(is_there).unwrap_or(Finding::Same)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = 12;
    const TERMS: Terms = Terms { margin: 0.05, hand_overs: false };

    /// Rounds in which the old table does 1000 operations per second and waits 100 us; the new one differs by these
    /// factors.
    fn slices(throughput: f64, long: u64, epochs: bool) -> Vec<[Slice; 2]> {
        let slice = |factor: f64, long: u64, round: usize| {
            let drift = 1.0 + round as f64 * 0.3 + ((round * 7) % 5) as f64 * 0.004;
            let mut times = Times::from_iter([(100, 990), (200, 10)]);
            times.add(200, long);
            Slice {
                seconds: 1.0,
                epochs: if epochs { 1000.0 * factor * drift } else { 0.0 },
                wait_ns: 1e8 * drift / factor,
                times,
                ..Slice::default()
            }
        };
        (0..ROUNDS).map(|round| [slice(1.0, 0, round), slice(throughput, long, round)]).collect()
    }

    #[test]
    fn a_counter_that_stands_still_is_said_not_to_count() {
        let mut slices = slices(0.7, 0, true);
        slices.iter_mut().flatten().for_each(|slice| slice.counted = Some(7.0));
        let judged = judge(&slices, TERMS);
        assert_eq!((&*judged.rows[0].figure.name, judged.counter_stood_still), ("counted/s", 0));
        assert_eq!(judged.finding, Finding::Same);
        slices[3][1].counted = Some(0.0);
        let judged = judge(&slices, TERMS);
        assert_eq!((&*judged.rows[0].figure.name, judged.finding), ("epochs/s", Finding::Worse));
        assert_eq!(judged.why(), ": 30 % fewer epochs per second and 43 % more long waits");
        assert!(judged.text().contains(" stood still in 1 of 24 time slices"), "{}", judged.text());
    }

    #[test]
    fn what_is_worse_is_found_whatever_the_load_does() {
        assert_eq!(judge(&slices(0.7, 0, true), TERMS).finding, Finding::Worse);
        assert_eq!(judge(&slices(1.4, 0, true), TERMS).finding, Finding::Better);
        assert_eq!(judge(&slices(1.0, 0, true), TERMS).finding, Finding::Same);
        assert_eq!(
            judge(&slices(1.4, 0, false), TERMS).finding,
            Finding::Better,
            "without throughput, waits decide"
        );
    }

    #[test]
    fn more_long_waits_are_worse_even_with_more_throughput() {
        let judged = judge(&slices(1.2, 100_000, true), TERMS);
        assert_eq!(judged.finding, Finding::Worse, "{}", judged.text());
    }

    /// Eight threads always wait; each wait of the old table takes 1 ms.
    fn saturated(longer: u64) -> Vec<[Slice; 2]> {
        let slice = |ns: u64| {
            let count = 8_000_000_000 / ns;
            let times = Times::from_iter([(ns, count)]);
            Slice { seconds: 1.0, wait_ns: 8e9, times, ..Slice::default() }
        };
        (0..ROUNDS).map(|_| [slice(1_000_000), slice(1_000_000 * longer / 100)]).collect()
    }

    #[test]
    fn fewer_hand_overs_to_as_many_waiters_are_worse_if_they_count() {
        let hand_overs = Terms { hand_overs: true, ..TERMS };
        assert_eq!(judge(&saturated(100), hand_overs).finding, Finding::Same);
        assert_eq!(judge(&saturated(400), hand_overs).finding, Finding::Worse);
        let lenient = Terms { margin: 0.5, ..TERMS };
        assert_eq!(judge(&slices(0.7, 0, true), lenient).finding, Finding::Same);
        assert_eq!(judge(&slices(1.4, 0, false), hand_overs).finding, Finding::Better);
    }

    /// A hundred times as long, and as many threads wait: a hundredth as many of the long ones end in a second.
    #[test]
    fn longer_waits_are_worse_however_few_of_them_end() {
        let slice = |ns: u64| {
            let times = Times::from_iter([(ns, 990_000_000 / ns), (10 * ns, 1_000_000 / ns)]);
            Slice { seconds: 1.0, wait_ns: 1e9, times, ..Slice::default() }
        };
        let pairs: Vec<_> = (0..ROUNDS).map(|_| [slice(10_000), slice(1_000_000)]).collect();
        let judged = judge(&pairs, TERMS);
        assert_eq!(judged.finding, Finding::Worse, "{}", judged.text());
    }

    /// Under the new table a holder keeps the lock for good, and no wait ends.
    #[test]
    fn a_wait_that_goes_on_counts() {
        let mut slices = slices(1.0, 0, false);
        for (round, [_, new]) in (1..).zip(&mut slices) {
            let length_ns = round * 1_000_000_000;
            new.open.push(OpenWait { length_ns, here_ns: 1_000_000_000 });
            new.wait_ns += 1e9;
        }
        let judged = judge(&slices, TERMS);
        assert_eq!(judged.finding, Finding::Worse, "{}", judged.text());
    }

    #[test]
    fn half_the_throughput_four_times_in_a_row_is_enough() {
        let few = judge(&slices(0.4, 0, true)[..DISASTER], TERMS);
        assert!(few.is_disaster && few.finding == Finding::Worse, "{}", few.text());
        assert!(!judge(&slices(0.4, 0, true)[..DISASTER - 1], TERMS).is_disaster);
        assert!(!judge(&slices(0.6, 0, true), TERMS).is_disaster);
        let mut late = slices(1.0, 0, true);
        late.splice(ROUNDS - DISASTER.., slices(0.4, 0, true).split_off(ROUNDS - DISASTER));
        assert!(judge(&late, TERMS).is_disaster, "its harm came late");
        late.push(slices(1.0, 0, true)[0].clone());
        assert!(!judge(&late, TERMS).is_disaster, "not in a row");

        let hand_overs = Terms { hand_overs: true, ..TERMS };
        assert!(judge(&saturated(300)[..DISASTER], hand_overs).is_disaster);
        assert!(!judge(&saturated(300)[..DISASTER], TERMS).is_disaster, "hand-overs don't count");
        let mut fewer_wait = saturated(300);
        fewer_wait.iter_mut().for_each(|[_, new]| new.wait_ns /= 4.0);
        assert!(!judge(&fewer_wait, hand_overs).is_disaster, "the lock has become better");
    }

    #[test]
    fn what_stops_the_program_is_worse() {
        let mut stopped = slices(1.0, 0, true);
        stopped.iter_mut().for_each(|[_, new]| new.epochs = 0.0);
        let judged = judge(&stopped, TERMS);
        assert!(judged.is_disaster && judged.throughput_known, "{}", judged.text());
        let mut counted = stopped;
        counted.iter_mut().flatten().for_each(|slice| slice.counted = Some(slice.epochs));
        assert_eq!(judge(&counted[..DISASTER], TERMS).finding, Finding::Worse);
    }

    #[test]
    fn a_single_bad_round_leaves_it_unclear_what_looks_worse() {
        let mut noisy = slices(0.7, 0, true);
        noisy[3][1].epochs *= 3.0;
        let judged = judge(&noisy, TERMS);
        assert!(judged.finding == Finding::Unclear && judged.looks_worse, "{}", judged.text());
        noisy.extend(slices(0.7, 0, true));
        assert_eq!(judge(&noisy, TERMS).finding, Finding::Worse);
        assert!(!judge(&slices(1.0, 0, true), TERMS).looks_worse);
    }

    #[test]
    fn a_lock_is_the_same_under_the_old_table() {
        let waited = |at, is_meant, ns| Waited {
            of: Of::Lock(at),
            is_meant,
            ns,
            times: Times::from_iter([(10, ns as u64)]),
            open: None,
        };
        let old = Slice {
            locks: vec![waited(64, false, 5.0), waited(128, false, 7.0)],
            ..Slice::default()
        };
        let new = Slice {
            locks: vec![waited(64, true, 2.0), waited(128, false, 8.0)],
            ..Slice::default()
        };
        let chosen = choose(vec![[old, new]]);
        assert_eq!(chosen[0].each_ref().map(|slice| slice.wait_ns), [5.0, 2.0]);
        assert_eq!(chosen[0].each_ref().map(|slice| slice.times.count()), [5, 2]);
    }

    #[test]
    fn nothing_measured_says_nothing() {
        assert_eq!(judge(&[], TERMS).finding, Finding::Unclear);
        assert_eq!(
            judge(&slices(0.5, 0, true)[..5], TERMS).finding,
            Finding::Unclear,
            "five rounds are too few"
        );
    }
}
