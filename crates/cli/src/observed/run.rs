//! Profiles: a program from its start to its end, or a process for a while.

use super::advice::{Target, advise};
use super::course::{Course, TICK};
use super::live::Live;
use super::outcome::{Outcome, outcome};
use super::reader;
use super::snapshot::Snapshot;
use crate::cmd::run::{LOCK, inherited_lock, refuse, under};
use crate::hints::{Failure, cause};
use crate::order::outcome as order;
use crate::output::say;
use crate::process::Process;
use crate::{elf, find, launch, library, machine};
use indicatif::ProgressBar;
use lockwright_bench::interrupted;
use lockwright_observe::control::Level;
use lockwright_observe::layout::ENDING;
use lockwright_symbols::Symboliser;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The variable with the level.
const OBSERVE: &str = "LOCKWRIGHT_OBSERVE";
/// The one that names the folder.
const FOLDER: &str = "LOCKWRIGHT_OBSERVE_DIR";
/// The one that names the folder for the order of locks.
const ORDER: &str = "LOCKWRIGHT_ORDER";
/// How often we look whether the time is up.
const LOOK: Duration = Duration::from_millis(20);
/// For how long a process counts at our level if we are killed.
const LEASE: Duration = Duration::from_secs(4);

/// A program that has run.
pub(crate) struct Ran {
    /// What its processes' locks did, the process that waited most first.
    pub(crate) outcomes: Vec<Outcome>,
    /// In which order they took their locks, if somebody asked.
    pub(crate) orders: Option<Vec<order::Outcome>>,
    pub(crate) status: ExitStatus,
}

/// Runs a program to its end; `in_order`: and notes in which order its threads take locks.
pub(crate) fn program(
    words: &[OsString],
    lock: Option<&str>,
    level: Level,
    in_order: bool,
    file: Option<&Path>,
) -> Result<Ran, Failure> {
    let inherited = inherited_lock(lock)?;
    let (name, arguments) = words.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    refuse(&elf::inspect(&path)?)?;
    let library = library::find(file)?;
    let folder = launch::folder("observe", "profile")?;
    let mut command = Command::new(&path);
    command
        .arg0(name)
        .args(arguments)
        .envs(under(&library))
        .env(OBSERVE, level.name())
        .env(FOLDER, folder.path());
    if let Some(lock) = lock.map(str::to_owned).or(inherited) {
        command.env(LOCK, machine::tuned(&lock));
    }
    if in_order {
        command.env(ORDER, folder.path());
    }
    let (begun, before) = (Instant::now(), children_cpu_ns());
    let mut course = Course::begin();
    let look = || course.look_into(folder.path());
    let status = launch::to_end_and(&mut command, &path, Some(TICK), look)?;
    let cpu_ns = children_cpu_ns().saturating_sub(before);
    let elapsed_ns = begun.elapsed().as_nanos() as u64;
    let mut outcomes = Vec::new();
    for segment in segments(folder.path())? {
        let mut symbols = Symboliser::new(segment.space());
        let own = segment.last_ns.saturating_sub(segment.start_ns);
        outcomes.push(outcome(&segment, &mut symbols, elapsed_ns.max(own), 0));
    }
    let wait = |outcome: &Outcome| outcome.locks.iter().map(|lock| lock.wait_ns).sum::<u64>();
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(wait(outcome)));
    let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
    let target =
        shlex::try_join(shown.iter().map(AsRef::as_ref)).unwrap_or_else(|_| shown.join(" "));
    advise(&mut outcomes, cpu_ns, &Target::Program(target));
    course.tell(&mut outcomes);
    let orders = if in_order { Some(order::all(folder.path())?) } else { None };
    drop(folder); // now: a signal may end us afterwards
    Ok(Ran { outcomes, orders, status })
}

/// What our children and theirs have computed so far, of those that have ended, ns.
fn children_cpu_ns() -> u64 {
    // SAFETY: all-zero bytes are a value of it; a writable one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// What a process has computed so far, ns; 0: it is gone.
fn cpu_ns(pid: libc::pid_t) -> u64 {
    let (mut clock, mut now) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: a writable clock id, and a writable timespec.
    let is_there = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut now) == 0
    };
    if is_there { now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 } else { 0 }
}

