//! `--guard`: is the process better off under the new table than under the old one?
//!
//! Both have their turns, in slices: old, new, new, old, ... So a load that changes meanwhile disturbs both alike, and what is
//! compared are pairs (`lockwright_bench::Interval`, as in `compare`).
//!
//! Contended acquisitions are no throughput: a better lock has fewer of them. So throughput is what the user's command counts, or
//! else the epochs that end. The percentile of waits has the same flaw, since short waits disappear first. So what decides is how many
//! waits were longer than the old table's P99: per epoch or request if these are counted, or else per second.

use super::epochs;
use super::list::lease;
use super::target::Target;
use crate::compare::figure::Figure;
use crate::hints::Failure;
use crate::mailbox::Remote;
use crate::observed::snapshot::Times;
use crate::observed::watched::Watched;
use crate::output::{plain, table};
use crate::process::Process;
use crate::table::{self, Table};
use lockwright_bench::{Finding, Interval, Spread, interrupted, progress, time};
use lockwright_observe::control::Level;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Slices under each table: as many as tell something.
const ROUNDS: usize = 12;
/// This part of a slice lets what was under way end.
const SETTLE: u32 = 10;
/// A difference of less than this doesn't count.
const MARGIN: f64 = 0.05;

/// What to do.
pub(crate) struct Guard<'a> {
    pub(crate) pid: libc::pid_t,
    /// Where the process has its table, and its epochs: to find them takes longer than all the rest.
    pub(crate) mailbox: Remote<'a>,
    pub(crate) epochs: epochs::Remote,
    pub(crate) old: &'a Table,
    pub(crate) new: &'a Table,
    pub(crate) target: &'a Target,
    /// How long each of the two is measured.
    pub(crate) time: Duration,
    /// A command that prints how much the program has done so far.
    pub(crate) counter: Option<&'a str>,
    pub(crate) quiet: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Kept,
    RolledBack,
    /// By Ctrl-C; the old table is back.
    Interrupted,
}

/// What happened in a slice.
#[derive(Clone, Debug, Default)]
struct Slice {
    seconds: f64,
    /// What the user's command counts.
    counted: Option<f64>,
    epochs: f64,
    missed: f64,
    wait_ns: f64,
    times: Times,
}

impl Guard<'_> {
    /// Measures, decides, and says what for.
    pub(crate) fn run(&self) -> Result<(String, End), Failure> {
        lockwright_bench::catch_interrupts();
        let mut posted = self.old.words();
        let measured = self.measure(&mut posted);
        let (slices, is_interrupted) = match measured {
            Ok(measured) => measured,
            Err(failure) => {
                // It may be gone, which is no second failure.
                let _ = self.put(self.old, &mut posted);
                return Err(failure);
            }
        };
        let (text, finding) = judge(&slices);
        let end = match finding {
            _ if is_interrupted => End::Interrupted,
            Finding::Worse => End::RolledBack,
            _ => End::Kept,
        };
        self.put(if end == End::Kept { self.new } else { self.old }, &mut posted)?;
        let new = self.target.lock(self.new);
        let old = self.target.lock(self.old);
        let last = match (end, finding) {
            (End::Interrupted, _) => format!("interrupted: back to {old}\n"),
            (End::RolledBack, _) => format!("worse: rolled back to {old}\n"),
            (End::Kept, Finding::Better) => format!("better: kept {new}\n"),
            (End::Kept, Finding::Same) => format!("no difference that counts: kept {new}\n"),
            (End::Kept, _) => format!("no clear difference: kept {new}\n"),
        };
        Ok((text + &last, end))
    }

    fn measure(&self, posted: &mut String) -> Result<(Vec<[Slice; 2]>, bool), Failure> {
        let slice = self.time / ROUNDS as u32;
        let bar = progress(2 * ROUNDS as u64, self.quiet);
        let mut watched = Watched::open(self.pid, Level::Counters, lease(2 * slice))?;
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let mut pair = [Slice::default(), Slice::default()];
            // Old, new, new, old: so half as many switches will do.
            for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let table = [self.old, self.new][which];
                bar.set_message(["before", "after"][which]);
                if !self.put(table, posted)? && round == 0 {
                    return Err(Failure::new(format!(
                        "no thread of process {} has had to wait for a mutex since the switch: nothing to compare",
                        self.pid
                    ))
                    .hint("without --guard it is posted, and in force as soon as one has to"));
                }
                pair[which] = self.slice(&mut watched, slice)?;
                bar.inc(1);
                if interrupted() {
                    bar.finish_and_clear();
                    return Ok((rounds, true));
                }
            }
            rounds.push(pair);
        }
        bar.finish_and_clear();
        Ok((rounds, false))
    }

    /// Puts a table in force, unless it is. Is it in force now?
    fn put(&self, table: &Table, posted: &mut String) -> Result<bool, Failure> {
        let process = Process::open(self.pid)?;
        let mailbox = self.mailbox.of(&process);
        let now = table::base(&mailbox)?.words();
        if now != *posted {
            return Err(Failure::new(format!(
                "somebody else has switched the locks of process {}: they stay as they are now",
                self.pid
            ))
            .hint(format!("lockwright ctl {}", self.pid)));
        }
        *posted = table.words();
        if now == *posted && mailbox.posted()?.is_none() {
            return Ok(true);
        }
        table::post(&process, &mailbox, table)
    }

    fn slice(&self, watched: &mut Watched, time: Duration) -> Result<Slice, Failure> {
        sleep(time / SETTLE);
        watched.look()?;
        let before = self.counts()?;
        let begun = Instant::now();
        // In pieces, for Ctrl-C.
        let length = time - time / SETTLE;
        while begun.elapsed() < length && !interrupted() {
            sleep((length - begun.elapsed().min(length)).min(Duration::from_millis(50)));
        }
        let look = watched.look()?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = self.counts()?;
        if watched.has_ended {
            return Err(Failure::new(format!("process {} has ended", self.pid)));
        }
        let table = {
            let process = Process::open(self.pid)?;
            self.mailbox.of(&process).table()?
        };
        let mut slice = Slice {
            seconds,
            counted: after.0.zip(before.0).map(|(after, before)| after - before),
            epochs: f64::from(after.1.wrapping_sub(before.1)),
            missed: f64::from(after.2.wrapping_sub(before.2)),
            ..Slice::default()
        };
        let locks = look.since.iter().flat_map(|since| &since.locks);
        for lock in locks.filter(|lock| self.target.has(&table, lock)) {
            slice.wait_ns += lock.wait_ns() as f64;
            slice.times.add(&lock.wait());
        }
        Ok(slice)
    }

    /// What the user's command says, executions of epochs, and misses.
    fn counts(&self) -> Result<(Option<f64>, u32, u32), Failure> {
        let counted = self.counter.map(counted).transpose()?;
        let process = Process::open(self.pid)?;
        let epochs = self.epochs.read(&process)?;
        let sum = |of: fn(&epochs::Epoch) -> u32| {
            epochs.iter().fold(0_u32, |sum, epoch| sum.wrapping_add(of(epoch)))
        };
        Ok((counted, sum(|epoch| epoch.ended), sum(|epoch| epoch.missed)))
    }
}

