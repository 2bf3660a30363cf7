//! One run of one program under one lock: what is started, checked and counted.

use super::load::{Load, Tails};
use crate::answer::No;
use crate::demo::measure;
use anyhow::{Context, Result, bail, ensure};
use lockwright_energy::Source;
use lockwright_tests::{Child, End, Outcome, Running, preload_list};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for a server to accept connections.
const START_LIMIT: u64 = 30;

/// The word for `run --delegate all`, among the locks.
pub(super) const DELEGATE: &str = "delegate";

/// One row of the evaluation.
pub(super) struct Program {
    pub(super) id: &'static str,
    /// The name as its authors spell it, and the load.
    pub(super) name: &'static str,
    pub(super) packages: &'static [&'static str],
    /// A description of its operations, in HTML.
    pub(super) workload: &'static str,
    pub(super) run: fn(&Bench) -> Result<ProgramSample>,
}

/// The conditions of a run.
pub(super) struct Bench<'a> {
    /// In the form of LOCKWRIGHT_LOCK; `None`: nothing is preloaded.
    pub(super) lock: Option<&'a str>,
    pub(super) library: &'a Path,
    /// Length of the load, in seconds.
    pub(super) seconds: u32,
    /// Operations per second in the preliminary run, for loads that need a count.
    pub(super) rate: Option<f64>,
    /// This run's own folder, initially empty.
    pub(super) dir: &'a Path,
    /// A folder that all runs of the program share.
    pub(super) shared: &'a Path,
    /// The source of energy figures, if there is one.
    pub(super) energy: Option<&'a Source>,
}

/// The resources that a program, or its whole machine, used during the load.
struct Spent {
    /// CPU time of the program, seconds.
    cpu: f64,
    /// Power of everything that the source counts, including clients.
    watts: Option<f64>,
}

/// A running measurement of power.
struct Power(Option<(lockwright_energy::Running, Instant)>);

impl Power {
    fn begin(source: Option<&Source>) -> Self {
        Self(source.map(|source| (source.start(), Instant::now())))
    }

    /// Average watts since the start; `None`: not measured.
    fn end(self) -> Option<f64> {
        let (running, start) = self.0?;
        let took = start.elapsed().as_secs_f64();
        // Only the model uses CPU time, and it isn't used here.
        Some(running.stop(Duration::ZERO)? / took)
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramSample {
    /// Operations per second.
    pub(super) rate: f64,
    /// CPU time of the program (without its clients) per operation, ns.
    pub(super) cpu_ns: f64,
    /// Energy per operation, J, of everything that the source counts.
    pub(super) joules: Option<f64>,
    pub(super) tails: Tail,
    /// A checksum of a batch program's output. It must be the same in all runs.
    pub(super) output: Option<u64>,
}

/// What is known about a run's slow operations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Tail {
    Of(Tails),
    /// A batch program is a single operation, which took this long, ns.
    Whole(f64),
}

impl Bench<'_> {
    /// The program to measure. The library sees this machine's own cores: nothing is emulated.
    pub(super) fn program(&self, program: &str) -> Child {
        let child = Child::new(program).dir(self.dir);
        match self.lock {
            Some(DELEGATE) => child
                .env("LOCKWRIGHT_DELEGATE", "all")
                .env("LD_PRELOAD", preload_list(&[&self.delegates(), self.library])),
            Some(lock) => child.env("LOCKWRIGHT_LOCK", lock).env("LD_PRELOAD", self.library),
            None => child,
        }
    }

    /// The library that delegates.
    fn delegates(&self) -> PathBuf {
        self.library.with_file_name("liblockwright_delegate.so")
    }

    /// A program that measures or prepares. It never gets our library.
    pub(super) fn helper(&self, program: &str) -> Child {
        Child::new(program).dir(self.dir).limit(60 + 10 * u64::from(self.seconds))
    }

    /// Runs a helper, and returns its output.
    pub(super) fn told(&self, helper: Child) -> Result<String> {
        let outcome = helper.run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        Ok(outcome.text())
    }

    /// A file that all runs read. It is created on first use.
    pub(super) fn input(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.shared.join(name);
        if !path.exists() {
            make(&path).with_context(|| format!("cannot make '{}'", path.display()))?;
        }
        Ok(path)
    }

