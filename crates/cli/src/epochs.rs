//! What a program recorded about its epochs (`LOCKWRIGHT_STATS`): merges the data of its processes, and judges the
//! SLOs.

mod show;

pub(crate) use show::{Origin, csv_header, csv_rows, json, percentile, report, write};

use crate::hints::Failure;
use lockwright_native::topology::{Class, Topology};
use lockwright_observer::process::is_running;
use lockwright_stats::{ClassStats, Epoch, Process};
use std::path::Path;

/// The variable that names the folder.
pub(crate) const VARIABLE: &str = "LOCKWRIGHT_STATS";

/// The data of all processes of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The number of processes with data.
    pub(crate) processes: usize,
    /// How many of them still run. Their figures are current, not final.
    pub(crate) running: usize,
    /// The lock that the program used.
    pub(crate) lock: String,
    /// The emulated machine; `None`: a real one.
    pub(crate) emulated: Option<String>,
    /// Seconds from the start of the first process to the last end of an epoch.
    pub(crate) seconds: f64,
    /// The data of each program; there are several if the program started others.
    pub(crate) programs: Vec<Program>,
}

/// All processes of one program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its name, without folders.
    pub(crate) name: String,
    /// Its epochs, in the order in which they first ended.
    pub(crate) epochs: Vec<Epoch>,
}

impl Record {
    /// Reads the records in `dir`, ignoring processes without epochs.
    pub(crate) fn read(dir: &Path) -> Result<Record, Failure> {
        let processes = lockwright_stats::read_dir(dir).map_err(|error| {
            Failure::new(format!("cannot read what the program recorded: {error}"))
        })?;
        Ok(Record::of(processes))
    }

    fn of(processes: Vec<Process>) -> Record {
        let mut record = Record::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for process in processes {
            if record.lock.is_empty() {
                record.lock.clone_from(&process.lock);
            }
            record.emulated = record.emulated.or(process.emulated);
            if process.epochs.iter().all(|epoch| epoch.all().count == 0) {
                continue;
            }
            record.processes += 1;
            record.running += usize::from(is_running(process.pid));
            (first, last) = (first.min(process.start_ns), last.max(process.last_ns));
            let name = program_name(&process.command);
            let at = record.programs.iter().position(|program| program.name == name);
            let at = at.unwrap_or_else(|| {
                record.programs.push(Program { name, epochs: Vec::new() });
                record.programs.len() - 1
            });
            let program = &mut record.programs[at];
            for epoch in process.epochs {
                match program.epochs.iter_mut().find(|known| known.name == epoch.name) {
                    Some(known) => known.merge(&epoch),
                    None => program.epochs.push(epoch),
                }
            }
        }
        record.seconds = last.saturating_sub(first) as f64 / 1e9;
        record
    }

    /// Every epoch that was executed, with its display name. If there are several programs, it begins with the
    /// program's name.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = (String, &Epoch)> {
        let several = self.programs.len() > 1;
        self.programs.iter().flat_map(move |program| {
            let executed = program.epochs.iter().filter(|epoch| epoch.all().count > 0);
            executed.map(move |epoch| match several {
                true => (format!("{}: {}", program.name, epoch.name), epoch),
                false => (epoch.name.clone(), epoch),
            })
        })
    }
}

fn program_name(command: &str) -> String {
    let path = command.split(' ').next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Whether an SLO was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// There were fewer executions than a verdict needs: see [`needed`].
    TooFew,
    /// The percentile is within the SLO.
    Kept,
    /// The percentile isn't, and a smaller window would have helped.
    Missed,
    /// First come, first served would miss it, too.
    Infeasible,
}

impl Verdict {
    /// The verdict in one word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::TooFew => "too few",
            Verdict::Kept => "kept",
            Verdict::Missed => "missed",
            Verdict::Infeasible => "infeasible",
        }
    }
}

/// A percentile may exceed its SLO by this factor: feedback steers the window towards the exact SLO from both sides.
pub(crate) const GRACE: f64 = 1.05;

