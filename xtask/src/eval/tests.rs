//! Evaluations in shards, of databases that answer at once.

use super::drivers::{ClassRun, DATABASES, Run, Runs, Subject};
use super::kept::ResultsPlace;
use super::*;
use crate::shards::MERGER;
use lockwright_numbers::Times;
use lockwright_shards::{Error, Plan as Header};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use tempfile::TempDir;

/// Opens a session. A child that another test starts has our files, and so their locks, until it runs its program.
fn open(session: impl Fn() -> std::result::Result<Session, Error>) -> Session {
    let start = Instant::now();
    loop {
        match session() {
            Err(why) if why.message().starts_with("another process") => {
                assert!(start.elapsed() < Duration::from_secs(60), "{why}");
                thread::sleep(Duration::from_millis(1));
            }
            session => return session.unwrap(),
        }
    }
}

/// Where shards are.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("shards")
    }

    /// Begins a shard of this command, or goes on with it.
    pub(super) fn open(&self, command: &str, shard: &str, inputs: &[String]) -> Session {
        self.open_on("here", command, shard, inputs)
    }

    fn open_on(&self, machine: &str, command: &str, shard: &str, inputs: &[String]) -> Session {
        let flags = Flags { shard: Some(shard.parse().unwrap()), resume: true };
        let plan = Header::new(MERGER.program, command.split(' ').map(str::to_owned), inputs);
        open(|| flags.open(&plan, Some(&self.path()), || machine.to_owned()))
    }

    /// All shards.
    pub(super) fn merge(&self, inputs: &[String]) -> Session {
        let merged = Merge::read(&[self.path()], Some(Path::new("report")), MERGER).unwrap();
        let plan = Header::new(MERGER.program, merged.words(), inputs);
        merged.session(&plan).unwrap()
    }

    fn file(&self, shard: u32) -> PathBuf {
        self.path().join(format!("shard-{shard}-of-2.jsonl"))
    }

    fn append(&self, shard: u32, text: &str) {
        let file = fs::OpenOptions::new().append(true).open(self.file(shard));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }
}

/// What one process does: its runs, in order, and after how many of them it ends.
struct Process {
    runs: RefCell<Vec<String>>,
    killed_after: u32,
    interrupted_after: u32,
    interrupted: AtomicBool,
    left: Cell<u32>,
}

impl Process {
    fn new(killed_after: u32, interrupted_after: u32) -> Self {
        let (runs, interrupted, left) = Default::default();
        Self { runs, killed_after, interrupted_after, interrupted, left }
    }

    fn run(&self, database: &Database, subject: &Subject, seed: u64) -> Result<Run> {
        let what = format!("{}, {}, {seed}", database.id, subject.name());
        let number = self.left.get();
        ensure!(number < self.killed_after, "killed");
        self.left.set(number + 1);
        self.interrupted.store(number + 1 >= self.interrupted_after, Ordering::Relaxed);
        // Another number for each, and one that JSON has to write in full.
        let hash = what.bytes().fold(7_u64, |hash, byte| hash * 31 % 1_000_003 + u64::from(byte));
        self.runs.borrow_mut().push(what);
        let mut latency = Times::default();
        latency.add(1000 + hash % 700, 990);
        latency.add(100_000, 10);
        let class = ClassRun { operations: 1000, over_slo: hash % 30, latency };
        Ok(Run {
            rate: hash as f64 / 7.0,
            seconds: 0.1,
            cpu_seconds: 0.001,
            classes: vec![class.clone(), class],
            engine: database.name.to_owned(),
            libc: "libc".to_owned(),
            epochs: true,
        })
    }
}

/// A database that answers at once, and in each process the same.
struct Fake<'a>(&'a Process, Database);

impl Runs for Fake<'_> {
    fn run(&self, subject: &Subject, seed: u64) -> Result<Run> {
        self.0.run(&self.1, subject, seed)
    }

    fn first_look(&self, subject: &Subject) -> Result<Run> {
        self.run(subject, 0)
    }
}

const COMMAND: &str = "eval libasl-apps --output report";

fn plan() -> DatabasePlan {
    DatabasePlan {
        databases: DATABASES[..3].to_vec(),
        locks: ["fifo", "asl", "glibc"].map(str::to_owned).to_vec(),
        machine: Cores::parse("big:0,little:1x2").unwrap(),
        threads: 2,
        seconds: 0.1,
        warmup: 0.1,
        rounds: 3,
        quick: false,
    }
}

fn measured(plan: &DatabasePlan, process: &Process, session: &Session) -> Result<Measured> {
    let driver = |(place, database): (usize, &Database)| {
        plan.is_left(place, session).then_some(Fake(process, *database))
    };
    let drivers: Vec<_> = plan.databases.iter().enumerate().map(driver).collect();
    measure(plan, &drivers, session, &process.interrupted)
}

/// Every file of the report.
fn report(session: Session) -> BTreeMap<String, Vec<u8>> {
    let measured = measured(&plan(), &Process::new(0, 0), &session).unwrap();
    let place = ResultsPlace { session, report: None };
    let evaluation = Evaluation::of(plan(), measured, &place);
    let folder = tempfile::tempdir().unwrap();
    report::write(&evaluation, folder.path()).unwrap();
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    let read = |entry: fs::DirEntry| fs::read(entry.path()).unwrap();
    entries.map(|entry| (entry.file_name().into_string().unwrap(), read(entry))).collect()
}

