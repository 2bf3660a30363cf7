//! `lockwright run`.

use super::topology::{self, EMULATE};
use crate::delegate::Delegating;
use crate::epochs::{self, ClassNames, Record};
use crate::hints::{Failure, warn};
use crate::launch::Launched;
use crate::output::say;
use crate::policy::loading::Compiled;
use crate::policy::slots::Slots;
use crate::policy::started::{self, Start};
use crate::{catalog, epoch, launch, library, machine, pause, preference, rules, signals};
use lockwright_numbers::units;
use lockwright_observer::elf::{self, Program};
use lockwright_observer::find;
use lockwright_observer::multilib;
use lockwright_observer::targets;
use lockwright_observer::whose::Whose;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Run a program with its pthread locks replaced
///
/// The program replaces this command and keeps its process id; signals and exit code are the program's own.
/// With --stats, --delegate or policies it runs as a child of this command, which passes signals on to it and ends
/// with its exit code.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright run -- ./server --port 8080
  lockwright run --lock fifo:spin=5000 -- ./server
  lockwright run --topology big:0-3,little:4-7 -- ./server
  lockwright run --emulate big:0,little:1x3.75 --lock asl -- ./server
  lockwright run --config locks.toml -- ./server
  lockwright run --policy big-first -- ./server
  lockwright run --rwlock patient -- ./server    writers don't starve
  lockwright run --lock asl --stats=epochs.json -- ./server
  lockwright run --epoch 'get=leveldb_get:50us@p99.9' -- ./server
  lockwright run --lock asl --slo 2ms -- ./annotated

A configuration file chooses locks by library, mutex, calling function or kind
(normal, recursive, errorcheck, adaptive); the first match wins:
  default = \"auto\"
  [[lock]]
  library = \"libleveldb.so.1\"
  use = \"fifo\"
  [[lock]]
  mutex = \"g_lock\"      # plus object = \"libfoo.so\" if it is in a library
  use = \"fifo:bypass=100\"
  [[lock]]
  caller = \"leveldb_get\"
  use = \"policy:big-first\"  # lockwright policy list
  [[lock]]
  kind = \"recursive\"
  use = \"mcs\"
  [[lock]]
  rwlock = \"g_table\"    # or kind = \"rwlock\", for all of them
  use = \"rwlock:prefer=patient\"")]
pub(crate) struct Args {
    /// Lock for the whole program, NAME[:key=value,...]; see `lockwright list`
    #[arg(long, value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    lock: Option<String>,
    /// Who goes first at readers-writer locks: own (as the program asks), readers, writers, strict (a thread that reads again
    /// may deadlock) or patient (by turns: no writer starves)
    #[arg(long, value_name = "WHO")]
    rwlock: Option<String>,
    /// Choose locks by library, mutex, caller or kind
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The policy for mutexes that no rule names, NAME[,key=value,...]; see `lockwright policy`. Without it they have
    /// --lock's lock
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Classes of cores, fastest first, such as big:0-3,little:4-7
    #[arg(long, value_name = "CLASSES")]
    topology: Option<String>,
    /// The same with slowdowns: on the cores of a class with x3.75, all computation takes 3.75 times as long
    #[arg(long, value_name = "CLASSES", conflicts_with = "topology")]
    emulate: Option<String>,
    /// Make each call of a function an epoch with an SLO, such as get=leveldb_get:50us@p99; may be repeated.
    /// Implies --lock asl, unless you name another lock
    #[arg(long, value_name = "NAME=FUNCTION:SLO[@pP]")]
    epoch: Vec<String>,
    /// The SLO of every epoch, such as 50us, instead of the program's or --epoch's; 0: no overtaking.
    /// Implies --lock asl, likewise
    #[arg(long, value_name = "TIME")]
    slo: Option<String>,
    /// Print a table of the epochs to standard error at the end; FILE gets all figures as JSON (as CSV if its
    /// name ends in .csv)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,
    /// The instruction that spinning waiters pause with: pause, mfence, tpause, umwait, mwaitx, wfe;
    /// `lockwright doctor --topology` lists those of this processor
    #[arg(long, value_name = "KIND")]
    pause: Option<String>,
    #[command(flatten)]
    delegating: Delegating,
    #[command(flatten)]
    program: Launched,
}

