//! Runs a program for a measurement, until it ends, its time is up, or a signal interrupts this command.
//!
//! The program has its own process group, so only this command gets Ctrl-C. Nothing of the group is left behind.

use crate::signals::{Event, ProcessGroup, Watch};
use indicatif::ProgressBar;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How long a server may take. It may have data to write.
pub(crate) const SERVERS_GRACE: Duration = Duration::from_secs(10);

/// How a run ended.
#[derive(Debug)]
pub(crate) enum End {
    Itself(ExitStatus),
    TimeUp,
    Interrupted,
}

/// The resources that a program and the children that it waited for used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Context switches, voluntary and involuntary.
    pub(crate) switches: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    /// From its start to its end.
    pub(crate) wall: Duration,
    pub(crate) used: Used,
    /// Was it killed, because it didn't end when asked to?
    pub(crate) killed: bool,
}

/// A running program. Dropping this ends it.
pub(crate) struct Running {
    group: ProcessGroup,
    started: Instant,
    grace: Duration,
}

/// Describes how it ended: `exit code 3`, `signal 11`.
pub(crate) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// Runs a program until it ends, or until `limit` has passed.
pub(crate) fn supervise(
    command: &mut Command,
    limit: Option<Duration>,
    watch: &Watch,
    bar: &ProgressBar,
) -> io::Result<Ended> {
    Running::start(command, watch)?.finish(limit, watch, bar)
}

impl Running {
    pub(crate) fn start(command: &mut Command, watch: &Watch) -> io::Result<Self> {
        let started = Instant::now();
        Ok(Self { group: watch.spawn_group(command)?, started, grace: GRACE })
    }

    pub(crate) fn id(&self) -> libc::pid_t {
        self.group.id()
    }

    /// Has the program itself ended?
    pub(crate) fn has_ended(&self) -> bool {
        self.group.has_ended()
    }

    /// Asks the program to end, as is usual for servers, and waits until it has.
    pub(crate) fn stop(mut self, watch: &Watch, bar: &ProgressBar) -> io::Result<Ended> {
        self.grace = SERVERS_GRACE;
        self.finish(Some(Duration::ZERO), watch, bar)
    }

    /// Waits until the program ends. Ends it when `limit` has passed since its start.
    pub(crate) fn finish(
        self,
        limit: Option<Duration>,
        watch: &Watch,
        bar: &ProgressBar,
    ) -> io::Result<Ended> {
        self.finish_while(|| true, limit, watch, bar)
    }

    /// As `finish`. It also ends the program, as if its time were up, when `may_go_on` returns false.
    pub(crate) fn finish_while(
        mut self,
        may_go_on: impl Fn() -> bool,
        limit: Option<Duration>,
        watch: &Watch,
        bar: &ProgressBar,
    ) -> io::Result<Ended> {
        let mut stopped: Option<(End, Instant)> = None;
        let mut killed = false;
        loop {
            if self.group.has_ended() {
                let wall = self.started.elapsed();
                // A program that was asked to end may take its time. Processes left behind by a program that ended by
                // itself may not.
                let left =
                    stopped.as_ref().map(|(_, end)| end.saturating_duration_since(Instant::now()));
                let (status, usages) = self.group.clear(left.unwrap_or_default())?;
                let end = stopped.map_or(End::Itself(status), |(end, _)| end);
                return Ok(Ended { end, wall, used: Used::of(&usages), killed });
            }
            let now = Instant::now();
            let due = match &stopped {
                None if !may_go_on() => Some(now),
                None => limit.map(|limit| self.started + limit),
                Some((_, end)) => Some(*end),
            };
            let left = due.map(|due| due.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                if stopped.is_none() {
                    self.group.send(libc::SIGTERM);
                    stopped = Some((End::TimeUp, now + self.grace));
                } else {
                    self.group.send(libc::SIGKILL);
                    killed = true;
                }
            }
            let tick = Duration::from_millis(200);
            let wait = left.filter(|left| !left.is_zero()).unwrap_or(tick).min(tick);
            let event = watch.next(Some(wait));
            bar.tick();
            if is_interrupt(event) {
                let twice = matches!(stopped, Some((End::Interrupted, _)));
                self.group.send(if twice { libc::SIGKILL } else { libc::SIGTERM });
                stopped = Some((End::Interrupted, now + self.grace));
            }
        }
    }
}

/// Does this event ask this command to stop?
pub(crate) fn is_interrupt(event: Event) -> bool {
    let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
    matches!(event, Event::Signal { number, .. } if wanted.contains(&number))
}

impl Used {
    fn of(usages: &[libc::rusage]) -> Self {
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        Self {
            cpu: usages.iter().map(|usage| time(usage.ru_utime) + time(usage.ru_stime)).sum(),
            switches: usages.iter().map(|usage| (usage.ru_nvcsw + usage.ru_nivcsw) as u64).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(script: &str, limit_ms: u64) -> (End, Duration) {
        let watch = Watch::new();
        let start = Instant::now();
        let limit = Some(Duration::from_millis(limit_ms));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (
            supervise(&mut command, limit, &watch, &ProgressBar::hidden()).unwrap().end,
            start.elapsed(),
        )
    }

    #[test]
    fn programs_end_by_themselves_or_are_ended() {
        let (end, _) = ends("exit 3", 20_000);
        assert!(matches!(end, End::Itself(status) if status.code() == Some(3)), "{end:?}");
        let (end, took) = ends("sleep 60", 100);
        assert!(matches!(end, End::TimeUp) && took < Duration::from_secs(20), "{end:?}");
        // This program ignores SIGTERM (well before it arrives), and has a child.
        let (end, took) = ends("trap '' TERM; sleep 60 & wait; sleep 60", 2_000);
        assert!(
            matches!(end, End::TimeUp) && took >= Duration::from_secs(2) + GRACE,
            "{end:?} {took:?}"
        );
        // The leader ends at once, and leaves a child that ignores SIGTERM. The child is killed, and its resources
        // count.
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there").display().to_string();
        let deaf = format!("trap '' TERM; echo $$ > {there}; while :; do :; done");
        let mut leader = Command::new("sh");
        leader.args(["-c", &format!("sh -c \"{}\" & exec sleep 60", deaf.replace('$', "\\$"))]);
        let watch = Watch::new();
        let running = Running::start(&mut leader, &watch).unwrap();
        let pid = || std::fs::read_to_string(&there).ok()?.trim().parse::<i32>().ok();
        let is_missing = || pid().is_none();
        let ended = running.finish_while(is_missing, None, &watch, &ProgressBar::hidden()).unwrap();
        assert!(matches!(ended.end, End::TimeUp) && ended.used.cpu > Duration::ZERO, "{ended:?}");
        let gone = !std::path::Path::new(&format!("/proc/{}", pid().unwrap())).exists();
        assert!(gone, "a child is left");
    }
}
