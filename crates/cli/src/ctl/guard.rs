//! `--guard`: does the process do better under the new table than under the old one?
//!
//! The tables alternate in time slices: old, new, new, old, ... So a change of the load affects both alike, and pairs
//! of slices are compared (`lockwright_bench::Interval`, as in `compare`). A result that looks worse but isn't clear gets
//! as many rounds again; a new table that halves throughput doesn't stay for all of them.
//!
//! Both tables are in force on lease until it is known which one stays. So the process goes back by itself if this command ends.
//!
//! Contended acquisitions don't measure throughput: a better lock has fewer of them. So throughput comes from the
//! user's command, or else from the number of completed epochs. The percentile of waits has the same flaw, because
//! short waits disappear first. So the decision uses the waits that were longer than the old table's P99: their number per
//! epoch or request if these are counted. Per second, it would fall as they get longer; so without throughput it is the number of threads that are
//! in such waits at a time. One wait of those that go on at the end of a slice is known for each lock, from when the present holder got the lock on; its
//! part in the slice counts.

use super::epochs;
use super::judge::{Judged, OpenWait, Slice, Terms, Waited, choose, judge};
use super::target::Target;
use crate::hints::Failure;
use crate::output;
use lockwright_bench::{Finding, interrupted, progress};
use lockwright_contract::counters::control::Level;
use lockwright_numbers::Times;
use lockwright_observer::counts::snapshot::{Lock, Of};
use lockwright_observer::counts::watched::{Watched, lease};
use lockwright_observer::counts::window::within;
use lockwright_observer::lease::{Lease, nobody_waits};
use lockwright_observer::mailbox::MailboxPlace;
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use serde::Serialize;
use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Slices under each table: as few as give a clear result. Where noise hides that, twice as many do.
const ROUNDS: usize = 12;
/// This fraction of a slice lets operations that began earlier finish.
const SETTLE: u32 = 10;

/// What to do.
pub(crate) struct Guard<'a> {
    pub(crate) pid: libc::pid_t,
    /// Where the process has its table and its epochs. Finding them takes longer than everything else.
    pub(crate) mailbox: MailboxPlace,
    pub(crate) epochs: epochs::Remote,
    pub(crate) lease: Lease,
    pub(crate) old: &'a Table,
    pub(crate) new: &'a Table,
    pub(crate) target: &'a Target,
    /// How long to measure each of the two.
    pub(crate) time: Duration,
    /// A command that prints how much work the program has done so far.
    pub(crate) counter: Option<&'a str>,
    pub(crate) terms: Terms,
    /// What the report calls the new table, if that isn't a lock.
    pub(crate) called: Option<&'a str>,
    pub(crate) quiet: bool,
    /// May the new table stay, if it isn't worse? With it those of these slots go that it doesn't ask.
    pub(crate) may_stay: &'a dyn Fn(&Process) -> Result<bool, Failure>,
    pub(crate) drops: u32,
}

/// How a guarded switch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    Kept,
    RolledBack,
    /// The process itself has taken the policy off, as one of its hooks is too slow; the old table is back in force.
    TakenOff,
    /// Ctrl-C interrupted it, or SIGHUP or SIGTERM; the old table is back in force.
    Interrupted,
}

/// What was measured, and which lock the process keeps.
#[derive(Debug, Serialize)]
pub(crate) struct Guarded {
    #[serde(flatten)]
    judged: Judged,
    /// The old lock and the new one.
    before: String,
    after: String,
    pub(crate) end: End,
}

impl Guarded {
    pub(crate) fn text(&self) -> String {
        let Self { judged, before, after, end } = self;
        let why = judged.why();
        let verdict = match (end, judged.finding) {
            (End::Interrupted, _) => format!("interrupted, no verdict: back to {before}"),
            (End::RolledBack, Finding::Unclear) => format!(
                "{after} is probably worse, though noise may be why{why}; rolled back to {before}"
            ),
            (End::RolledBack, _) => format!("{after} is worse{why}; rolled back to {before}"),
            (End::TakenOff, _) => format!("{after} is too slow; rolled back to {before}"),
            (End::Kept, Finding::Better) => format!("{after} is better{why}; kept"),
            (End::Kept, Finding::Same) => {
                format!("{after} makes no difference that counts; kept")
            }
            (End::Kept, _) => {
                format!("no clear difference between {after} and {before}; {after} is kept")
            }
        };
        format!("{}\n\n{}", output::wrapped(&verdict), judged.text())
    }
}

