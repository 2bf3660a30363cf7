//! One run: the program to its end, or a server while a load runs; and the figures of it.

use super::Setting;
use super::figure::{Figure, Pattern};
use super::futexes::Futexes;
use super::server::{PATIENCE, Server, shell};
use crate::epochs::{self, Record, percentile, tail};
use crate::hints::{Failure, cause};
use crate::launch;
use crate::mailbox::Remote;
use crate::process::Process;
use crate::signals::Watch;
use crate::supervise::{End, Ended, Running, how, is_interrupt};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};

/// What is run.
pub(crate) struct What<'a> {
    /// The program under a setting.
    pub(crate) command: &'a dyn Fn(&Setting) -> Command,
    /// Its name, for messages.
    pub(crate) program: &'a str,
    pub(crate) server: Option<&'a Server>,
    /// The figures in its output, or in its load's.
    pub(crate) patterns: &'a [Pattern],
    /// A run ends after this time.
    pub(crate) limit: Option<Duration>,
    pub(crate) futexes: &'a Futexes,
}

/// The figures of a run. The first one decides.
pub(crate) type Figures = Vec<(Figure, f64)>;

/// Output of a run that is looked at: its end.
const OUTPUT: u64 = 16 << 20;

/// Who runs it: what takes the terminal's signals, and what shows that it goes on.
pub(crate) struct Desk<'a> {
    pub(crate) watch: &'a Watch,
    pub(crate) bar: &'a ProgressBar,
}

/// A run; `None`: interrupted. `check`: ask the library which lock it serves.
pub(crate) fn once(
    what: &What<'_>,
    setting: &Setting,
    check: bool,
    desk: &Desk<'_>,
) -> Result<Option<Figures>, Failure> {
    let run =
        Run { what, setting, folder: launch::folder("stats", "compare")?, output: temporary()? };
    let mut command = (what.command)(setting);
    if setting.lock.is_some() {
        command.env(epochs::VARIABLE, run.folder.path());
    }
    let program = run.start(&mut command, run.output.as_file(), desk)?;
    let futexes = what.futexes.of(program.id());
    if check && let Some(lock) = &setting.lock {
        run.check(lock, &program)?;
    }
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
    let futexes = futexes.and_then(|mut counter| counter.read().ok());
    run.figures(&program, load, futexes).map(Some)
}

/// A run that is going on.
struct Run<'a> {
    what: &'a What<'a>,
    setting: &'a Setting,
    /// For its epochs.
    folder: TempDir,
    /// Of the program.
    output: NamedTempFile,
}

/// A load that has ended: how long it took, and what it wrote.
struct Loaded {
    ended: Ended,
    output: String,
}

