//! `lockwright switch`.

use crate::elf::{self, ObjectFile};
use crate::hints::Failure;
use crate::output;
use crate::process::{Mapping, Process, mappings};
use crate::{catalog, machine, rules};
use lockwright_record::mailbox::{
    DONE, EMPTY, MAGIC, Mailbox, POST, POSTED, REFUSED, STATE, SYMBOL, TAKEN, TEXT,
};
use std::ffi::OsStr;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Show which locks a running process has, or give it others
///
/// The process runs under `lockwright run`, or has our library linked in. It takes the new locks when one of its
/// threads next has to wait for a mutex; until then, locks make no difference. We watch for two seconds whether it
/// does. Threads that already wait go on as before. Readers-writer locks and condition variables have no lock to
/// choose.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright switch 4242                         which locks it has
  lockwright switch 4242 fifo                    another default, the same rules
  lockwright switch 4242 --config locks.toml     other rules, as with `run`
  lockwright switch $(pidof server) auto:spin=5000")]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID")]
    pid: libc::pid_t,
    /// Lock of the mutexes that no rule names, NAME[:key=value,...]; see `lockwright list`
    #[arg(value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    /// Choose locks by library, mutex or caller, instead of the present rules; an empty file drops them all. A file
    /// without `default` keeps the default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How long we watch for a thread that waits for a lock.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn main(mut args: Args) -> Result<ExitCode, Failure> {
    if let Some(lock) = &mut args.lock {
        catalog::check(lock)?;
        *lock = machine::tuned(lock);
    }
    let process = Process::open(args.pid)?;
    let mailbox = Remote::find(&process)?;
    let now = mailbox.table()?;
    let waiting = mailbox.posted()?;
    if args.lock.is_none() && args.config.is_none() {
        output::print(&describe(&process, &now))?;
        if let Some(table) = waiting {
            output::print(&posted(&process, &table))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // If something is posted, and not taken yet, this changes that.
    let base = waiting.unwrap_or(now);
    let (default, rules) = base.split_once('\n').unwrap_or((&base, ""));
    let table = match args.config {
        None => format!("{}\n{rules}", args.lock.as_deref().unwrap_or(default)),
        Some(file) => {
            let config = rules::read(&file, &elf::inspect(&process.program())?)?;
            let lock = args.lock.or(config.default.map(|lock| machine::tuned(&lock)));
            format!("{}\n{}", lock.as_deref().unwrap_or(default), config.rules)
        }
    };
    let warn = || {
        let instead = format!("lockwright switch {} auto", args.pid);
        catalog::warn_of_textbook(specs(&table), &instead);
    };
    match mailbox.post(&table)? {
        Said::Done => {
            warn();
            output::print(&describe(&process, &table))?;
        }
        Said::Refused(why) => {
            return Err(Failure::new(format!("process {} keeps its locks: {why}", args.pid))
                .hint(format!("which it has: lockwright switch {}", args.pid)));
        }
        Said::Nothing => {
            warn();
            output::print(&posted(&process, &table))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The specifications in a table.
fn specs(table: &str) -> impl Iterator<Item = &str> {
    let (default, rules) = table.split_once('\n').unwrap_or((table, ""));
    let of_rules = rules.split(';').filter_map(|rule| Some(rule.split_once('=')?.1));
    [default].into_iter().chain(of_rules)
}

fn describe(process: &Process, table: &str) -> String {
    let (default, rules) = table.split_once('\n').unwrap_or((table, ""));
    let mut text = format!("{} ({}): {default}\n", process.pid, process.name());
    for rule in rules.split(';').filter(|rule| !rule.is_empty()) {
        let (target, lock) = rule.split_once('=').unwrap_or((rule, ""));
        let (what, target) = target.split_once(':').unwrap_or(("", target));
        let what = match what {
            "lib" => "library",
            "call" => "caller",
            what => what,
        };
        text.push_str(&format!("  {what} {target}: {lock}\n"));
    }
    text
}

/// What is not in force yet.
fn posted(process: &Process, table: &str) -> String {
    let (default, _) = table.split_once('\n').unwrap_or((table, ""));
    format!(
        "{} ({}): {default} is posted; in force as soon as a thread has to wait for a mutex\n",
        process.pid,
        process.name()
    )
}

/// What the process said.
enum Said {
    Done,
    Refused(String),
    Nothing,
}

/// A process's mailbox.
struct Remote<'a> {
    process: &'a Process,
    at: u64,
}

impl<'a> Remote<'a> {
    /// That of the preloaded library, or of the program's own runtime.
    fn find(process: &'a Process) -> Result<Self, Failure> {
        let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
        let file = |map: &&Mapping| map.path.is_absolute() && map.offset == 0;
        let is_ours = |map: &&Mapping| {
            map.path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.contains("lockwright"))
        };
        let program = process.program();
        let library = maps.iter().filter(file).filter(is_ours);
        let own = maps.iter().filter(file).filter(|map| map.path == program);
        for map in library.chain(own) {
            // As the process sees the file, which may live in a container.
            let root = PathBuf::from(format!("/proc/{}/root", process.pid));
            let path = root.join(map.path.strip_prefix("/").unwrap_or(&map.path));
            let offset = match symbol(&path) {
                Ok(Some(offset)) => offset,
                Ok(None) => continue,
                Err(_) => {
                    return Err(Failure::new(format!(
                        "process {} runs with '{}', and that file is gone",
                        process.pid,
                        map.path.display()
                    ))
                    .hint("restart it, with the present library"));
                }
            };
            let remote = Self { process, at: map.start + offset };
            if remote.word64(offset_of!(Mailbox, magic))? == MAGIC
                && remote.word(offset_of!(Mailbox, size))? as usize == size_of::<Mailbox>()
            {
                return Ok(remote);
            }
            return Err(Failure::new(format!(
                "process {} runs with another version of lockwright than this command's",
                process.pid
            ))
            .hint("lockwright --version; or restart it"));
        }
        Err(Failure::new(format!(
            "process {} ({}) runs without lockwright",
            process.pid,
            process.name()
        ))
        .hint("start it with `lockwright run -- PROGRAM`; with --stats the program is our child"))
    }

    fn word(&self, offset: usize) -> Result<u32, Failure> {
        let mut bytes = [0; 4];
        self.process.read(self.at + offset as u64, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn word64(&self, offset: usize) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        self.process.read(self.at + offset as u64, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn state(&self) -> Result<u32, Failure> {
        self.word(offset_of!(Mailbox, state))
    }

    fn set(&self, offset: usize, value: u32) -> Result<(), Failure> {
        self.process.write(self.at + offset as u64, &value.to_ne_bytes())
    }

    /// The present table, in words.
    fn table(&self) -> Result<String, Failure> {
        let fail = || {
            Failure::new(format!(
                "process {} has no locks of ours yet, or runs under a tool that needs glibc's",
                self.process.pid
            ))
            .hint("try again when it has started")
        };
        for _ in 0..100 {
            let at = self.word64(offset_of!(Mailbox, now))?;
            let len = self.word(offset_of!(Mailbox, now_len))? as usize;
            if at == 0 || len > TEXT {
                return Err(fail());
            }
            let mut bytes = vec![0; len];
            self.process.read(at, &mut bytes)?;
            // If it changes while we look, it is another table.
            if at == self.word64(offset_of!(Mailbox, now))?
                && len == self.word(offset_of!(Mailbox, now_len))? as usize
            {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Err(fail())
    }

    /// What has been posted, and not taken yet.
    fn posted(&self) -> Result<Option<String>, Failure> {
        let state = self.state()?;
        let mut text = vec![0; (self.word(offset_of!(Mailbox, len))? as usize).min(TEXT)];
        self.process.read(self.at + offset_of!(Mailbox, text) as u64, &mut text)?;
        let is_there = state & STATE == POSTED && state == self.state()?;
        Ok(is_there.then(|| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Posts a table, and waits for a while until it is taken.
    fn post(&self, table: &str) -> Result<Said, Failure> {
        if table.len() > TEXT {
            return Err(Failure::new(format!("more than {TEXT} bytes of rules"))
                .hint("name whole libraries, or functions by their full signature"));
        }
        let end = Instant::now() + PATIENCE;
        let mut before = self.state()?;
        while before & STATE == TAKEN && Instant::now() < end {
            sleep(Duration::from_millis(1));
            before = self.state()?;
        }
        if before & STATE == TAKEN {
            let pid = self.process.pid;
            return Err(Failure::new(format!(
                "process {pid} is stopped while it changes its locks"
            ))
            .hint(format!("kill -CONT {pid}, and try again")));
        }
        let post = before.wrapping_add(POST) & !STATE;
        // Nobody takes what was posted before, while we replace it.
        self.set(offset_of!(Mailbox, state), post | EMPTY)?;
        self.process.write(self.at + offset_of!(Mailbox, text) as u64, table.as_bytes())?;
        self.set(offset_of!(Mailbox, len), table.len() as u32)?;
        self.set(offset_of!(Mailbox, state), post | POSTED)?;
        loop {
            let state = self.state()?;
            if state == post | DONE {
                return Ok(Said::Done);
            } else if state == post | REFUSED {
                let mut why = vec![0; (self.word(offset_of!(Mailbox, len))? as usize).min(256)];
                self.process.read(self.at + offset_of!(Mailbox, text) as u64, &mut why)?;
                return Ok(Said::Refused(String::from_utf8_lossy(&why).into_owned()));
            } else if Instant::now() > end {
                return Ok(Said::Nothing);
            }
            sleep(Duration::from_millis(1));
        }
    }
}

/// Where the mailbox lies, from the file's load base.
fn symbol(path: &Path) -> Result<Option<u64>, Failure> {
    let object = ObjectFile::read(path, String::new())?;
    let mailbox = object.symbols.iter().find(|symbol| symbol.name == SYMBOL);
    Ok(mailbox.map(|symbol| symbol.offset))
}
