//! `lockwright policy load`.

use crate::ctl::guard::{End, Guarded};
use crate::ctl::judge::Terms;
use crate::format::Format;
use crate::hints::Failure;
use crate::interrupt::ended_by;
use crate::output;
use crate::policy::chosen::Chosen;
use crate::policy::loading::{LATER, Loaded, PolicyLoad, Whose};
use crate::policy::settings::Setting;
use crate::policy::{slots, started};
use lockwright_contract::mailbox::KINDS;
use lockwright_numbers::units;
use lockwright_observer::process::Process;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;

/// Put a policy into a running program, or start one with it
///
/// It is verified and compiled here, and handed over as `lockwright switch` hands over locks: you need the same rights (the process's
/// user, or root), and the process takes it up when a thread next waits for a mutex. The rules that it has stay behind the policy, and
/// count again when it is unloaded. With several policies, the first answer that isn't 0 counts.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy load big-first --pid 4242    all its mutexes
  lockwright policy load big-first --pid 4242 --lock g_lock --guard 5s
                                                 and out again if worse
  lockwright policy load numa big-first --pid 4242 --site work
  lockwright policy load big-first --pid 4242 --kind recursive --set most_ns=1ms
  lockwright policy load big-first --lock g_lock -- ./server")]
pub(super) struct Args {
    /// Policies, the most important first: files, or names of those that are shipped or stored
    #[arg(value_name = "POLICY", required = true)]
    policies: Vec<String>,
    /// Another value for a constant of the policy, a number or a time; may be repeated. POLICY.NAME=VALUE: of one of several
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Setting::parse)]
    settings: Vec<Setting>,
    /// The process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..),
          required_unless_present = "program", conflicts_with = "program")]
    pid: Option<libc::pid_t>,
    /// For these locks only, as `lockwright switch PID` lists them
    #[arg(long = "lock", value_name = "LOCKS", value_delimiter = ',')]
    locks: Vec<String>,
    /// For the locks that this function waits for; may be repeated
    #[arg(long = "site", value_name = "FUNCTION")]
    sites: Vec<String>,
    /// For the locks that this library's functions wait for; may be repeated
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<String>,
    /// For the locks of this kind; may be repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(KINDS))]
    kinds: Vec<String>,
    /// Options of the lock besides the policy, such as bypass=8: lockwright explain programmed
    #[arg(long = "option", value_name = "KEY=VALUE,...")]
    options: Option<String>,
    /// Measure the process without the policy and with it alternately, for this time each (twice as long if noise may hide a
    /// loss); unload it if it is worse (exit code 1)
    #[arg(long, value_name = "TIME", value_parser = units::seconds, conflicts_with = "program")]
    guard: Option<f64>,
    /// How much worse counts, per cent
    #[arg(long, value_name = "PERCENT", default_value = "10%", requires = "guard",
          value_parser = percent)]
    worse: f64,
    /// A command that prints how much work the program has done so far; --guard takes throughput from it
    #[arg(long, value_name = "COMMAND", requires = "guard")]
    counter: Option<String>,
    /// The process takes the policy off when a hook takes longer than this, on average
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = budget)]
    budget: u32,
    /// The comparison's format
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "guard")]
    format: Format,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
    /// Start this program with the policy
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// `10%` or `10`: 0.1.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(percent) if (1.0..=90.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("not within 1% to 90%".to_owned()),
    }
}

fn budget(text: &str) -> Result<u32, String> {
    let ns = units::nanoseconds(text).map_err(|why| why.to_string())?;
    match u32::try_from(ns) {
        Ok(ns @ 50..=1_000_000) => Ok(ns),
        _ => Err("not within 50ns to 1ms".to_owned()),
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let chosen = Chosen::with(&args.policies, &args.settings)?;
    slots::split(&slots::joined(&chosen.word(), &[], args.options.as_deref()))?;
    let Args { locks, sites, libraries, kinds, .. } = args;
    let whose = Whose { locks, sites, libraries, kinds };
    let load = PolicyLoad::new(&chosen, whose, args.options, args.budget)?;
    let Some(pid) = args.pid else {
        return started::run(&args.program, load);
    };
    let process = Process::open(pid)?;
    let name = process.name();
    let Some(seconds) = args.guard else {
        let loaded = load.put_into(&process)?;
        output::print(&said(&load, &loaded, pid, &name))?;
        return Ok(ExitCode::SUCCESS);
    };
    let time = crate::cmd::switch::guard_time(seconds)?;
    let terms = Terms { margin: args.worse, hand_overs: true };
    let (guarded, loaded) =
        load.guarded(process, time, args.counter.as_deref(), terms, args.quiet)?;
    report(&load, &loaded, &guarded, args.format, pid, &name)?;
    Ok(match guarded.end {
        End::Kept => ExitCode::SUCCESS,
        End::RolledBack | End::TakenOff => ExitCode::FAILURE,
        End::Interrupted => ended_by(),
    })
}

/// What has become of a load.
fn said(load: &PolicyLoad, loaded: &Loaded, pid: libc::pid_t, name: &str) -> String {
    let mut text = format!("{pid} ({name}): {} is loaded, slot {}", load.policy.title, loaded.slot);
    if !loaded.is_in_force {
        text += LATER;
    }
    text += "\n";
    if !loaded.replaced.is_empty() {
        text += &format!("it replaces {}\n", loaded.replaced.join(", "));
    }
    text + &format!("what it does: lockwright policy stats --pid {pid}\n")
}

fn report(
    load: &PolicyLoad,
    loaded: &Loaded,
    guarded: &Guarded,
    format: Format,
    pid: libc::pid_t,
    name: &str,
) -> Result<(), Failure> {
    if format == Format::Json {
        let slot = (guarded.end == End::Kept).then_some(loaded.slot);
        let guarded = serde_json::to_value(guarded).map_err(Failure::new)?;
        return output::print_json(&json!({
            "policy": load.policy.title, "pid": pid, "slot": slot, "replaced": loaded.replaced,
            "guard": guarded, "taken_off": loaded.taken_off,
        }));
    }
    output::print(&guarded.text())?;
    if let Some(why) = &loaded.taken_off {
        output::print(&format!("{why}\n"))?;
    }
    match guarded.end {
        End::Kept => output::print(&said(load, loaded, pid, name)),
        _ => output::print(&format!("{pid} ({name}): {} is unloaded\n", load.policy.title)),
    }
}