impl Guard<'_> {
    /// Measures, decides, and keeps or reverts the change. Signals that end this command are caught.
    pub(crate) fn run(self) -> Result<Guarded, Failure> {
        // If anything fails from here on, the process goes back, as the lease is dropped.
        let (slices, is_interrupted) = self.measure()?;
        let judged = self.judged(&slices);
        let mut end = match judged.finding {
            _ if is_interrupted => End::Interrupted,
            Finding::Worse => End::RolledBack,
            // After twice the usual rounds. Who guards a change would rather lose a good one than keep a bad one.
            Finding::Unclear if judged.looks_worse => End::RolledBack,
            _ => End::Kept,
        };
        // In any case: a report says why it may not.
        let process = Process::open(self.pid)?;
        let may_stay = (self.may_stay)(&process)?;
        match end {
            End::Kept if may_stay => {
                self.lease.keep(&process, self.new, self.drops)?;
            }
            End::Kept => end = End::TakenOff,
            _ => {}
        }
        drop(process);
        self.lease.end()?;
        let lock = |table: &Table| self.target.lock(table).to_owned();
        let after = self.called.map_or_else(|| lock(self.new), str::to_owned);
        Ok(Guarded { judged, before: lock(self.old), after, end })
    }

    fn judged(&self, slices: &[[Slice; 2]]) -> Judged {
        judge(&choose(slices.to_vec()), self.terms)
    }

    fn measure(&self) -> Result<(Vec<[Slice; 2]>, bool), Failure> {
        let slice = self.time / ROUNDS as u32;
        let bar = progress(2 * ROUNDS as u64, "slices", self.quiet);
        let mut watched = Watched::open(self.pid, Level::Counters, lease(2 * slice))?;
        // The old table is in force, for good.
        let (mut rounds, mut now) = (Vec::new(), 0);
        for round in 0..2 * ROUNDS {
            if round == ROUNDS {
                let judged = self.judged(&rounds);
                if judged.finding != Finding::Unclear || !judged.looks_worse {
                    break;
                }
                bar.inc_length(2 * ROUNDS as u64);
            }
            let mut pair = [Slice::default(), Slice::default()];
            // Old, new, new, old: this order needs only half as many switches.
            for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let table = [self.old, self.new][which];
                bar.set_message(format!("now {}", ["the old lock", "the new lock"][which]));
                if now != which {
                    now = which;
                    let process = Process::open(self.pid)?;
                    if !self.lease.try_out(&process, table)? && round == 0 {
                        return Err(nobody_waits(self.pid));
                    }
                }
                let measured = self.slice(&mut watched, slice);
                bar.inc(1);
                // The same Ctrl-C may have ended the user's --counter.
                if interrupted() {
                    bar.finish_and_clear();
                    return Ok((rounds, true));
                }
                pair[which] = measured?;
            }
            rounds.push(pair);
            if self.judged(&rounds).is_disaster {
                break;
            }
        }
        bar.finish_and_clear();
        Ok((rounds, false))
    }

    fn slice(&self, watched: &mut Watched, time: Duration) -> Result<Slice, Failure> {
        sleep(time / SETTLE);
        // The user's command takes its time, and reads what it prints shortly before it ends. So a slice goes from end to
        // end.
        let before = self.counts()?;
        let earlier = watched.look()?;
        let begun = Instant::now();
        // In short pieces, to react to Ctrl-C.
        let length = time - time / SETTLE;
        while begun.elapsed() < length && !interrupted() {
            sleep((length - begun.elapsed().min(length)).min(Duration::from_millis(50)));
        }
        let after = self.counts()?;
        let look = watched.look()?;
        let seconds = begun.elapsed().as_secs_f64();
        if watched.has_ended {
            return Err(Failure::new(format!("process {} has ended", self.pid)));
        }
        self.lease.check()?;
        let table = {
            let process = Process::open(self.pid)?;
            self.mailbox.of(&process).table()?
        };
        let mut slice = Slice {
            locks: Vec::new(),
            seconds,
            counted: after.0.zip(before.0).map(|(after, before)| after - before),
            epochs: f64::from(after.1.wrapping_sub(before.1)),
            missed: f64::from(after.2.wrapping_sub(before.2)),
            ..Slice::default()
        };
        let slice_ns = look.at_ns.saturating_sub(earlier.at_ns);
        let since: HashMap<Of, &Rc<Lock>> =
            look.since.iter().flat_map(|all| &all.locks).map(|lock| (lock.of, lock)).collect();
        // A lock for which nothing has ended in the slice may have been waited for all the time.
        let open = look.open().filter(|lock| !since.contains_key(&lock.of));
        for lock in since.values().copied().chain(open) {
            let times = match since.contains_key(&lock.of) {
                true => lock.wait(),
                false => Times::default(),
            };
            let open = (lock.open_since_ns != 0).then(|| OpenWait {
                length_ns: look.at_ns.saturating_sub(lock.open_since_ns),
                here_ns: look.at_ns.saturating_sub(lock.open_since_ns.max(earlier.at_ns)),
            });
            slice.locks.push(Waited {
                of: lock.of,
                is_meant: self.target.has(&table, lock),
                ns: within(&times, slice_ns) + open.map_or(0.0, |open| open.here_ns as f64),
                times,
                open,
            });
        }
        Ok(slice)
    }

    /// The count of the user's command, executed epochs, and missed SLOs.
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