impl Run<'_> {
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
        let ended = program.finish(self.what.limit, desk.watch, desk.bar);
        let ended = ended.map_err(|error| self.lost(&error))?;
        match ended.end {
            End::Itself(status) if !status.success() => Err(self.failed(&how(status))),
            _ => Ok(ended),
        }
    }

    /// The server's end, and its load's; `None`: interrupted.
    fn under_load(
        &self,
        program: Running,
        server: &Server,
        desk: &Desk<'_>,
    ) -> Result<Option<(Ended, Loaded)>, Failure> {
        let stop = |program: Running| program.stop(desk.watch, desk.bar);
        let began = Instant::now();
        while !server.ready.is_now() {
            let event = desk.watch.next(Some(Duration::from_millis(20)));
            desk.bar.tick();
            let is_over = program.has_ended();
            if is_over || is_interrupt(event) || began.elapsed() > PATIENCE {
                let ended = stop(program).map_err(|error| self.lost(&error))?;
                return match ended.end {
                    _ if is_interrupt(event) => Ok(None),
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
        let alive = || !program.has_ended();
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
                let (how, load) = (how(*status), &server.load);
                let last = last_line(&end_of(output.path()));
                return Err(Failure::new(format!(
                    "the load failed ({how}) with {}{last}",
                    self.setting.name
                ))
                .hint(format!("start the server, and try it: {load}")));
            }
            _ => {}
        }
        let output = end_of(output.path());
        Ok(Some((program, Loaded { ended: load, output })))
    }

    /// Does the library serve the lock that we asked for? Else glibc's would be measured under its name.
    fn check(&self, lock: &str, program: &Running) -> Result<(), Failure> {
        const TRIES: u32 = 200;
        let asked = || -> Result<String, Failure> {
            let process = Process::open(program.id())?;
            Remote::find(&process)?.table()
        };
        for left in (0..TRIES).rev() {
            let answer = asked();
            if program.has_ended() {
                return Ok(()); // too soon to tell
            }
            match answer {
                Ok(table) if table.split('\n').next() == Some(lock) => return Ok(()),
                Ok(table) => {
                    let other = table.split('\n').next().unwrap_or_default().to_owned();
                    return Err(Failure::new(format!(
                        "'{}' runs under '{other}', not under '{lock}'",
                        self.what.program
                    ))
                    .hint("does it set LOCKWRIGHT_LOCK itself?"));
                }
                Err(failure) if left == 0 => {
                    return Err(failure.within(&format!("with {}: ", self.setting.name)));
                }
                Err(_) => sleep(Duration::from_millis(5)),
            }
        }
        Ok(())
    }

    fn figures(
        &self,
        program: &Ended,
        load: Option<Loaded>,
        futexes: Option<u64>,
    ) -> Result<Figures, Failure> {
        let mut figures = Vec::new();
        let output = load.as_ref().map_or_else(|| end_of(self.output.path()), |l| l.output.clone());
        for pattern in self.what.patterns {
            let value = pattern.find(&output).ok_or_else(|| {
                let who = if load.is_some() { "the load" } else { "the program" };
                let kept = self.keep();
                Failure::new(format!(
                    "{who} wrote nothing that '{}' finds, with {}",
                    pattern.text(),
                    self.setting.name
                ))
                .hint(format!("what the program wrote is in '{kept}'"))
            })?;
            figures.push((pattern.figure.clone(), value));
        }
        let whole = load.as_ref().map_or(program, |load| &load.ended);
        // A run that we ended was as long as we wanted.
        if !matches!(whole.end, End::TimeUp) {
            figures.push((Figure::time("time"), nanoseconds(whole.wall)));
        }
        let whose = if load.is_some() { "server's " } else { "" };
        figures.push((Figure::time(format!("{whose}CPU time")), nanoseconds(program.used.cpu)));
        let switches = program.used.switches as f64;
        figures.push((Figure::count(format!("{whose}context switches")), switches));
        if let Some(calls) = futexes {
            figures.push((Figure::count(format!("{whose}futex calls")), calls as f64));
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
        Ok(figures)
    }

    /// It ended badly.
    fn failed(&self, how: &str) -> Failure {
        let last = last_line(&end_of(self.output.path()));
        let (program, setting) = (self.what.program, &self.setting.name);
        Failure::new(format!("'{program}' failed ({how}) with {setting}{last}"))
            .hint(format!("what it wrote is in '{}'", self.keep()))
    }

    /// Its output, which stays.
    fn keep(&self) -> String {
        let Ok(mut file) = NamedTempFile::with_prefix("lockwright-compare-") else {
            return "(no room for it)".to_owned();
        };
        let copied =
            File::open(self.output.path()).and_then(|mut from| io::copy(&mut from, &mut file));
        match (copied, file.keep()) {
            (Ok(_), Ok((_, path))) => path.display().to_string(),
            _ => "(no room for it)".to_owned(),
        }
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::new(format!("cannot wait for '{}': {}", self.what.program, cause(error)))
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// For what a program writes.
fn temporary() -> Result<NamedTempFile, Failure> {
    NamedTempFile::new().map_err(|error| {
        Failure::new(format!("cannot make a temporary file: {}", cause(&error)))
            .hint("TMPDIR=/var/tmp lockwright compare -- PROGRAM")
    })
}

/// What was written, or the end of it.
fn end_of(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let all = file.metadata()?.len();
        file.seek(SeekFrom::Start(all.saturating_sub(OUTPUT)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn last_line(output: &str) -> String {
    let last = output.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or(String::new(), |line| format!(": {line}"))
}