/// The epoch's percentile (such as 99.0) as a share.
pub(crate) fn share(epoch: &Epoch) -> f64 {
    epoch.percentile / 100.0
}

/// The latency at the epoch's own percentile, ns.
pub(crate) fn tail(epoch: &Epoch, class: &ClassStats) -> u64 {
    class.quantile(share(epoch))
}

/// How many executions a class needs for a verdict: 100 (as for "infeasible"), and so many that the percentile allows one of them to
/// exceed the SLO. Otherwise a single execution would decide.
pub(crate) fn needed(epoch: &Epoch) -> u64 {
    100.max((1.0 / (1.0 - share(epoch))).round() as u64)
}

/// Does this class meet the epoch's SLO? This counts only the class's own executions. "Infeasible" is a verdict only on
/// the whole epoch.
pub(crate) fn judge_class(epoch: &Epoch, class: &ClassStats) -> Verdict {
    if class.count < needed(epoch) {
        return Verdict::TooFew;
    }
    let allowed = (1.0 - share(epoch)) * class.count as f64;
    let kept = class.violations as f64 <= allowed
        || tail(epoch, class) as f64 <= epoch.slo_ns as f64 * GRACE;
    match (kept, epoch.is_infeasible()) {
        (true, _) => Verdict::Kept,
        (false, true) => Verdict::Infeasible,
        (false, false) => Verdict::Missed,
    }
}

/// An epoch meets its SLO if each class of cores does that executed it often enough.
pub(crate) fn judge(epoch: &Epoch) -> Verdict {
    let executed = epoch.classes.iter().filter(|class| class.count > 0);
    executed.map(|class| judge_class(epoch, class)).max().unwrap_or(Verdict::TooFew)
}

/// Names of the classes of cores in a topology (or in an emulated machine: classes with factors).
pub(crate) struct ClassNames(Box<Topology>);

impl ClassNames {
    /// Reads `spec`, or else this machine's topology.
    pub(crate) fn new(spec: Option<&str>) -> ClassNames {
        let mut topology = Box::new(Topology::new());
        topology.read(b"/sys");
        topology.ask_each_cpu();
        if let Some(spec) = spec {
            // An invalid specification is refused before the program starts.
            let _ = topology.set_emulated(spec);
        }
        ClassNames(topology)
    }

    /// The number of classes.
    pub(crate) fn count(&self) -> usize {
        self.0.classes()
    }