/// The number that a command prints last.
fn counted(command: &str) -> Result<f64, Failure> {
    let fail = |why: &str| {
        Failure::new(format!("--counter '{command}' {why}")).hint(
            "for example --counter 'wc -l < access.log': it prints how much has been done so far",
        )
    };
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = output.map_err(|error| fail(&format!("can't be started: {error}")))?;
    if !output.status.success() {
        return Err(fail(&format!("fails: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.split_whitespace().next_back().and_then(|word| word.parse::<f64>().ok());
    number.filter(|number| number.is_finite()).ok_or_else(|| fail("prints no number"))
}

/// A figure of each slice, old and new, and how many times as good the new one is.
struct Row {
    figure: Figure,
    values: [Vec<f64>; 2],
    interval: Option<Interval>,
}

impl Row {
    fn new(figure: Figure, slices: &[[Slice; 2]], value: impl Fn(&Slice) -> f64) -> Self {
        let of = |which: usize| slices.iter().map(|pair| value(&pair[which])).collect::<Vec<_>>();
        let values = [of(0), of(1)];
        let ratios: Vec<f64> =
            values[1].iter().zip(&values[0]).map(|(new, old)| figure.ratio(*new, *old)).collect();
        Self { figure, values, interval: Interval::of(&ratios) }
    }

    fn finding(&self) -> Finding {
        self.interval.map_or(Finding::Unclear, |interval| interval.finding(MARGIN))
    }
}

/// A table of what was measured, and what it says.
fn judge(slices: &[[Slice; 2]]) -> (String, Finding) {
    let all = |which: usize| {
        slices.iter().fold(Times::default(), |mut sum, pair| {
            sum.add(&pair[which].times);
            sum
        })
    };
    let [old, new] = [all(0), all(1)];
    let each = || slices.iter().flatten();
    let done: Option<fn(&Slice) -> f64> = if slices.is_empty() {
        None
    } else if each().all(|slice| slice.counted.is_some_and(|counted| counted > 0.0)) {
        Some(|slice| slice.counted.unwrap_or(0.0))
    } else if each().all(|slice| slice.epochs > 0.0) {
        Some(|slice| slice.epochs)
    } else {
        None
    };
    let mut rows = Vec::new();
    if let Some(done) = done {
        let name =
            if each().all(|slice| slice.counted.is_some()) { "counted/s" } else { "epochs/s" };
        rows.push(Row::new(Figure::rate(name), slices, move |slice| done(slice) / slice.seconds));
    }
    // One more of each, so that none is not infinitely good.
    if each().any(|slice| slice.missed > 0.0) {
        let figure = Figure::count("missed SLOs/1000 epochs");
        rows.push(Row::new(figure, slices, |slice| {
            1000.0 * (slice.missed + 1.0) / (slice.epochs + 1.0)
        }));
    }
    if let Some(limit) = old.percentile(0.99) {
        let per = if done.is_some() { "per 1000 done" } else { "a second" };
        let figure = Figure::count(format!("waits > {} {per}", time(limit as f64)));
        rows.push(Row::new(figure, slices, move |slice| {
            let long = slice.times.count() - slice.times.up_to(&[limit])[0];
            let of = done.map_or(slice.seconds, |done| done(slice) / 1000.0);
            (long as f64 + 1.0) / of
        }));
    }
    // A saturated lock has as many waiting whatever is done meanwhile.
    let waiting = Row::new(Figure::count("threads waiting"), slices, |slice| {
        (slice.wait_ns + 1.0) / slice.seconds / 1e9
    });
    let decides = if done.is_none() { waiting.finding() } else { Finding::Same };
    rows.push(waiting);

    let mut drawn = table(&["", "before", "after", "times as good", "surely"]);
    for row in &rows {
        let median =
            |which: usize| Spread::of(&row.values[which]).map_or(0.0, |spread| spread.median);
        let shown = |which: usize| row.figure.shown(median(which));
        drawn.add_row(match row.interval {
            Some(ratio) => [
                row.figure.name.clone(),
                shown(0),
                shown(1),
                format!("{:.2}", ratio.middle),
                format!("{:.2} to {:.2}", ratio.low, ratio.high),
            ],
            None => [row.figure.name.clone(), shown(0), shown(1), "-".to_owned(), "-".to_owned()],
        });
    }
    let p99 = |times: &Times| times.percentile(0.99).map_or("-".to_owned(), |ns| time(ns as f64));
    drawn.add_row([
        "P99 of waits".to_owned(),
        p99(&old),
        p99(&new),
        "-".to_owned(),
        "-".to_owned(),
    ]);
    let mut text = plain(&drawn);
    if done.is_none() && !slices.is_empty() {
        text.push_str(
            "throughput is not known: the process has no epochs, and there is no --counter\n",
        );
    }
    rows.pop(); // the threads waiting: they decide only where nothing is counted
    let findings: Vec<Finding> = rows.iter().map(Row::finding).chain([decides]).collect();
    (text, verdict(&findings))
}

/// Worse in one thing is worse. Better in one, and worse in none, is better.
fn verdict(findings: &[Finding]) -> Finding {
    let first = [Finding::Worse, Finding::Better, Finding::Unclear];
    first.into_iter().find(|finding| findings.contains(finding)).unwrap_or(Finding::Same)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which the old table does 1000 a second and waits 100 us; the new one by these factors.
    fn slices(throughput: f64, long: u64, epochs: bool) -> Vec<[Slice; 2]> {
        let slice = |factor: f64, long: u64, round: usize| {
            let drift = 1.0 + round as f64 * 0.3 + ((round * 7) % 5) as f64 * 0.004;
            let (usual, far) = ([(100, 990), (200, 10)], [(200, long)]);
            Slice {
                seconds: 1.0,
                epochs: if epochs { 1000.0 * factor * drift } else { 0.0 },
                wait_ns: 1e8 * drift / factor,
                times: Times::of(
                    usual
                        .into_iter()
                        .chain(far)
                        .filter(|(_, count)| *count > 0)
                        .fold(vec![0_u64; 201], |mut all, (at, count)| {
                            all[at] += count;
                            all
                        })
                        .into_iter()
                        .enumerate(),
                ),
                ..Slice::default()
            }
        };
        (0..ROUNDS).map(|round| [slice(1.0, 0, round), slice(throughput, long, round)]).collect()
    }

    #[test]
    fn what_is_worse_is_found_whatever_the_load_does() {
        assert_eq!(judge(&slices(0.7, 0, true)).1, Finding::Worse);
        assert_eq!(judge(&slices(1.4, 0, true)).1, Finding::Better);
        assert_eq!(judge(&slices(1.0, 0, true)).1, Finding::Same);
        assert_eq!(
            judge(&slices(1.4, 0, false)).1,
            Finding::Better,
            "without throughput, waits decide"
        );
    }

    #[test]
    fn more_long_waits_are_worse_even_with_more_throughput() {
        let (text, finding) = judge(&slices(1.2, 100_000, true));
        assert_eq!(finding, Finding::Worse, "{text}");
    }

    #[test]
    fn nothing_measured_says_nothing() {
        assert_eq!(judge(&[]).1, Finding::Unclear);
        assert_eq!(
            judge(&slices(0.5, 0, true)[..5]).1,
            Finding::Unclear,
            "five rounds are too few"
        );
    }
}