/// The variable with the default lock.
pub(crate) const LOCK: &str = "LOCKWRIGHT_LOCK";
/// The variable with the SLO of every epoch, ns.
pub(super) const SLO: &str = "LOCKWRIGHT_SLO";

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let inherited = inherited_lock(args.lock.as_deref())?;
    preference::check(args.rwlock.as_deref(), args.lock.as_deref())?;
    if let Some(spec) = &args.topology {
        topology::check(spec)?;
    }
    let emulated = emulated(args.emulate.as_deref(), args.topology.is_none())?;
    let pause = pause::wanted(args.pause.as_deref())?;
    let slo = args.slo.as_deref().map(slo_ns).transpose()?;
    let functions = epoch::read(&args.epoch, slo.is_none())?;
    let (name, arguments) = args.program.command.split_first().expect("clap asks for a program");
    let path = find::program(name).map_err(|failure| match &args.stats {
        Some(None) if names_results(name) => {
            failure.hint(format!("for results in a file: --stats={}", name.to_string_lossy()))
        }
        _ => failure,
    })?;
    let program = elf::inspect(&path)?;
    refuse(&program)?;
    let config = args.config.map(|file| rules::read(&file, &program)).transpose()?;
    let asked: Vec<_> = functions.iter().map(|spec| spec.name.clone()).collect();
    let functions = epoch::resolve(&functions, &program)?;
    let (mut words, mut policies) = (String::new(), Slots::default());
    let has_rules = config.is_some() || args.policy.is_some();
    let (default, rules) = config.map_or((None, None), |config| {
        (words, policies) = (config.rules, config.policies);
        (config.default, Some(config.locks))
    });
    if let Some(word) = &args.policy {
        // Behind the file's rules, and before the default, which counts when the policy is unloaded.
        let lock = policies.add(word)?;
        let between = if words.is_empty() { "" } else { ";" };
        words += &format!("{between}{}={lock}", targets::ALL);
    }
    let starts = Compiled::all(&policies)?;
    let starts: Vec<_> = starts.into_iter().map(|(slot, one)| Start::Slot(slot, one)).collect();
    let library = library::find(args.program.library.as_deref())?;
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments).envs(under(&library));
    if has_rules {
        command.env("LOCKWRIGHT_RULES", words);
    }
    let lock = args.lock.or(default).or(inherited);
    let lock = lock.or_else(|| epoch::lock().filter(|_| !functions.is_empty() || slo.is_some()));
    if !functions.is_empty() {
        command.env(epoch::VARIABLE, functions);
    }
    let specs = lock.iter().chain(rules.iter().flatten()).map(String::as_str);
    catalog::warn_of_textbook(specs, "lockwright run --lock auto -- PROGRAM");
    if let Some(lock) = lock {
        command.env(LOCK, machine::tuned(&lock));
    }
    if let Some(who) = args.rwlock {
        command.env(preference::VARIABLE, who);
    }
    if let Some(kind) = pause {
        command.env(pause::VARIABLE, kind.name());
    }
    if let Some(ns) = slo {
        command.env(SLO, ns.to_string());
    }
    if let Some(spec) = args.topology {
        command.env(topology::VARIABLE, spec).env_remove(EMULATE);
    }
    if let Some((spec, words)) = emulated {
        command.env(EMULATE, spec);
        say(&format!("lockwright: emulated: {words}; every figure of this run is emulated\n"));
    }
    let delegation = args.delegating.prepare(&mut command, &program, &library)?;
    let ended = match args.stats {
        Some(file) => with_stats(command, &path, file.as_deref(), &asked, starts),
        None if !starts.is_empty() || delegation.is_some() => {
            started::to_end(&mut command, &path, starts).map(signals::end_as)
        }
        None => {
            signals::pass_on(&mut command);
            Err(launch::unstartable(&path, &command.exec()))
        }
    };
    if let Some(delegation) = delegation {
        say(&delegation.report());
    }
    ended
}

/// The lock that this command inherited from its environment. Checks both it and the lock that the user `asked` for,
/// which has priority.
pub(crate) fn inherited_lock(asked: Option<&str>) -> Result<Option<String>, Failure> {
    let inherited = env::var_os(LOCK)
        .filter(|lock| !lock.is_empty())
        .map(|lock| lock.to_string_lossy().into_owned());
    if let Some(lock) = asked {
        catalog::check(lock)?;
    } else if let Some(lock) = &inherited {
        catalog::check(lock).map_err(|failure| failure.within(&format!("{LOCK}: ")))?;
    }
    Ok(inherited)
}

/// The emulation as given, and a description of it. The option decides; without it, the inherited variable does, if the
/// caller allows that.
pub(super) fn emulated(
    asked: Option<&str>,
    may_inherit: bool,
) -> Result<Option<(String, String)>, Failure> {
    let inherited = || env::var(EMULATE).ok().filter(|spec| may_inherit && !spec.is_empty());
    let (spec, who) = match asked {
        Some(spec) => (Some(spec.to_owned()), "--emulate"),
        None => (inherited(), EMULATE),
    };
    spec.map(|spec| topology::check_emulation(&spec, who).map(|words| (spec, words))).transpose()
}

