//! Measures this machine, and makes a profile of it that the simulator can use (`lockwright sim --calibrate`).
//!
//! ```text
//!  layout ─► which CPUs, classes, clusters
//!  alone ──► one core by itself ──┐
//!  line ───► lines between cores ─┤ samples, each between two probes
//!  sleep, sched ─► the kernel ────┤
//!  power ────────────────────────┘
//!  delegation ─► when it beats locks, in rounds (RCL's thresholds)
//!      └─► stats: which samples count ─► ledger: figure, spread, how ─► profile
//! ```
//!
//! Nothing here depends on a particular machine: figures that can't be measured are assumed, and say so.
//! docs/calibrate.md describes every method.

mod alone;
mod chain;
mod class;
mod delegation;
mod kernel;
mod layout;
mod ledger;
mod line;
mod memory;
mod power;
mod sched;
mod sleep;
mod stats;
mod together;
pub mod validate;
mod waits;

pub use delegation::{DELEGATED, DelegationPoint, LOCKS, in_words};
pub use ledger::ProfileFigure;
pub use lockwright_sim::profile::{Delegation, Origin};
pub use stats::{Regime, Rejected, Wanted};
pub use waits::{Waits, waits, watts};

use delegation::Budget;
use layout::Layout;
use ledger::Ledger;
use lockwright_bench::{Machine, catch_interrupts, interrupted};
use lockwright_sim::profile::{self, Profile};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Fewer samples: seconds instead of a minute.
    pub quick: bool,
    /// Which of the machine's regimes the profile describes.
    pub regime: Wanted,
}

/// The result.
#[derive(Debug)]
pub struct Calibration {
    /// The profile, with its provenance.
    pub profile: Profile,
    /// Every figure, in the order in which it was obtained.
    pub figures: Vec<ProfileFigure>,
    /// The regimes of line transfers that were seen, the most frequent first (one-way time of a ping-pong, ns).
    pub regimes: Vec<Regime>,
    /// The regime that the profile describes. `None`: all of them, or there are no two cores.
    pub regime: Option<Regime>,
    /// Notes for users of the profile.
    pub notes: Vec<String>,
    /// How long a pause takes on the fastest class, ns, with each instruction that this processor has. The watched word
    /// doesn't change, so this is the longest that such a pause lasts.
    pub pauses: Vec<(String, f64)>,
    /// Delegation beside locks, by ascending share of time in sections. Empty: not measured, as the notes say.
    pub delegation: Vec<DelegationPoint>,
}

/// Why there is no profile.
#[derive(Debug, Error)]
pub enum Error {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The kernel names no CPU that we may use.
    #[error("the kernel names no CPU that this process may run on")]
    NoCpu,
    /// More CPUs than the simulator allows.
    #[error("{cpus} CPUs: the simulator has at most {most}")]
    TooManyCpus {
        /// CPUs that we may use.
        cpus: usize,
        /// The simulator's limit.
        most: usize,
    },
    /// `LOCKWRIGHT_TOPOLOGY` makes no sense on this machine.
    #[error("bad topology '{spec}' (LOCKWRIGHT_TOPOLOGY): {why}")]
    Topology {
        /// What it says.
        spec: String,
        /// What is wrong with it.
        why: String,
    },
    /// The given profile belongs to another machine.
    #[error(
        "the profile is not of this machine, but of '{its}' (CPUs: {its_cpus}); here: '{cpu}' (CPUs: {cpus})"
    )]
    OtherMachine {
        /// The profile's title.
        its: String,
        /// The profile's CPUs.
        its_cpus: usize,
        /// This machine's processor.
        cpu: String,
        /// CPUs that we may use.
        cpus: usize,
    },
    /// A lock broke a rule in the simulator. This is a bug in lockwright.
    #[error("the simulator found a fault: {0}")]
    Violation(String),
    /// A figure that is impossible for any machine. This is a bug in lockwright.
    #[error("the measured profile is refused: {0}")]
    Impossible(#[from] profile::ProfileError),
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Maximum number of rounds of samples.
    rounds: usize,
    /// A unit of time: no part takes more than a few of them.
    time: Duration,
}

/// How many times [`calibrate`] calls `step`.
pub const STEPS: u64 = 8;