/// The last number that a command prints.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve rounds in which the new lock does this share of the old one's work, and `long` long waits where the old one has none.
    fn guarded(share: f64, long: u64, end: End) -> Guarded {
        let slice = |share: f64, long: u64| {
            let mut times = Times::from_iter([(100, 980), (200, 19)]);
            times.add(10_000_000, long);
            Slice { seconds: 1.0, epochs: 1000.0 * share, times, ..Slice::default() }
        };
        let slices: Vec<_> = (0..ROUNDS).map(|_| [slice(1.0, 0), slice(share, long)]).collect();
        let judged = judge(&slices, Terms::default());
        Guarded { judged, before: "auto".into(), after: "fifo".into(), end }
    }

    #[test]
    fn the_verdict_is_one_line_that_a_person_would_say() {
        let said = |share, long, end| {
            let text = guarded(share, long, end).text();
            text.split_once("\n\n").expect("a verdict and details").0.to_owned()
        };
        assert_eq!(
            said(1.0, 36, End::RolledBack),
            "fifo is worse: 37 times as many long waits; rolled back to auto"
        );
        assert_eq!(
            said(0.7, 36, End::RolledBack),
            "fifo is worse: 30 % fewer epochs per second and 53 times as many long waits;\n  rolled back to auto"
        );
        assert_eq!(
            said(1.4, 0, End::Kept),
            "fifo is better: 40 % more epochs per second and 29 % fewer long waits; kept"
        );
        assert_eq!(said(1.0, 0, End::Kept), "fifo makes no difference that counts; kept");
        assert_eq!(
            said(0.4, 0, End::RolledBack),
            "fifo is worse: less than half the epochs per second, 4 times in a row; rolled\n  back to auto"
        );
        assert_eq!(said(1.0, 0, End::Interrupted), "interrupted, no verdict: back to auto");
        assert_eq!(said(1.0, 0, End::TakenOff), "fifo is too slow; rolled back to auto");
    }

    #[test]
    fn the_details_have_no_exponents() {
        let text = guarded(1.0, 36, End::RolledBack).text();
        assert!(!text.contains("e-"), "{text}");
        assert!(text.contains("\nlong waits: those over "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