    pub(crate) fn of(&self, class: u8) -> &str {
        self.0.class_name(Class(class))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lockwright_contract::histogram::{bucket, middle};

    /// A class with executions of these lengths. If `fifo`, every one of them began with a negligible window.
    pub(crate) fn class(number: u8, slo_ns: u64, times: &[u64], fifo: bool) -> ClassStats {
        let latency = times.iter().map(|&ns| middle(bucket(ns))).collect();
        let count = times.len() as u64;
        let violations = times.iter().filter(|&&ns| ns > slo_ns).count() as u64;
        ClassStats {
            class: number,
            count,
            violations,
            window_ns: 1000,
            min_ns: times.iter().copied().min().unwrap_or(0),
            max_ns: times.iter().copied().max().unwrap_or(0),
            at_fifo: if fifo { count } else { 0 },
            at_fifo_violations: if fifo { violations } else { 0 },
            latency,
        }
    }

    pub(crate) fn epoch(name: &str, slo_ns: u64, classes: Vec<ClassStats>) -> Epoch {
        Epoch { id: 1, name: name.into(), slo_ns, percentile: 99.0, classes }
    }

    pub(crate) fn process(pid: u32, command: &str, epochs: Vec<Epoch>) -> Process {
        Process {
            pid,
            command: command.into(),
            lock: "asl".into(),
            emulated: Some("big:0,little:1x3.75".into()),
            start_ns: 1_000_000_000,
            last_ns: 3_000_000_000,
            epochs,
        }
    }

    /// A record of one process that ran for two seconds.
    pub(crate) fn record(epochs: Vec<Epoch>) -> Record {
        Record::of(vec![process(u32::MAX, "server", epochs)])
    }

    /// `slow` of 1000 executions take 300 us, the others 10 us.
    fn thousand(number: u8, slow: usize, fifo: bool) -> ClassStats {
        let times: Vec<_> = (0..1000).map(|i| if i < slow { 300_000 } else { 10_000 }).collect();
        class(number, 100_000, &times, fifo)
    }

    #[test]
    fn slowest_class_decides() {
        let with = |slow, fifo| {
            epoch("get", 100_000, vec![thousand(0, 0, false), thousand(1, slow, fifo)])
        };
        assert_eq!(judge(&with(10, false)), Verdict::Kept);
        assert_eq!(judge(&with(11, false)), Verdict::Missed);
        assert_eq!(judge(&with(11, true)), Verdict::Infeasible);
        // Violations that first come, first served allows don't count.
        assert_eq!(judge(&with(10, true)), Verdict::Kept);
    }

    #[test]
    fn one_execution_decides_nothing() {
        let slow = |count: usize| class(1, 100_000, &vec![300_000; count], false);
        let fast = |count: usize| class(0, 100_000, &vec![10_000; count], false);
        let with = |classes| epoch("get", 100_000, classes);
        assert_eq!(judge(&with(vec![slow(1)])), Verdict::TooFew);
        assert_eq!(judge(&with(vec![slow(99)])), Verdict::TooFew);
        assert_eq!(judge(&with(vec![slow(100)])), Verdict::Missed);
        assert_eq!(judge(&with(vec![fast(1)])), Verdict::TooFew);
        // The others decide.
        assert_eq!(judge(&with(vec![fast(100), slow(1)])), Verdict::Kept);
        assert_eq!(judge_class(&with(vec![]), &slow(1)), Verdict::TooFew);
        // P99.9 allows none of 100 to be slow.
        let mut rare = with(vec![slow(999)]);
        rare.percentile = 99.9;
        assert_eq!((needed(&rare), judge(&rare)), (1000, Verdict::TooFew));
        rare.percentile = 50.0;
        assert_eq!((needed(&rare), judge(&rare)), (100, Verdict::Missed));
    }

    #[test]
    fn a_percentile_just_above_its_slo_is_kept() {
        let just = |ns| judge(&epoch("get", 100_000, vec![class(0, 100_000, &[ns; 200], false)]));
        assert_eq!(just(103_000), Verdict::Kept);
        assert_eq!(just(120_000), Verdict::Missed);
    }

    #[test]
    fn processes_of_one_program_are_one() {
        let get = |n| epoch("get", 100_000, vec![class(0, 100_000, &vec![1000; n], false)]);
        let record = Record::of(vec![
            process(u32::MAX - 1, "/usr/bin/server -p 1", vec![get(3)]),
            process(u32::MAX - 2, "./server", vec![get(4), epoch("put", 1, vec![])]),
            process(u32::MAX - 3, "helper", vec![]),
        ]);
        assert_eq!((record.processes, record.running, record.seconds), (2, 0, 2.0));
        let names: Vec<_> = record.epochs().map(|(name, e)| (name, e.all().count)).collect();
        assert_eq!(names, [("get".to_owned(), 7)]);
        let two = Record::of(vec![
            process(u32::MAX - 1, "a", vec![get(1)]),
            process(u32::MAX - 2, "b", vec![get(1)]),
        ]);
        let names: Vec<_> = two.epochs().map(|(name, _)| name).collect();
        assert_eq!(names, ["a: get", "b: get"]);
    }

    #[test]
    fn classes_of_an_emulated_machine_have_its_names() {
        let mut topology = Box::new(Topology::new());
        topology.read(b"/sys");
        let cpus: Vec<_> = topology.online().map(|(cpu, _)| cpu.to_string()).collect();
        assert_eq!(ClassNames::new(Some(&format!("huge:{}x2.5", cpus.join(",")))).of(0), "huge");
    }
}