#[test]
fn shards_that_were_killed_make_the_report_that_one_process_makes() {
    let (folder, plan) = (Folder::new(), plan());
    let inputs = plan.inputs();
    let open = |shard: &str| folder.open(COMMAND, shard, &inputs);
    // SQLite and Kyoto Cabinet: 3 first runs of each, and 3 rounds of 9 runs.
    let killed = Process::new(3 + 9 + 4, 99);
    assert_eq!(measured(&plan, &killed, &open("1/2")).err().unwrap().to_string(), "killed");
    folder.append(1, r#"{"job":"sqlite: round 2","result":{"#);
    let interrupted = Process::new(99, 2 * 9 + 3 + 1);
    assert!(measured(&plan, &interrupted, &open("1/2")).unwrap().interrupted);
    let last = Process::new(99, 99);
    measured(&plan, &last, &open("1/2")).unwrap();
    let made = [&killed, &interrupted, &last].map(|process| process.runs.borrow().clone());
    // Nothing that was kept is made again, and no more than a round is lost.
    assert_eq!(made.each_ref().map(Vec::len), [16, 22, 27]);
    assert_eq!(made[1][0], "sqlite, asl 0, 2");
    assert_eq!(made[2][0], "kyoto, fifo, 1");
    measured(&plan, &Process::new(99, 99), &open("1/2")).unwrap();

    // Merged too soon.
    open("2/2");
    let jobs: Vec<_> = (0..3).flat_map(|database| plan.jobs(database)).collect();
    let why = folder.merge(&inputs).complete(&jobs).unwrap_err();
    assert_eq!(why.message(), "shard 2/2 lacks 4 results");
    assert_eq!(
        why.hint(),
        format!(
            "cargo xtask eval libasl-apps --output {} --shard 2/2 --resume",
            folder.path().display()
        )
    );
    measured(&plan, &Process::new(99, 99), &open("2/2")).unwrap();

    // The same results, kept by one process.
    let whole = Folder::new();
    drop(whole.open(COMMAND, "1/1", &inputs));
    let file = whole.path().join("shard-1-of-1.jsonl");
    let mut kept = fs::read_to_string(&file).unwrap();
    for shard in [2, 1] {
        let text = fs::read_to_string(folder.file(shard)).unwrap();
        kept.extend(text.lines().skip(1).map(|line| line.to_owned() + "\n"));
    }
    fs::write(&file, kept).unwrap();
    let flags = Flags { shard: None, resume: true };
    let words = COMMAND.split(' ').map(str::to_owned);
    let header = Header::new(MERGER.program, words, &inputs);
    let session = self::open(|| flags.open(&header, Some(&whole.path()), || "here".into()));
    let (merged, one) = (report(folder.merge(&inputs)), report(session));
    assert_eq!(merged.keys().collect::<Vec<_>>(), one.keys().collect::<Vec<_>>());
    assert!(merged.contains_key("report.html") && merged.contains_key("kyoto-bars.svg"));
    for (name, bytes) in &one {
        assert!(merged[name] == *bytes, "{name} differs");
    }
}

#[test]
fn databases_of_different_machines_are_named() {
    let (folder, plan) = (Folder::new(), plan());
    let inputs = plan.inputs();
    for (machine, shard) in [("one", "1/2"), ("two", "2/2")] {
        let session = folder.open_on(machine, COMMAND, shard, &inputs);
        measured(&plan, &Process::new(99, 99), &session).unwrap();
    }
    let readme = report(folder.merge(&inputs)).remove("README.md").unwrap();
    let readme = String::from_utf8(readme).unwrap();
    for note in
        ["machine: one: it measured SQLite; Kyoto Cabinet.", "machine: two: it measured LMDB."]
    {
        assert!(readme.contains(note), "{readme}");
    }
}

#[test]
fn what_decides_the_results_is_the_plan() {
    let other = DatabasePlan { rounds: 4, ..plan() };
    assert_ne!(plan().inputs(), other.inputs());
    let other = DatabasePlan { machine: Cores::parse("big:0,little:1x3").unwrap(), ..plan() };
    assert_ne!(plan().inputs(), other.inputs());
}

#[test]
fn the_table_fits_eighty_columns() {
    let bar = |what: &str, wanted: &str, measured: &str, met| Bar {
        what: format!("Kyoto Cabinet, {what}"),
        wanted: wanted.to_owned(),
        measured: measured.to_owned(),
        met,
        why: "infeasible, since fifo itself violates it in 100.0 %".to_owned(),
    };
    let bars = [
        bar("asl max", "at least 1.00 of fifo", "25.0 [1.61 .. 48.4]", Some(true)),
        bar("SLO 720 µs", "at most 1.5 % violations", "100.00 %", None),
        bar("SLO 1.4 ms", "at most 1.5 % violations", "1.52 %", Some(false)),
    ];
    let table = verdicts(&bars, false);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert_eq!(table.lines().count(), 1 + bars.len(), "no cell is broken: {table}");
    let ends: Vec<_> = table.lines().map(|line| line.split(' ').next_back().unwrap()).collect();
    assert_eq!(ends, ["measured", "met", "-", "missed"]);
    assert!(!verdicts(&bars, true).contains("missed"), "a quick run judges nothing");
}
