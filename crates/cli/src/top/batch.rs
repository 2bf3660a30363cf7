//! `lockwright top --batch`: prints a line of JSON for each sample.

use super::list::{List, lease};
use crate::ctl::epochs::{self, Followed};
use crate::ctl::list::ruled;
use crate::delegate;
use crate::hints::Failure;
use crate::observed::brief;
use crate::output;
use crate::signals::{Event, Watch};
use crate::standing;
use lockwright_contract::counters::control::Level;
use lockwright_observer::counts::observation::Observed;
use lockwright_observer::counts::snapshot::Lock;
use lockwright_observer::counts::watched::Watched;
use lockwright_observer::mailbox::{MailboxPlace, Remote};
use lockwright_observer::process::Process;
use lockwright_observer::sampler::watch::{OwnSeen, OwnWatch};
use lockwright_observer::standing::Lookout;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Prints until `count` lines are printed, the process has ended, the reader is gone, or a signal arrives.
pub(crate) fn run(
    pid: Option<libc::pid_t>,
    interval: Duration,
    count: Option<u64>,
    most: usize,
) -> Result<ExitCode, Failure> {
    let signals = Watch::new();
    let mut subject = match pid {
        Some(pid) => {
            let watched = Watched::open(pid, Level::Counters, lease(interval))?;
            let process = Process::open(watched.pid)?;
            let followed = Followed::begin(&process).ok();
            let mailbox = Remote::find(&process)?.place();
            let now = Lookout::open(watched.pid)?;
            let own = OwnWatch::of(watched.pid, interval);
            BatchOf::Process(Box::new(watched), followed, mailbox, Box::new(now), own)
        }
        None => BatchOf::All(List::new()),
    };
    let mut next = Instant::now();
    for _ in 0..count.unwrap_or(u64::MAX) {
        next += interval;
        if let Some(signal) = wait(&signals, next) {
            return Ok(ExitCode::from(128 + signal as u8));
        }
        let (line, is_last) = subject.look(most)?;
        if !output::print_json_line(&line)? || is_last {
            break;
        }
        next = next.max(Instant::now()); // after a pause, don't catch up
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until then. Returns the signal if one ends this command.
pub(crate) fn wait(signals: &Watch, until: Instant) -> Option<i32> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        if let Event::Signal { number, .. } = signals.next(Some(left))
            && number != libc::SIGWINCH
        {
            return Some(number);
        }
    }
}

enum BatchOf {
    Process(Box<Watched>, Option<Followed>, MailboxPlace, Box<Lookout>, OwnWatch),
    All(List),
}

impl BatchOf {
    /// The next line, and whether it was the last.
    fn look(&mut self, most: usize) -> Result<(Value, bool), Failure> {
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        match self {
            Self::Process(watched, followed, mailbox, now, own) => {
                let look = watched.look()?;
                let OwnSeen { locks: own_locks, samples } = own.latest();
                let mut locks = match &look.since {
                    Some(since) => {
                        let named = watched.named(since, &look, most, Lock::rank);
                        let outcome = Observed { own_locks, samples, ..named };
                        // It may end at any moment: then no rule is known.
                        let process = Process::open(watched.pid);
                        let table = process.and_then(|process| mailbox.of(&process).table());
                        let mut value = serde_json::to_value(&outcome).map_err(Failure::new)?;
                        value["findings"] = json!(brief::lines(&outcome));
                        if let Ok(table) = table {
                            value["locks"] = json!(ruled(&outcome.locks, &table)?);
                        }
                        value
                    }
                    None => {
                        // It has counted nothing so far.
                        let outcome = Observed {
                            pid: watched.pid as u32,
                            command: watched.command(),
                            elapsed_ns: look.elapsed.as_nanos() as u64,
                            threads: look.threads,
                            own_locks,
                            samples,
                            ..Observed::default()
                        };
                        let mut value = serde_json::to_value(&outcome).map_err(Failure::new)?;
                        value["findings"] = json!(brief::lines(&outcome));
                        value
                    }
                };
                let epochs = match followed {
                    Some(followed) if !watched.has_ended => {
                        // The process may end at any moment. The next sample will report that.
                        let process = Process::open(watched.pid);
                        let epochs = process.and_then(|process| followed.look(&process));
                        epochs::json(&epochs.unwrap_or_default(), look.elapsed.as_secs_f64())?
                    }
                    _ => json!([]),
                };
                if let Some(delegated) = delegate::json(watched.pid) {
                    locks["delegate"] = delegated;
                }
                let about = json!({
                    "time_s": time_s,
                    "level": watched.level.name(),
                    "ended": watched.has_ended,
                    "waiting_now": standing::json(&now.look()),
                    "epochs": epochs,
                });
                Ok((joined(about, locks), watched.has_ended))
            }
            Self::All(list) => {
                list.look();
                let rows = serde_json::to_value(&list.rows).map_err(Failure::new)?;
                Ok((json!({ "time_s": time_s, "processes": rows }), false))
            }
        }
    }
}

/// Merges the members of two objects.
fn joined(mut first: Value, second: Value) -> Value {
    if let (Value::Object(first), Value::Object(second)) = (&mut first, second) {
        first.extend(second);
    }
    first
}
