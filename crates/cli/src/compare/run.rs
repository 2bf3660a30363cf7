//! One run and its figures: either the program runs to its end, or a server runs while it is under load.

use super::Setting;
use super::desk::Desk;
use super::figure::{Figure, Pattern};
use super::futexes::Futexes;
use super::server::{PATIENCE, Server, shell};
use super::watch::{Hang, WatchedRun};
use crate::epochs::{self, Record, percentile, tail};
use crate::hints::{Failure, cause, warn};
use crate::launch;
use crate::signals::end_strays;
use crate::supervise::{End, Ended, Running, how, is_interrupt};
use lockwright_observer::mailbox::Remote;
use lockwright_observer::process::{Process, mappings};
use serde::Serialize;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};

/// What to run.
pub(crate) struct Trial<'a> {
    /// The program under a setting.
    pub(crate) command: &'a dyn Fn(&Setting) -> Command,
    /// Its name, for messages.
    pub(crate) program: &'a str,
    pub(crate) server: Option<&'a Server>,
    /// The figures to find in its output, or in the output of its load.
    pub(crate) patterns: &'a [Pattern],
    /// A run ends after this time.
    pub(crate) limit: Option<Duration>,
    pub(crate) futexes: &'a Futexes,
    /// Measure epochs in each run? (The first runs always do.)
    pub(crate) with_epochs: bool,
    /// Count and sample in the first runs? Only if their figures don't count.
    pub(crate) watches: bool,
}

/// The figures of a run. The first one decides.
pub(crate) type Figures = Vec<(Figure, f64)>;

/// Only this much of the end of a run's output is searched.
const OUTPUT: u64 = 16 << 20;

/// A run that was completed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) setting: usize,
    /// 1, 2, ...
    pub(crate) round: usize,
    pub(crate) figures: Figures,
    /// What else was found, a line each, if it is the first run of a setting.
    pub(crate) findings: Vec<String>,
}

/// Does one run, and adds what is found to `findings`; `None`: interrupted. In the first run of a setting, also asks the
/// library which lock it serves, counts futex calls, and watches what its locks do.
pub(crate) fn once(
    what: &Trial<'_>,
    setting: &Setting,
    is_first: bool,
    desk: &Desk<'_>,
    findings: &mut Vec<String>,
) -> Result<Option<Figures>, Failure> {
    let run = RunInProgress {
        what,
        setting,
        folder: launch::folder("stats", "compare")?,
        output: temporary()?,
        lock: if is_first { setting.lock.as_deref() } else { None },
        answer: RefCell::new(Answer::default()),
        hang: RefCell::new(Hang::new(is_first)),
    };
    if let Some(server) = what.server {
        server.ready.check_nobody()?;
    }
    let mut command = (what.command)(setting);
    // Without epochs, this file would have no use.
    if setting.lock.is_some() && (what.with_epochs || is_first) {
        command.env(epochs::VARIABLE, run.folder.path());
    }
    let mut watched = (is_first && what.watches)
        .then(|| WatchedRun::prepare(&mut command, setting))
        .transpose()?;
    let program = run.start(&mut command, run.output.as_file(), desk)?;
    if let Some(watched) = &mut watched {
        watched.begin(what.server.map(|_| program.id()));
    }
    let futexes = if is_first { what.futexes.of(program.id()) } else { None };
    let (program, load) = match what.server {
        None => (run.finish(program, desk)?, None),
        Some(server) => match run.under_load(program, server, desk)? {
            Some((program, load)) => (program, Some(load)),
            None => return Ok(None),
        },
    };
    if matches!(program.end, End::Interrupted) {
        return Ok(None);
    }
    if let Some(watched) = watched {
        findings.extend(watched.end()?);
    }
    findings.extend(run.hang.take().head);
    match end_strays() {
        0 => {}
        many => {
            return Err(Failure::new(format!(
                "'{}' left {many} process{} behind, now ended",
                what.program,
                if many == 1 { "" } else { "es" }
            ))
            .hint("keep it in the foreground: many servers have a flag for that"));
        }
    }
    run.judge()?;
    if is_first && program.killed {
        desk.bar.suspend(|| {
            warn(
                format!("'{}' did not end on SIGTERM: killed", what.program),
                "its figures still count",
            );
        });
    }
    let futexes = futexes.and_then(|mut counter| counter.read().ok());
    run.figures(&program, load, futexes).map(Some)
}

/// The library's answers to the question which lock it serves.
#[derive(Default)]
struct Answer {
    asked: Option<Instant>,
    /// The last answer: the lock that it serves, or why it serves none.
    last: Option<Result<String, Failure>>,
    /// Number of consecutive answers, some time apart, that there is no library.
    without: u32,
}

/// A run in progress.
struct RunInProgress<'a> {
    what: &'a Trial<'a>,
    setting: &'a Setting,
    /// Folder for its epochs.
    folder: TempDir,
    /// The program's output.
    output: NamedTempFile,
    /// The lock that the library should serve, if we ask.
    lock: Option<&'a str>,
    answer: RefCell<Answer>,
    hang: RefCell<Hang>,
}

