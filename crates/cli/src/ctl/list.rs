//! `lockwright switch PID list`: the table, the level, contended locks and epochs.

use super::delegated::Delegated;
use super::epochs::{self, Epoch, Followed};
use super::target;
use crate::hints::Failure;
use crate::output::{self, plain, shown, table};
use crate::standing;
use lockwright_bench::timed;
use lockwright_contract::counters::control::Level;
use lockwright_numbers::format::{si, time};
use lockwright_observer::counts::live::Live;
use lockwright_observer::counts::observation::{Observed, Ranked};
use lockwright_observer::counts::snapshot::{Lock, LockKind};
use lockwright_observer::counts::watched::{Watched, lease};
use lockwright_observer::mailbox::Remote;
use lockwright_observer::process::Process;
use lockwright_observer::standing::Standing;
use lockwright_observer::table::Table;
use lockwright_text::wrapped;
use serde_json::{Value, json};
use std::thread::sleep;
use std::time::Duration;

/// The rule that serves the lock.
fn rule<'a>(table: &'a Table, lock: &Ranked) -> &'a str {
    match lock.kind {
        LockKind::Mutex => table.lock_at(lock.place),
        LockKind::Semaphore => "glibc's",
        // Rules say who goes first at these, but not which lock serves them.
        LockKind::ReadWrite => "rwlock",
        LockKind::Spin => "spin",
        LockKind::Condition => "",
    }
}

/// Locks, each with its rule.
pub(crate) fn ruled(locks: &[Ranked], table: &Table) -> Result<Vec<Value>, Failure> {
    let with_rule = |lock: &Ranked| {
        let mut value = serde_json::to_value(lock).map_err(Failure::new)?;
        value["rule"] = json!(rule(table, lock));
        Ok(value)
    };
    locks.iter().map(with_rule).collect()
}

/// A process's locks, and what they did in a period of time.
pub(crate) struct List {
    pid: libc::pid_t,
    name: String,
    level: Level,
    table: Table,
    /// Of each rule, for people.
    whose: Vec<String>,
    posted: Option<Table>,
    /// `None`: no thread has ever had to wait.
    outcome: Option<Observed>,
    /// Executions and misses are those of that period.
    epochs: Vec<Epoch>,
    delegated: Delegated,
    standing: Standing,
    elapsed: Duration,
}

impl List {
    /// Observes the process for that long. `has_text`: prints who waits now at once.
    pub(crate) fn look(
        pid: libc::pid_t,
        duration: Duration,
        most: usize,
        quiet: bool,
        has_text: bool,
    ) -> Result<Self, Failure> {
        // Before the time that we watch, and whether or not our library is loaded: perhaps the program hangs. Whoever may not look gets to
        // know by what follows.
        let standing = Standing::of(pid).unwrap_or_default();
        if has_text && !standing.is_empty() {
            output::print(&format!("{}\n", standing::text(&standing)))?;
        }
        let (level, mut followed) = {
            let process = Process::open(pid)?;
            Remote::find(&process)?.table()?; // fails at once if the library isn't loaded
            let level = Live::find(&process)?.level(&process)?;
            (level, Followed::begin(&process)?)
        };
        let mut watched = Watched::open(pid, Level::Counters, lease(duration))?;
        let bar = timed(duration, quiet);
        bar.set_message(format!("watching {pid}"));
        sleep(duration);
        bar.finish_and_clear();
        let look = watched.look()?;
        let outcome =
            look.since.as_ref().map(|since| watched.named(since, &look, most, Lock::rank));
        let process = Process::open(pid)?;
        let mailbox = Remote::find(&process)?;
        let epochs = followed.look(&process)?;
        let table = mailbox.table()?;
        Ok(Self {
            pid: process.pid,
            name: process.name(),
            level,
            whose: target::whose(&process, &table),
            table,
            posted: mailbox.posted()?,
            outcome,
            epochs,
            delegated: Delegated::read(&process)?,
            standing,
            elapsed: look.elapsed,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} ({}): {}", self.pid, shown(&self.name), self.table.default);
        text.push_str(&format!("; counts: {}\n", self.level.name()));
        for (whose, rule) in self.whose.iter().zip(&self.table.rules) {
            text.push_str(&format!("  {whose}: {}\n", rule.lock));
        }
        if let Some(posted) = &self.posted {
            text.push_str(&format!(
                "posted, not in effect yet: {}\n",
                posted.words().replace('\n', "; ")
            ));
        }
        text.push('\n');
        let locks = self.outcome.as_ref().map_or(&[][..], |outcome| &outcome.locks);
        match locks {
            [] if !self.standing.is_empty() => {
                text.push_str("no wait has ended meanwhile: who waits is told above\n");
            }
            [] => {
                let line = format!(
                    "no thread was counted that had to wait for a mutex, a readers-writer lock, a spin lock or a semaphore that is a lock in {}; \
                     readers-writer locks that processes share aren't counted",
                    time(self.elapsed.as_nanos() as f64)
                );
                text.push_str(&(wrapped(&line) + "\n"));
            }
            locks => text.push_str(&self.locks(locks)),
        }
        if !self.epochs.is_empty() {
            text.push('\n');
            text.push_str(&epochs::text(&self.epochs, self.elapsed.as_secs_f64()));
        }
        if !self.delegated.data.is_empty() {
            text.push('\n');
            text.push_str(&self.delegated.text());
        }
        text
    }

    fn locks(&self, locks: &[Ranked]) -> String {
        let seconds = self.elapsed.as_secs_f64();
        let mut drawn = table(&["lock", "waits/s", "waiting", "P99 wait", "rule"])
            .least(&["P99 wait", "waits/s"])
            .all_by("--format json");
        for lock in locks {
            drawn.add_row([
                shown(&lock.name).into_owned(),
                si(lock.contended as f64 / seconds),
                format!("{:.2}", lock.waiting),
                if lock.wait.count == 0 { "-".to_owned() } else { time(lock.wait.p99_ns as f64) },
                rule(&self.table, lock).to_owned(),
            ]);
        }
        plain(&drawn)
    }

    pub(crate) fn json(&self) -> Result<Value, Failure> {
        let seconds = self.elapsed.as_secs_f64();
        let locks = self.outcome.as_ref().map_or(&[][..], |outcome| &outcome.locks);
        Ok(json!({
            "pid": self.pid,
            "program": self.name,
            "elapsed_ns": self.elapsed.as_nanos() as u64,
            "level": self.level.name(),
            "default": self.table.default,
            "rules": self.table.rules,
            "posted": self.posted,
            "locks": ruled(locks, &self.table)?,
            "epochs": epochs::json(&self.epochs, seconds)?,
            "delegated": self.delegated.data,
            "waiting_now": standing::json(&self.standing),
        }))
    }
}