/// All segments in a folder.
fn segments(folder: &Path) -> Result<Vec<Snapshot>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| {
        Failure::new(format!("cannot read '{}': {}", folder.display(), cause(&error)))
    })?;
    let mut all = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_one = path.to_str().is_some_and(|path| path.ends_with(ENDING));
        if let (true, Ok(file)) = (is_one, File::open(&path)) {
            match reader::read(&file, &path) {
                Ok(snapshot) => all.push(snapshot),
                Err(failure) => say(&format!("{failure}\n")), // killed while it made the file
            }
        }
    }
    Ok(all)
}

/// A copy of a segment; its process may have ended.
pub(crate) fn copy(path: &Path) -> Result<Outcome, Failure> {
    let file = File::open(path).map_err(|error| {
        Failure::new(format!("cannot read '{}': {}", path.display(), cause(&error)))
            .hint("lockwright ctl PID dump FILE writes one")
    })?;
    let segment = reader::read(&file, path)?;
    let mut symbols = Symboliser::new(segment.space());
    let elapsed_ns = segment.last_ns.saturating_sub(segment.start_ns);
    Ok(outcome(&segment, &mut symbols, elapsed_ns, 0))
}

/// Watches a process for a while. Afterwards its level is what it was before, even if we are killed.
pub(crate) fn process(
    pid: libc::pid_t,
    level: Level,
    limit: Duration,
    bar: &ProgressBar,
) -> Result<Outcome, Failure> {
    let (live, before) = {
        let process = Process::open(pid)?;
        let live = Live::find(&process)?;
        live.ask(&process, level, LEASE)?;
        (live, live.snapshot(&process)?)
    };
    let mut symbols = Symboliser::of_process(live.pid).map_err(|error| {
        Failure::new(format!("cannot look into process {pid}: {}", cause(&error)))
    })?;
    lockwright_bench::catch_interrupts();
    let begun = Instant::now();
    let (mut threads, mut last, mut renewed) = (0, None, begun);
    let computed = cpu_ns(live.pid);
    let mut computes = computed;
    let mut course = Course::begin();
    while begun.elapsed() < limit && !interrupted() {
        std::thread::sleep(LOOK.min(limit.saturating_sub(begun.elapsed())));
        bar.set_position(begun.elapsed().as_millis() as u64);
        computes = computes.max(cpu_ns(live.pid));
        threads = lockwright_symbols::threads(live.pid).map_or(threads, |all| all.len());
        // It may end at any moment: its files go with it, its segment doesn't.
        if last.is_none() {
            last = Process::open(pid).ok().and_then(|process| live.file(&process).ok().flatten());
        }
        if let Some((file, path)) = &last {
            course.look_at(file, path);
        }
        if renewed.elapsed() > LEASE / 4 {
            renewed = Instant::now();
            let _ = Process::open(pid).and_then(|process| live.ask(&process, level, LEASE)); // it may have ended
        }
        if fs::metadata(format!("/proc/{pid}")).is_err() {
            break;
        }
    }
    let elapsed_ns = begun.elapsed().as_nanos() as u64;
    symbols.refresh();
    if let Ok(process) = Process::open(pid) {
        live.leave(&process, level)?;
        last = last.or(live.file(&process)?);
    }
    let now = match &last {
        Some((file, path)) => reader::read(file, path)?,
        None => {
            return Err(Failure::new(format!("in process {pid} no thread had to wait for a lock"))
                .hint(format!("lockwright profile -p {pid} --time 60s")));
        }
    };
    let seen = match &before {
        Some(before) => now.since(before),
        None => now,
    };
    let mut outcomes = [outcome(&seen, &mut symbols, elapsed_ns, threads)];
    advise(&mut outcomes, computes - computed, &Target::Process(pid));
    course.tell(&mut outcomes);
    let [outcome] = outcomes;
    Ok(outcome)
}
