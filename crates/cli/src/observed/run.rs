//! Profiles a program from start to end, or a process for a while.

use super::advice::{Circumstances, advise, wake_up_ns};
use super::counted::{count_into, counted, unread};
use super::target::Target;
use super::waited::Waited;
use crate::cmd::run::{LOCK, inherited_lock, refuse, under};
use crate::hints::Failure;
use crate::machine::MachineFile;
use crate::output::say;
use crate::signals::Watch;
use crate::{launch, leftovers, library, machine};
use indicatif::ProgressBar;
use lockwright_bench::{children_time, interrupted};
use lockwright_contract::counters::control::Level;
use lockwright_contract::counters::layout::CountersHeader;
use lockwright_contract::header::Layout;
use lockwright_observer::counts::counter::Event;
use lockwright_observer::counts::course::Course;
use lockwright_observer::counts::events::Events;
use lockwright_observer::counts::lifetimes::Lifetimes;
use lockwright_observer::counts::live::Live;
use lockwright_observer::counts::misses::{Misses, Recorded};
use lockwright_observer::counts::observation::Observed;
use lockwright_observer::counts::period::{LOOK, Period};
use lockwright_observer::counts::python::Samplers;
use lockwright_observer::counts::sum::groups;
use lockwright_observer::order::outcome as order;
use lockwright_observer::process::Process;
use lockwright_observer::sampler::family::{Family, Looked};
use lockwright_observer::{elf, find};
use lockwright_stats::trace::Trace;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable that names the folder for the order of locks.
const ORDER: &str = "LOCKWRIGHT_ORDER";
/// The variable that names the folder for the record of all sections.
const TRACE: &str = "LOCKWRIGHT_TRACE";

/// The results of a program's run.
pub(crate) struct Ran {
    /// What its processes' locks did, the process that waited most first.
    pub(crate) outcomes: Vec<Observed>,
    /// The same, with processes of one program together.
    pub(crate) sums: Vec<Observed>,
    /// How much was looked at, for what isn't counted.
    pub(crate) looked: Looked,
    /// The orders in which they took their locks, if requested.
    pub(crate) orders: Option<Vec<order::Orders>>,
    /// Their critical sections, if requested.
    pub(crate) sections: Option<Recorded>,
    /// Who waited when they were last looked at.
    pub(crate) waited: Waited,
    pub(crate) status: ExitStatus,
}

/// What to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WhatToCount {
    pub(crate) level: Level,
    /// Record the order in which threads take locks.
    pub(crate) in_order: bool,
    /// Record every critical section.
    pub(crate) sections: bool,
    /// Count this event in the functions that hold locks.
    pub(crate) event: Option<Event>,
}

