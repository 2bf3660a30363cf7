//! `lockwright switch`.

mod change;
mod verbs;

pub(crate) use change::guard_time;

use crate::ctl::target::{self, For};
use crate::hints::{Failure, nearest};
use crate::{catalog, machine, output, preference, rules};
use change::{GuardArgs, change, posted};
use lockwright_observer::elf;
use lockwright_observer::mailbox::{self, Remote};
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use lockwright_observer::targets::is_rwlocks;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use verbs::Verb;

/// See and change the locks of a running process
///
/// The process runs under `lockwright run`, was attached to, or has our library linked in. It takes up a new lock the next time one of its
/// threads has to wait for a lock; until then, locks make no difference. The command waits up to two seconds for that. Threads that already
/// wait keep their old lock. There is no choice for condition variables. If this command is killed, the process keeps its locks, or takes
/// up those that were posted already (with --guard: goes back to its old ones), and keeps what it was told of FUNCTION's wrappers. Nothing else is
/// left behind.
///
/// TARGET is `all`, `default` (mutexes that no rule names), a lock as the list names it (`g_lock`, `pool+0x28`, `0x55d0c4a012a0`), a
/// function (the locks for which it has waited or made others wait, also by way of wrappers such as `my_mutex_lock`), a library, or all of a
/// kind (`kind:recursive`; `kind:rwlock`: readers-writer locks). Without TARGET: mutexes that no rule names. LOCK `default` removes TARGET's
/// own rule.
///
/// Without LOCK it is `list`, which begins with who waits now, and for whom, if a thread has waited for half a second or longer. A TARGET that
/// is called like a command below goes behind `--`. docs/switch.md says more.
#[derive(clap::Args)]
#[command(
    override_usage = "lockwright switch [OPTIONS] <PID> [[TARGET] LOCK]\n       lockwright switch <PID> <COMMAND>",
    after_help = "Examples:
  lockwright switch 4242                         its locks and what they do
  lockwright switch 4242 fifo                    another default, the same rules
  lockwright switch 4242 all fifo                every mutex on another lock
  lockwright switch 4242 g_lock fifo --guard 5s  and back if that is worse
  lockwright switch 4242 0x55d0c4a012a0 cal      one lock in the heap
  lockwright switch 4242 libfoo.so default       back to the default lock
  lockwright switch 4242 g_table rwlock:prefer=patient
                                                 who goes first at an rwlock
  lockwright switch 4242 --rwlock patient        writers don't starve any more
  lockwright switch 4242 --config locks.toml     other rules, as with `run`
  lockwright switch 4242 set g_lock spin=20us    an option of its current lock
  lockwright switch 4242 slo get 100us           another SLO for an epoch
  lockwright switch 4242 level full --for 60s    count owners and stacks
  lockwright switch 4242 dump locks.observe      for `profile --read`
  lockwright switch $(pidof server) auto:spin=5000"
)]
pub(crate) struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: libc::pid_t,
    /// Which locks [default: the mutexes that no rule names]
    #[arg(value_name = "TARGET", value_parser = catalog::SPEC, hide_possible_values = true)]
    first: Option<String>,
    /// NAME[:key=value,...], see `lockwright list`; for readers-writer locks rwlock:prefer=WHO; or `default`
    #[arg(value_name = "LOCK", value_parser = catalog::SPEC, hide_possible_values = true)]
    second: Option<String>,
    /// Replace the current rules with this file's: locks by library, mutex, caller or kind. An empty file drops all rules. A
    /// file without `default` keeps the default lock
    #[arg(long, value_name = "FILE", conflicts_with_all = ["second", "guard", "format"])]
    config: Option<PathBuf>,
    /// Who goes first at readers-writer locks that no rule names: own (as the program asks), readers, writers, strict or patient
    #[arg(long, value_name = "WHO", conflicts_with_all = ["second", "guard", "format"])]
    rwlock: Option<String>,
    #[command(flatten)]
    guard: GuardArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// Marks the lock that is called like a command, `slo`, where the words behind `switch` mean the lock: behind a target, or alone. clap would
/// take it for the command. A lock without options may end in a colon.
pub(crate) fn mark_lock(words: &mut [OsString]) {
    let text = |at: usize| words.get(at).and_then(|word: &OsString| word.to_str());
    let is_flag = |word: &str| word.starts_with('-');
    let is_both =
        |word: &str| verbs::names().iter().any(|verb| verb == word) && catalog::check(word).is_ok();
    let (Some(first), second) = (text(1), text(2)) else { return };
    let at = match second {
        None if is_both(first) => 1,
        Some(flag) if is_both(first) && is_flag(flag) && !["-h", "--help"].contains(&flag) => 1,
        Some(lock)
            if is_both(lock)
                && !is_flag(first)
                && !verbs::names().iter().any(|verb| verb == first) =>
        {
            2
        }
        _ => return,
    };
    words[at].push(":");
}