/// A load that has ended: its duration and its output.
struct Loaded {
    ended: Ended,
    output: NamedTempFile,
}

impl RunInProgress<'_> {
    fn start(
        &self,
        command: &mut Command,
        output: &File,
        desk: &Desk<'_>,
    ) -> Result<Running, Failure> {
        let failed = |error: io::Error| {
            Failure::not_executable(format!(
                "cannot run '{}': {}",
                self.what.program,
                cause(&error)
            ))
        };
        let (out, err) = (output.try_clone().map_err(failed)?, output.try_clone().map_err(failed)?);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        Running::start(command, desk.watch).map_err(failed)
    }

    fn finish(&self, program: Running, desk: &Desk<'_>) -> Result<Ended, Failure> {
        // Asks a short program at once, and a longer one repeatedly.
        let began = Instant::now();
        while self.lock.is_some() && began.elapsed() < Duration::from_millis(50) {
            self.ask(program.id(), Duration::ZERO);
            if self.answer.borrow().last.as_ref().is_some_and(Result::is_ok) || program.has_ended()
            {
                break;
            }
            sleep(Duration::from_millis(2));
        }
        let id = program.id();
        let go_on = || {
            self.ask(id, Duration::from_millis(100));
            self.hang.borrow_mut().look(id, desk);
            true
        };
        let ended = program.finish_while(go_on, self.what.limit, desk.watch, desk.bar);
        let ended = ended.map_err(|error| self.lost(&error))?;
        match ended.end {
            End::Itself(status) if !status.success() => Err(self.failed(&how(status))),
            _ => Ok(ended),
        }
    }

    /// Asks the library in a process which lock it serves, unless we asked less than `pause` ago.
    fn ask(&self, id: libc::pid_t, pause: Duration) {
        let mut answer = self.answer.borrow_mut();
        if self.lock.is_none() || answer.asked.is_some_and(|asked| asked.elapsed() < pause) {
            return;
        }
        let asked = || -> Result<String, Failure> {
            let process = Process::open(id)?;
            let table = Remote::find(&process)?.table()?;
            Ok(table.default)
        };
        let said = asked();
        answer.asked = Some(Instant::now());
        // A process that is ending can no longer answer.
        if mappings(id).is_ok_and(|all| !all.is_empty()) {
            match &said {
                Ok(_) => answer.without = 0,
                Err(_) => answer.without += u32::from(!pause.is_zero()),
            }
            answer.last = Some(said);
        }
    }

    /// Did the library serve the lock that we asked for? If not, we would report glibc's figures under its name.
    fn judge(&self) -> Result<(), Failure> {
        /// After fewer answers, the library may just not be loaded *yet*: the program, or this command, may have waited
        /// for a CPU.
        const MANY: u32 = 5;
        let Some(lock) = self.lock else { return Ok(()) };
        let Answer { last, without, .. } = self.answer.take();
        match last {
            Some(Ok(served)) if served == lock => Ok(()),
            Some(Ok(served)) => Err(Failure::new(format!(
                "'{}' runs under '{served}', not under '{lock}'",
                self.what.program
            ))
            .hint("does it set LOCKWRIGHT_LOCK itself?")),
            Some(Err(failure)) if without >= MANY => {
                Err(failure.within(&format!("with {}: ", self.setting.name)))
            }
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// How the server and its load ended; `None`: interrupted.
    fn under_load(
        &self,
        program: Running,
        server: &Server,
        desk: &Desk<'_>,
    ) -> Result<Option<(Ended, Loaded)>, Failure> {
        let stop = |program: Running| program.stop(desk.watch, desk.bar);
        let began = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(began.elapsed());
            let mut interrupted = false;
            match server.ready.is_now(left, desk) {
                Some(true) if !program.has_ended() => break,
                Some(_) => {
                    // Children that end wake us, but we want to wait for the full time.
                    let pause = Instant::now() + Duration::from_millis(20);
                    while let Some(left) = pause.checked_duration_since(Instant::now()) {
                        interrupted |= is_interrupt(desk.watch.next(Some(left)));
                    }
                    desk.bar.tick();
                }
                None => interrupted = true,
            }
            let is_over = program.has_ended();
            if is_over || interrupted || left.is_zero() {
                let ended = stop(program).map_err(|error| self.lost(&error))?;
                return match ended.end {
                    _ if interrupted => Ok(None),
                    End::Itself(status) if is_over => {
                        Err(self.failed(&format!("{}, before its load began", how(status))))
                    }
                    _ => Err(self.failed(&format!(
                        "not ready after {} s: {}",
                        PATIENCE.as_secs(),
                        server.ready.words()
                    ))),
                };
            }
        }
        let output = temporary()?;
        let load = self.start(&mut shell(&server.load), output.as_file(), desk)?;
        let alive = || {
            self.ask(program.id(), Duration::from_millis(100));
            self.hang.borrow_mut().look(program.id(), desk);
            !program.has_ended()
        };
        let load = load.finish_while(alive, self.what.limit, desk.watch, desk.bar);
        let load = load.map_err(|error| self.lost(&error))?;
        let gone = program.has_ended();
        let program = stop(program).map_err(|error| self.lost(&error))?;
        match (&load.end, &program.end) {
            (End::Interrupted, _) => return Ok(None),
            (_, End::Itself(status)) if gone => {
                return Err(self.failed(&format!("{}, under its load", how(*status))));
            }
            (End::Itself(status), _) if !status.success() => {
                let (how, setting) = (how(*status), &self.setting.name);
                let last = last_line(&end_of(output.path()));
                return Err(Failure::new(format!("the load failed ({how}) with {setting}{last}"))
                    .hint(format!("its output is in '{}'", keep(output.path()))));
            }
            _ => {}
        }
        Ok(Some((program, Loaded { ended: load, output })))
    }

    fn figures(
        &self,
        program: &Ended,
        load: Option<Loaded>,
        futexes: Option<u64>,
    ) -> Result<Figures, Failure> {
        let mut figures = Vec::new();
        let (who, wrote) = match &load {
            Some(load) => ("the load", load.output.path()),
            None => ("the program", self.output.path()),
        };
        let output = end_of(wrote);
        for pattern in self.what.patterns {
            let (text, name) = (pattern.text(), &self.setting.name);
            let wrong =
                |why: String| Failure::new(why).hint(format!("its output is in '{}'", keep(wrote)));
            match pattern.find(&output) {
                Ok(Some(value)) => figures.push((pattern.figure.clone(), value)),
                Ok(None) => {
                    return Err(wrong(format!(
                        "{who} wrote nothing that matches '{text}', with {name}"
                    )));
                }
                Err(found) => {
                    let figure = &pattern.figure.name;
                    return Err(wrong(format!(
                        "{who} wrote '{found}' for {figure} with {name}: not a number above 0, so it has no ratio"
                    )));
                }
            }
        }
        let whole = load.as_ref().map_or(program, |load| &load.ended);
        // The length of a run that we ended was our choice, so it isn't a figure.
        if !matches!(whole.end, End::TimeUp) {
            figures.push((Figure::time("time"), nanoseconds(whole.wall)));
        }
        let record = Record::read(self.folder.path())?;
        for (name, epoch) in record.epochs() {
            let all = epoch.all();
            let rate = all.count as f64 / record.seconds;
            if rate.is_finite() {
                figures.push((Figure::rate(format!("epoch '{name}', a second")), rate));
            }
            let figure = Figure::time(format!("epoch '{name}', {}", percentile(epoch)));
            figures.push((figure, tail(epoch, &all) as f64));
        }
        let whose = if load.is_some() { "server's " } else { "" };
        let cost = |figure: Figure, value: f64| (figure.into_cost(), value);
        let used = &program.used;
        figures.push(cost(Figure::time(format!("{whose}CPU time")), nanoseconds(used.cpu)));
        let switches = Figure::count(format!("{whose}context switches"));
        figures.push(cost(switches, used.switches as f64));
        if let Some(calls) = futexes {
            let figure = Figure::count(format!("{whose}futex calls, warming up"));
            figures.push(cost(figure, calls as f64));
        }
        Ok(figures)
    }

    /// The error for a run that failed.
    fn failed(&self, how: &str) -> Failure {
        let last = last_line(&end_of(self.output.path()));
        let (program, setting) = (self.what.program, &self.setting.name);
        Failure::new(format!("'{program}' failed ({how}) with {setting}{last}"))
            .hint(format!("its output is in '{}'", keep(self.output.path())))
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::new(format!("cannot wait for '{}': {}", self.what.program, cause(error)))
    }
}