    /// Starts a server, and waits until it listens.
    pub(super) fn serve(&self, program: Child, listens: impl Fn() -> bool) -> Result<Server<'_>> {
        let limit = 2 * START_LIMIT + 20 * u64::from(self.seconds);
        let mut running = program.limit(limit).start()?;
        while !listens() {
            if running.end()?.is_some() || running.took() > Duration::from_secs(START_LIMIT) {
                let outcome = running.stop()?;
                return Err(No(format!("the server does not start: {}", outcome.describe())).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let pid = running.pid();
        self.check_loaded(self.is_loaded(pid))?;
        let cpu = cpu_seconds(&pid.to_string(), OWN)?;
        Ok(Server { running, bench: self, cpu })
    }

    /// Runs a program that does `operations` and ends. Its output must be the same each time.
    pub(super) fn batch(&self, program: Child, operations: f64) -> Result<ProgramSample> {
        let (outcome, spent) = self.watched(program)?;
        let took = outcome.took.as_secs_f64();
        let mut hasher = DefaultHasher::new();
        hasher.write(&outcome.stdout);
        Ok(ProgramSample {
            rate: operations / took,
            cpu_ns: spent.cpu * 1e9 / operations,
            joules: spent.watts.map(|watts| watts * took / operations),
            tails: Tail::Whole(took * 1e9),
            output: Some(hasher.finish()),
        })
    }

    /// Runs a program that measures itself.
    pub(super) fn alone(
        &self,
        program: Child,
        read: impl FnOnce(&str) -> Result<Load>,
    ) -> Result<ProgramSample> {
        let (outcome, spent) = self.watched(program)?;
        ProgramSample::of(read(&outcome.text()), &spent, &outcome)
    }

    /// Runs one of our drivers, which report the CPU time of their operations.
    pub(super) fn driver(&self, program: Child) -> Result<ProgramSample> {
        let (outcome, spent) = self.watched(program)?;
        let run = measure::parse(&outcome.text(), None)
            .and_then(|run| run.context("no operation ended"))
            .with_context(|| format!("unexpected report: {}", outcome.describe()))?;
        let longest = run.latency.max() as f64;
        Ok(ProgramSample {
            rate: run.rate,
            cpu_ns: run.cpu_ns,
            joules: spent.watts.map(|watts| watts / run.rate),
            tails: Tail::Of(Tails::of(&run.latency, longest)),
            output: None,
        })
    }

    /// Runs the program to its end, and checks whether the library is loaded. CPU time includes all its processes.
    fn watched(&self, program: Child) -> Result<(Outcome, Spent)> {
        let before = cpu_seconds("self", CHILDREN)?;
        let power = Power::begin(self.energy);
        let mut running = program.limit(60 + 20 * u64::from(self.seconds)).start()?;
        let (pid, mut loaded) = (running.pid(), false);
        while running.end()?.is_none() {
            if looks(running.took(), self.lock.is_some() && !loaded) {
                loaded |= self.is_loaded(pid);
            }
            // Precise to a thousandth of a run of some seconds.
            thread::sleep(Duration::from_millis(2));
        }
        let outcome = running.outcome()?;
        let watts = power.end();
        self.check(&outcome, &[End::Code(0)])?;
        self.check_loaded(loaded)?;
        Ok((outcome, Spent { cpu: cpu_seconds("self", CHILDREN)? - before, watts }))
    }

    /// Under our locks, the library must be loaded. Under glibc's, it must not.
    fn check_loaded(&self, is_loaded: bool) -> Result<()> {
        let library = self.library.display();
        match (self.lock, is_loaded) {
            (Some(_), false) => {
                bail!("the program runs without '{library}'\nhint: lockwright doctor PROGRAM")
            }
            (None, true) => bail!(
                "the program runs with '{library}' although it wasn't requested\nhint: cat /etc/ld.so.preload"
            ),
            _ => Ok(()),
        }
    }

    fn is_loaded(&self, pid: u32) -> bool {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let is_there = |library: &Path| maps.contains(&*library.to_string_lossy());
        is_there(self.library) && (self.lock != Some(DELEGATE) || is_there(&self.delegates()))
    }

    /// Checks for messages. The library prints one if it can't do what it was asked; the dynamic linker, if it can't
    /// load the library.
    fn check(&self, outcome: &Outcome, ends: &[End]) -> Result<()> {
        if !ends.contains(&outcome.end) {
            return Err(No(outcome.describe()).into());
        }
        let errors = outcome.errors();
        let complaint = errors
            .lines()
            .find(|line| line.starts_with("lockwright: ") || line.contains("cannot be preloaded"));
        match complaint {
            Some(line) => bail!("{line}"),
            None => Ok(()),
        }
    }
}

impl ProgramSample {
    fn of(load: Result<Load>, spent: &Spent, said: &Outcome) -> Result<ProgramSample> {
        let load = load.with_context(|| format!("unexpected report: {}", said.describe()))?;
        ensure!(load.operations > 0.0 && load.rate > 0.0, "no operation was done");
        Ok(ProgramSample {
            rate: load.rate,
            cpu_ns: spent.cpu * 1e9 / load.operations,
            joules: spent.watts.map(|watts| watts / load.rate),
            tails: Tail::Of(load.tails),
            output: None,
        })
    }
}

/// How a server may end after it was asked to: SIGTERM is 15.
const ENDS: &[End] = &[End::Code(0), End::Signal(15)];

/// A running server. Dropping it kills it.
pub(super) struct Server<'a> {
    running: Running,
    bench: &'a Bench<'a>,
    /// The server's CPU seconds at the start of the load.
    cpu: f64,
}

impl Server<'_> {
    /// Stops it without measuring.
    pub(super) fn stop(self) -> Result<()> {
        self.bench.check(&self.running.stop()?, ENDS).context("the server")
    }