/// Runs a program to its end. `prepare` may change how.
pub(crate) fn program(
    words: &[OsString],
    lock: Option<&str>,
    counts: WhatToCount,
    file: Option<&Path>,
    prepare: impl FnOnce(&mut Command, &elf::Program, &Path) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let inherited = inherited_lock(lock)?;
    let (name, arguments) = words.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    let program = elf::inspect(&path)?;
    refuse(&program)?;
    let library = library::find(file)?;
    let folder = launch::folder("observe", "profile")?;
    launch::share(&folder);
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments).envs(under(&library));
    count_into(&mut command, counts.level, folder.path());
    if let Some(lock) = lock.map(str::to_owned).or(inherited) {
        command.env(LOCK, machine::tuned(&lock));
    }
    if counts.in_order {
        command.env(ORDER, folder.path());
    }
    if counts.sections {
        command.env(TRACE, folder.path());
    }
    prepare(&mut command, &program, &library)?;
    let (begun, before) = (Instant::now(), children_time());
    let (mut course, mut samplers) = (Course::begin(), Samplers::default());
    let mut lifetimes = Lifetimes::begin();
    let mut events = counts.event.map(Events::begin);
    let mut misses =
        counts.sections.then(|| Misses::begin(counts.event.unwrap_or(Event::CacheMisses)));
    // Before there is another thread, which a signal could end, and this command with it.
    let watch = Watch::for_program();
    let family = Family::start(None);
    let mut waited = Waited::default();
    let look = || {
        course.look_into(folder.path());
        waited.look(&course.processes());
        samplers.look_into(folder.path());
        lifetimes.look(course.processes());
        if let Some(misses) = &mut misses {
            misses.look_into(folder.path());
        }
        if let Some(events) = &mut events {
            events.look(course.processes());
        }
    };
    let status = launch::to_end_and(&watch, &mut command, &path, Some(LOOK), look)?;
    lifetimes.end();
    let cpu_ns = children_time().saturating_sub(before).as_nanos() as u64;
    let elapsed_ns = begun.elapsed().as_nanos() as u64;
    let mut outcomes = counted(folder.path(), elapsed_ns, Some(&lifetimes), events.as_mut())?;
    samplers.tell(&mut outcomes);
    let looked = family.tell(&mut outcomes, elapsed_ns);
    let wait = |outcome: &Observed| outcome.locks.iter().map(|lock| lock.wait_ns).sum::<u64>();
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(wait(outcome)));
    let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>();
    let target =
        shlex::try_join(shown.iter().map(AsRef::as_ref)).unwrap_or_else(|_| shown.join(" "));
    let here = MachineFile::here().and_then(|machine| machine.delegation);
    let known = Circumstances {
        cpu_ns,
        wake_up_ns: wake_up_ns(),
        lifetimes: &lifetimes,
        here: here.as_ref(),
        target: &Target::Program(target),
    };
    advise(&mut outcomes, known);
    course.tell(&mut outcomes);
    let mut sums: Vec<Observed> = Vec::new();
    for group in groups(&outcomes) {
        let mut sum = [group.sum];
        if !sum[0].processes.is_empty() {
            advise(&mut sum, known);
        }
        sums.extend(sum);
    }
    let orders = if counts.in_order { Some(order::all(folder.path(), unread)?) } else { None };
    let sections = misses.map(|misses| recorded(folder.path(), misses)).transpose()?;
    leave(folder);
    Ok(Ran { outcomes, sums, looked, orders, sections, waited, status })
}

/// All critical sections that were recorded in a folder.
fn recorded(folder: &Path, misses: Misses) -> Result<Recorded, Failure> {
    let (trace, holds) = Trace::collect_with_holds(folder).map_err(|error| {
        Failure::new(format!("cannot read the record of critical sections: {error}"))
    })?;
    Ok(Recorded { trace, holds, misses })
}

/// Processes that still run need the folder, but should stop counting. If there are none, the folder is removed.
fn leave(folder: TempDir) {
    if leftovers::running(folder.path()) == 0 {
        return; // removes it now, because a signal may end this command afterwards
    }
    let names = fs::read_dir(folder.path()).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(|name| name.ends_with(CountersHeader::ENDING)) {
        let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
        let Some(process) = pid.and_then(|pid| Process::open(pid).ok()) else { continue };
        let off = Live::find(&process).and_then(|live| live.begin(&process, Level::Off));
        let now = if off.is_ok() { " without counting" } else { "" };
        say(&format!(
            "process {0} ({1}) still runs{now}: lockwright profile -p {0}\n",
            process.pid,
            process.name()
        ));
    }
    let _ = folder.keep(); // a later command removes it when they have ended
}

/// Observes a process for a while. Afterwards its level is the same as before, even if this command is killed.
pub(crate) fn process(
    pid: libc::pid_t,
    level: Level,
    limit: Duration,
    event: Option<Event>,
    bar: &ProgressBar,
) -> Result<Observed, Failure> {
    lockwright_bench::catch_interrupts();
    let goes_on = |elapsed: Duration| {
        bar.set_position(elapsed.as_millis() as u64);
        !interrupted()
    };
    let family = Family::start(Some(pid));
    let period = Period::of(pid, level, limit, event, goes_on)?;
    if !period.is_counted {
        let mut outcomes = vec![period.observed];
        let elapsed_ns = outcomes[0].elapsed_ns;
        family.tell(&mut outcomes, elapsed_ns);
        return Ok(outcomes.swap_remove(0));
    }
    let here = MachineFile::here().and_then(|machine| machine.delegation);
    let known = Circumstances {
        cpu_ns: period.cpu_ns,
        wake_up_ns: wake_up_ns(),
        lifetimes: &period.lifetimes,
        here: here.as_ref(),
        target: &Target::Process(pid),
    };
    let mut outcomes = vec![period.observed];
    let elapsed_ns = outcomes[0].elapsed_ns;
    family.tell(&mut outcomes, elapsed_ns);
    advise(&mut outcomes, known);
    Ok(outcomes.swap_remove(0))
}