/// Keeps a copy of the output, and returns its path.
fn keep(wrote: &Path) -> String {
    let copied = || -> io::Result<String> {
        let mut file = NamedTempFile::with_prefix("lockwright-compare-")?;
        io::copy(&mut File::open(wrote)?, &mut file)?;
        Ok(file.keep()?.1.display().to_string())
    };
    copied().unwrap_or_else(|_| "(no room for it)".to_owned())
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// A file for a program's output.
fn temporary() -> Result<NamedTempFile, Failure> {
    NamedTempFile::new().map_err(|error| {
        Failure::new(format!("cannot make a temporary file: {}", cause(&error)))
            .hint("TMPDIR=/var/tmp lockwright compare -- PROGRAM")
    })
}

/// The output, or the end of it.
fn end_of(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let all = file.metadata()?.len();
        file.seek(SeekFrom::Start(all.saturating_sub(OUTPUT)))?;
        let mut bytes = Vec::new();
        file.take(OUTPUT).read_to_end(&mut bytes)?; // a program may still write to it
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn last_line(output: &str) -> String {
    /// Only this much of the last line is shown.
    const MOST: usize = 200;
    let last = output.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty());
    last.map_or(String::new(), |line| format!(": {}", line.chars().take(MOST).collect::<String>()))
}