/// --slo in nanoseconds.
fn slo_ns(text: &str) -> Result<u64, Failure> {
    if text == "0" {
        return Ok(0);
    }
    units::nanoseconds(text).map_err(|why| {
        Failure::new(format!("SLO '{text}': {why}")).hint("lockwright run --slo 50us -- ./server")
    })
}

/// Runs the program as a child of this command. At the end its epochs go to standard error, and to `file`. `asked` has
/// the epochs of --epoch.
fn with_stats(
    mut command: Command,
    path: &Path,
    file: Option<&Path>,
    asked: &[String],
    starts: Vec<Start>,
) -> Result<ExitCode, Failure> {
    // The file is written last. If that will fail, say so first.
    let file = file.map(|file| Ok((file, launch::create(file)?))).transpose()?;
    let folder = launch::folder("stats", "run --stats")?;
    command.env(epochs::VARIABLE, folder.path());
    let spec = |name| command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
    let spec = spec(EMULATE).or(spec(topology::VARIABLE)).map(OsStr::to_owned);
    let spec = spec.or_else(|| env::var_os(EMULATE)).or_else(|| env::var_os(topology::VARIABLE));
    let names = ClassNames::new(spec.as_deref().and_then(OsStr::to_str));
    let status = started::to_end(&mut command, path, starts)?;
    let record = Record::read(folder.path())?;
    say(&epochs::report(&record, &names, &path.display().to_string()));
    // If several programs ran, each epoch's name begins with its program's name.
    let ran = |name: &str| {
        let suffix = format!(": {name}");
        record.epochs().any(|(known, _)| known == name || known.ends_with(&suffix))
    };
    for name in asked.iter().filter(|name| !ran(name)) {
        say(&format!("{name}: its function was not called, or not through the dynamic linker\n"));
    }
    if let Some((name, file)) = file {
        epochs::write(&record, &names, name, file)
            .map_err(|error| launch::unwritable(name, &error))?;
    }
    if record.running > 0 {
        // Its processes may still create files there.
        let _ = folder.keep();
    } else {
        drop(folder);
    }
    Ok(signals::end_as(status))
}

/// Did the user write `--stats FILE` without the `=`?
fn names_results(program: &OsStr) -> bool {
    Path::new(program).extension().is_some_and(|end| end == "json" || end == "csv")
}

/// The variables that load the library into the program and its children.
///
/// AddressSanitizer refuses to start behind another library, unless told otherwise. We don't put its library in front
/// of ours: it would also be loaded into every program that this one starts, and would end a shell or a compiler with
/// false reports of leaks.
pub(crate) fn under(library: &Path) -> [(&'static str, OsString); 2] {
    const ASAN: &str = "ASAN_OPTIONS";
    let mut options = env::var_os(ASAN).filter(|options| !options.is_empty()).unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("verify_asan_link_order=0");
    [("LD_PRELOAD", preload(library)), (ASAN, options)]
}

/// The value of LD_PRELOAD: the libraries of the previous value, then ours, once. A library that wraps lock functions (libfaketime)
/// gets the program's calls first, and calls our functions where it would call glibc's.
pub(crate) fn preload(library: &Path) -> OsString {
    let others = env::var_os("LD_PRELOAD").unwrap_or_default();
    behind(&others, &multilib::path(library).unwrap_or_else(|| library.to_owned()))
}

fn behind(others: &OsStr, library: &Path) -> OsString {
    let paths = others.as_bytes().split(|byte| b": ".contains(byte)).map(OsStr::from_bytes);
    let is_ours = |path: &OsStr| Path::new(path).file_name() == Some(OsStr::new(library::FILE));
    let others = paths.filter(|path| !path.is_empty() && !is_ours(path));
    others.chain([library.as_os_str()]).collect::<Vec<_>>().join(OsStr::new(":"))
}

pub(crate) fn refuse(program: &Program) -> Result<(), Failure> {
    let shown = program.path.display();
    if let Some(obstacle) = program.obstacle() {
        let hint = match program.go {
            true => Whose::Go.advice().to_owned(),
            false => obstacle.hint(&program.path),
        };
        return Err(
            Failure::refused(format!("cannot reach '{shown}': {}", obstacle.reason())).hint(hint)
        );
    }
    if program.go {
        warn(
            format!(
                "'{shown}' is a Go program: its own locks don't use pthreads, only its C parts do"
            ),
            format!("lockwright doctor --run '{shown}'"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_is_preloaded_last_and_once() {
        let list = |others: &str| behind(others.as_ref(), Path::new("/new/liblockwright.so"));
        assert_eq!(list(""), "/new/liblockwright.so");
        assert_eq!(list("one.so /b/two.so"), "one.so:/b/two.so:/new/liblockwright.so");
        assert_eq!(list("/old/liblockwright.so::one.so"), "one.so:/new/liblockwright.so");
    }
}