    /// Runs the load to its end, then stops the server.
    pub(super) fn measure(
        self,
        load: Child,
        read: impl FnOnce(&str) -> Result<Load>,
    ) -> Result<ProgramSample> {
        let power = Power::begin(self.bench.energy);
        let said = load.run()?;
        let watts = power.end();
        // If the server has ended, report that.
        let cpu = cpu_seconds(&self.running.pid().to_string(), OWN).map(|cpu| cpu - self.cpu);
        let bench = self.bench;
        let outcome = self.running.stop()?;
        bench.check(&outcome, ENDS).context("the server")?;
        ensure!(said.end == End::Code(0), "the load: {}", said.describe());
        ProgramSample::of(read(&said.text()), &Spent { cpu: cpu?, watts }, &said)
    }
}

/// A local TCP port that is currently free.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Does anything listen on the port?
pub(super) fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Fields of `/proc/PID/stat`, counting from the state: the process's own CPU time, and that of its ended children.
const OWN: [usize; 2] = [11, 12];
pub(super) const CHILDREN: [usize; 2] = [13, 14];

/// How long every process is observed. Reading its maps costs it time, so all of them must pay the same.
const LOOK: Duration = Duration::from_millis(100);

/// Is a process of this length observed, given that it lacks what it should have?
fn looks(took: Duration, lacks: bool) -> bool {
    took < LOOK || lacks
}

/// The CPU time in `fields`, in steps of at least a hundredth of a second.
pub(super) fn cpu_seconds(pid: &str, fields: [usize; 2]) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read '{path}'"))?;
    let (_, rest) = stat.rsplit_once(") ").context("a process's state")?;
    let values: Vec<&str> = rest.split(' ').collect();
    let tick = |field: usize| -> Option<f64> { values.get(field)?.parse().ok() };
    let [user, system] = fields.map(tick);
    Ok((user.context("its user time")? + system.context("its system time")?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench<'a>(lock: Option<&'a str>, dir: &'a Path) -> Bench<'a> {
        let library = Path::new("/nonexistent/liblockwright.so");
        Bench { lock, library, seconds: 1, rate: None, dir, shared: dir, energy: None }
    }

    #[test]
    fn a_batch_without_the_library_is_no_measurement_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let run = |lock| {
            let bench = bench(lock, dir.path());
            bench.batch(bench.program("sleep").args(["0.02"]), 2.0)
        };
        let Tail::Whole(took) = run(None).unwrap().tails else {
            panic!("a batch is one operation")
        };
        assert!(took >= 0.02e9);
        let error = format!("{:#}", run(Some("auto")).unwrap_err());
        assert!(error.contains("cannot be preloaded"), "{error}");
    }

    #[test]
    fn the_library_is_there_when_and_only_when_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for (lock, is_loaded, is_right) in [
            (None, false, true),
            (None, true, false),
            (Some("auto"), true, true),
            (Some("auto"), false, false),
        ] {
            assert_eq!(
                bench(lock, dir.path()).check_loaded(is_loaded).is_ok(),
                is_right,
                "{lock:?}"
            );
        }
    }

    #[test]
    fn all_locks_are_looked_at_for_as_long() {
        // Ours and glibc's must be treated alike, whatever was seen. After that, only processes without the library are
        // observed.
        assert!(looks(LOOK / 2, true) && looks(LOOK / 2, false));
        assert!(looks(2 * LOOK, true) && !looks(2 * LOOK, false));
    }

    #[test]
    fn what_failed_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let bench = bench(None, dir.path());
        let failed = bench.batch(bench.program("sh").args(["-c", "exit 3"]), 1.0);
        assert!(failed.unwrap_err().is::<No>());
        let server = bench.program("sh").args(["-c", "echo oops >&2; exit 1"]);
        let error = bench.serve(server, || false).err().unwrap();
        assert!(error.is::<No>() && error.to_string().contains("oops"), "{error}");
    }

    #[test]
    fn a_server_is_measured_while_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let bench = bench(None, dir.path());
        let start = || bench.serve(bench.program("sleep").args(["1000"]), || true).unwrap();
        let tails = Tails { p50: 1.0, p99: 2.0, p999: 3.0, longest: 4.0 };
        let read = |text: &str| Ok(Load { rate: text.trim().parse()?, operations: 7.0, tails });
        let sample = start().measure(bench.helper("echo").args(["5"]), read).unwrap();
        assert_eq!((sample.rate, sample.tails), (5.0, Tail::Of(tails)));
        assert!(start().measure(bench.helper("echo").args(["x"]), read).is_err());
        assert!(start().measure(bench.helper("false"), read).is_err());
    }
}