/// Measures, and calls `step` with the name of each part as it begins. Ctrl-C ends it ([`Error::Interrupted`]).
pub fn calibrate(options: Options, step: &mut dyn FnMut(&str)) -> Result<Calibration, Error> {
    catch_interrupts();
    let effort = match options.quick {
        true => Effort { rounds: 30, time: Duration::from_millis(500) },
        false => Effort { rounds: 600, time: Duration::from_secs(4) },
    };
    let layout = Layout::here()?;
    let machine = Machine::here();
    let mut ledger = Ledger::default();

    let lines = memory::Lines::measure(&layout, options.regime, effort, step)?;
    step("cores");
    let (class, cold) = class::measure(&layout, &lines, &mut ledger, effort)?;
    let cluster = memory::clusters(&layout, &mut ledger);
    let memory = memory::memory(&layout, &lines, &cold, class[0].atomic_ns, &mut ledger);
    let kernel = kernel::measure(&layout, &lines, &mut ledger, effort, step)?;
    step("delegation");
    let delegation = match options.quick {
        true => delegation::Thresholds::default(),
        false => delegation::measure(lockwright_bench::cpus().len(), Budget::WHOLE, &mut ledger),
    };
    if interrupted() {
        return Err(Error::Interrupted);
    }

    let profile = Profile {
        name: "here".into(),
        title: machine.what(),
        class,
        cluster,
        memory,
        kernel,
        delegation: delegation.delegation,
        provenance: ledger.provenance(),
    };
    // We must be able to read what we write.
    let profile = Profile::parse(&profile.to_toml())?;
    let figures = ledger.figures();
    let mut notes = notes(&layout, &machine, &figures, &lines, options.quick);
    notes.extend(delegation.note);
    let pauses = alone::pauses(layout.core_of(0));
    Ok(Calibration {
        profile,
        figures,
        regimes: lines.regimes,
        regime: lines.regime,
        notes,
        pauses,
        delegation: delegation.points,
    })
}

/// The time from a wake call until the sleeper runs on another CPU, if no other thread delays it: the smallest of
/// several medians. Takes a few milliseconds. `None`: this process has one CPU, or a CPU is busy.
pub fn wake_up() -> Option<Duration> {
    const LOOKS: usize = 8;
    let (waker, sleeper) = Layout::here().ok()?.main_pair()?;
    let look = |_| sleep::wake(waker, sleeper, memory::SHORT_SLEEP_NS, 5).turnaround_ns;
    let least = (0..LOOKS).map(look).fold(f64::INFINITY, f64::min);
    (least.is_finite() && least > 0.0).then(|| Duration::from_nanos(least as u64))
}

fn notes(
    layout: &Layout,
    machine: &Machine,
    figures: &[ProfileFigure],
    lines: &memory::Lines,
    quick: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    if layout.main_pair().is_none() {
        notes.push("one CPU: all that takes two is assumed".to_owned());
    }
    if machine.load > 0.5 {
        notes.push(format!(
            "other programs competed for the CPUs (load average {:.1} at the start)",
            machine.load
        ));
    }
    if lines.regimes.len() > 1 {
        let shown = lines.regimes.iter().map(Regime::words).collect::<Vec<_>>().join("; ");
        notes.push(format!("line transfers have {} regimes: {shown}", lines.regimes.len()));
    }
    let doubtful = figures.iter().filter(|figure| figure.spread.is_some() && figure.samples == 0);
    let doubtful: Vec<_> = doubtful.map(|figure| &*figure.path).collect();
    if !doubtful.is_empty() {
        notes.push(format!("not one steady sample, so doubtful: {}", doubtful.join(", ")));
    }
    if quick {
        notes.push("--quick: few samples, and not when delegation pays".to_owned());
    }
    notes
}

/// Calls `round` until `most` or `time` is reached, but at least three times.
pub(crate) fn repeat(most: usize, time: Duration, mut round: impl FnMut()) -> Result<(), Error> {
    let start = Instant::now();
    for done in 0..most.max(3) {
        if interrupted() {
            return Err(Error::Interrupted);
        }
        if done >= 3 && start.elapsed() > time {
            break;
        }
        round();
    }
    Ok(())
}
