//! What the program's locks do in the first run of a setting, whose figures don't count; and whether a run hangs.

use super::Setting;
use super::desk::Desk;
use crate::hints::Failure;
use crate::observed::{brief, counted};
use crate::{launch, output, standing};
use lockwright_contract::counters::control::Level;
use lockwright_observer::origin::Origin;
use lockwright_observer::sampler::family::{Family, Watching};
use lockwright_observer::standing::StandingWatch;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Findings told of one run.
const MOST: usize = 3;
/// A run whose figures count is looked at only after this time.
const LONG: Duration = Duration::from_secs(10);

/// A run that is counted and sampled.
pub(super) struct WatchedRun {
    folder: TempDir,
    is_glibc: bool,
    begun: Instant,
    samples: Option<Watching>,
}

impl WatchedRun {
    /// Makes the program count, if it gets our library.
    pub(super) fn prepare(command: &mut Command, setting: &Setting) -> Result<Self, Failure> {
        let folder = launch::folder("observe", "compare")?;
        launch::share(&folder);
        let is_glibc = setting.lock.is_none();
        if !is_glibc {
            counted::count_into(command, Level::Counters, folder.path());
        }
        Ok(Self { folder, is_glibc, begun: Instant::now(), samples: None })
    }

    /// Samples all that the program starts; or a server alone, beside which its load runs.
    pub(super) fn begin(&mut self, server: Option<libc::pid_t>) {
        self.begun = Instant::now();
        self.samples = Some(Family::start(server));
    }

    /// What was found, a line each.
    pub(super) fn end(self) -> Result<Vec<String>, Failure> {
        let elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        let mut outcomes = counted::counted(self.folder.path(), elapsed_ns, None, None)?;
        if let Some(samples) = self.samples {
            samples.tell(&mut outcomes, elapsed_ns);
        }
        if self.is_glibc {
            // There, all locks are.
            for outcome in &mut outcomes {
                outcome.own_locks.retain(|lock| lock.origin != Origin::LeftToGlibc);
            }
        }
        Ok(outcomes.iter().flat_map(brief::lines).take(MOST).collect())
    }
}

/// Looks for a deadlock in a run that goes on.
#[derive(Default)]
pub(super) struct Hang {
    after: Duration,
    begun: Option<Instant>,
    watch: Option<StandingWatch>,
    /// The first line of what was found.
    pub(super) head: Option<String>,
}

impl Hang {
    pub(super) fn new(is_first: bool) -> Self {
        Self { after: if is_first { Duration::ZERO } else { LONG }, ..Self::default() }
    }

    /// Says at once what is found, since the run may never end.
    pub(super) fn look(&mut self, pid: libc::pid_t, desk: &Desk<'_>) {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if self.head.is_some() || begun.elapsed() < self.after {
            return;
        }
        let found = self.watch.get_or_insert_with(|| StandingWatch::of(pid)).latest();
        if !found.deadlocks.is_empty() {
            let text = standing::text(&found);
            desk.bar.suspend(|| output::say(&text));
            self.head = text.lines().next().map(str::to_owned);
        }
    }
}