pub(crate) fn main(mut args: Args) -> Result<ExitCode, Failure> {
    crate::leftovers::remove_counts();
    let pid = args.pid;
    for lock in [&mut args.first, &mut args.second].into_iter().flatten() {
        if let Some(name) = lock.strip_suffix(':') {
            *lock = name.to_owned();
        }
    }
    let of_table = args.config.is_some() || args.rwlock.is_some();
    if let Some(verb) = args.verb {
        let is_bare = args.guard.guard.is_none() && args.guard.format.is_none();
        return match args.first.is_none() && !of_table && is_bare {
            true => verbs::main(pid, verb),
            false => Err(Failure::new("a command such as `list` stands right behind PID").hint(
                format!("lockwright switch {pid} --help; a lock called list: lockwright switch {pid} -- list fifo"),
            )),
        };
    }
    match (&args.first, &args.second) {
        (Some(target), Some(lock)) => one(pid, target, lock, &args.guard),
        (Some(lock), None) if !of_table => {
            alone(pid, lock)?;
            one(pid, "default", lock, &args.guard)
        }
        (None, _) if args.guard.guard.is_some() => {
            Err(Failure::new("--guard compares nothing without a lock")
                .hint(format!("lockwright switch {pid} fifo --guard 5s")))
        }
        (None, _) if !of_table => {
            verbs::main(pid, Verb::default(args.guard.format, args.guard.quiet))
        }
        _ => table(args),
    }
}

/// Checks a lock that stands alone.
fn alone(pid: libc::pid_t, lock: &str) -> Result<(), Failure> {
    let Err(failure) = catalog::check(lock) else { return Ok(()) };
    if let Some(verb) = nearest(lock, verbs::names().iter().map(String::as_str)) {
        let hint = format!("did you mean '{verb}'? lockwright switch {pid} {verb}");
        return Err(Failure::new(failure.message()).hint(hint));
    }
    // People leave out LOCK, since TARGET may be left out.
    let is_target = ["all", "default"].contains(&lock) || catalog::is_no_lock(lock);
    Err(match shlex::try_quote(lock).ok().filter(|_| is_target) {
        Some(target) => Failure::new(format!("no lock is given for '{lock}'"))
            .hint(format!("lockwright switch {pid} {target} auto")),
        None => failure,
    })
}

/// Gives a target another lock.
fn one(pid: libc::pid_t, target: &str, lock: &str, guard: &GuardArgs) -> Result<ExitCode, Failure> {
    let lock = match lock {
        "default" => None,
        lock => {
            catalog::check_rule(lock, &[])?;
            Some(machine::tuned(lock))
        }
    };
    let rule = match &lock {
        None => For::Both,
        Some(lock) if is_rwlocks(lock) => For::ReadersWriter,
        Some(_) => For::Mutexes,
    };
    change(pid, (target, rule), guard, |found, table| {
        if let Some(lock) = &lock {
            let all = [target.to_owned()]; // `all`, `default`
            let targets = if found.rules().is_empty() { &all } else { found.rules() };
            catalog::check_rule(lock, targets)?;
        }
        found.put(table, lock.as_deref());
        Ok(())
    })
}

/// Other rules, or another word on who goes first at readers-writer locks.
fn table(args: Args) -> Result<ExitCode, Failure> {
    let mut lock = args.first;
    if let Some(lock) = &mut lock {
        alone(args.pid, lock)?;
        *lock = machine::tuned(lock);
    }
    let process = Process::open(args.pid)?;
    let mailbox = Remote::find(&process)?;
    mailbox::refuse_detached(&process, &mailbox)?;
    // If an earlier table is posted but not yet in force, change that one.
    let mut table = mailbox::base(&mailbox)?;
    if let Some(file) = args.config {
        let config = rules::read(&file, &elf::inspect(&process.program())?)?;
        if !config.policies.is_empty() {
            return Err(Failure::new(format!("'{}' names policies", file.display()))
                .hint(format!("lockwright policy load NAME --pid {} --lock LOCK", process.pid)));
        }
        lock = lock.or(config.default.map(|lock| machine::tuned(&lock)));
        table.rules = Table::read(&format!("\n{}", config.rules)).rules;
    }
    if let Some(lock) = lock {
        table.default = lock;
    }
    if let Some(who) = &args.rwlock {
        preference::checked(who, "--rwlock")?;
        table.prefer(Some(who.as_str()).filter(|who| *who != preference::OWN));
    }
    let is_in_force = mailbox::post(&process, &mailbox, &table)?;
    catalog::warn_of_textbook(table.locks(), &format!("lockwright switch {} auto", args.pid));
    output::print(&match is_in_force {
        true => target::describe(&process, &table),
        false => posted(&process, &table),
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_called_slo_is_told_from_the_command() {
        for (words, marked) in [
            ("42 slo", "42 slo:"),
            ("42 slo --guard 5s", "42 slo: --guard 5s"),
            ("42 visit slo", "42 visit slo:"),
            ("42 visit slo --guard 5s", "42 visit slo: --guard 5s"),
            ("42 slo get 100us", "42 slo get 100us"),
            ("42 slo --help", "42 slo --help"),
            ("42 set slo spin=5", "42 set slo spin=5"),
            ("42 list", "42 list"),
            ("42 g_lock list", "42 g_lock list"),
            ("42", "42"),
        ] {
            let mut given: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            mark_lock(&mut given);
            assert_eq!(given, marked.split(' ').map(OsString::from).collect::<Vec<_>>());
        }
    }
}
