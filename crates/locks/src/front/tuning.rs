//! What the front locks' behaviour depends on: the machine, and the options of `NAME:key=value`, each declared once.

use crate::amp::standby::{WINDOW_MAX_NS, Waiting};
use crate::entry::OptionSpec;

/// What a front lock's behaviour depends on: options and machine together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long a waiter stays awake before it sleeps, ns. 0: it sleeps at once.
    pub spin_ns: u32,
    /// How many threads may spin in front of the line at a time (0 to 6; [`ANY`]: not counted).
    pub spinners: u32,
    /// How many arrivals may overtake the line's head before it has the lock (0 to 511).
    pub bypass: u32,
    /// How long a waiter may be made to wait so that a saturated lock stays where its data is, ns. 0: not at all.
    pub budget_ns: u32,
    /// The lock is granted to the next in line (grant.rs) where the program may use more CPUs than this; [`NEVER`]: nowhere.
    pub grants_above: u32,
    /// How many CPUs the program may use.
    pub cpus: u32,
    /// How many moved sleepers one unlock wakes at most.
    pub herd: u32,
    /// How long a waiter may sleep, ns; then it stays awake. 0: without limit.
    pub timeout_ns: u32,
    /// If more than this share of contended hand-overs goes to sleepers, waiters hardly stay awake; per cent (1 to 99).
    pub asleep: u32,
    /// Turns of big cores for each turn of a little core (pb10.rs).
    pub big: u32,
    /// How long a waiter on a little core lets others go first, ns (at most 100 ms).
    pub window_ns: u32,
    /// Where `window_ns` comes from.
    pub window: Window,
    /// How the waiter waits meanwhile.
    pub waiting: Waiting,
    /// The slot of the policy that programs the lock; 0: none.
    pub policy: u32,
    /// How many waiters the line counts at most (1 to [`MOST_COUNTED`]): fewer only where that edge is explored.
    pub most_counted: u32,
    /// Counts forks, and does not wrap: a line from before a fork consists of threads that don't exist here.
    pub era: usize,
}

/// Where the reorder window comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// From the options.
    Fixed,
    /// From the thread's current epoch, at each acquisition.
    Epoch,
}

/// How long waiters of the front locks stay awake by default, ns: about the cost of a sleep and a wake.
pub const SPIN_NS: u32 = 30_000;

/// In place of a number of CPUs: the lock is granted on no machine.
pub const NEVER: u32 = u32::MAX;

/// The most waiters that are counted in the line's length, a field of 9 bits. Waiters beyond know that they aren't counted. The rest of
/// the field is for threads that join at the same moment.
pub const MOST_COUNTED: u32 = (1 << 9) - 32;

/// Any number of spinners: they aren't counted.
pub const ANY: u32 = 7;

/// How many arrivals may overtake the line's head, by default. Their short critical sections take a fraction of a
/// millisecond, compared with which a sleep and a wake cost little.
pub const BYPASSES: u32 = 500;

/// The wait budget by default, ns.
pub const BUDGET_NS: u32 = 10_000_000;

/// If more than this share of contended hand-overs goes to sleepers, mutexee's waiters hardly stay awake, by default; per cent (M13).
/// The authors' code says 6.
pub const ASLEEP_PERCENT: u32 = 30;

/// Turns of big cores for one of a little core's under pb10, by default.
pub const BIG_TURNS: u32 = 10;

/// In place of a number of spinners: as many as suit the machine, see [`Tuning::on`].
const SUITED: u32 = 8;

impl Tuning {
    /// The tuning for a machine that isn't known yet. Later, [`Tuning::on`] turns it into [`Tuning::for_cpus`], but
    /// keeps what options have set meanwhile.
    pub const fn for_any() -> Self {
        Self {
            spin_ns: SPIN_NS,
            spinners: SUITED,
            bypass: BYPASSES,
            budget_ns: BUDGET_NS,
            grants_above: NEVER,
            cpus: 2,
            herd: 8,
            timeout_ns: 0,
            asleep: ASLEEP_PERCENT,
            big: BIG_TURNS,
            window_ns: WINDOW_MAX_NS,
            window: Window::Fixed,
            waiting: Waiting::Auto,
            policy: 0,
            most_counted: MOST_COUNTED,
            era: 0,
        }
    }

    /// The tuning that suits `cpus` CPUs.
    pub fn for_cpus(cpus: u32) -> Self {
        Self::for_any().on(cpus)
    }

    /// The same tuning on `cpus` CPUs: with one CPU, nobody stays awake.
    #[must_use]
    pub fn on(mut self, cpus: u32) -> Self {
        self.adapt(cpus);
        self
    }

    fn adapt(&mut self, cpus: u32) {
        self.spinners = match self.spinners {
            _ if cpus <= 1 => 0,
            // Few CPUs can't have too many spinners, so we need not count them.
            SUITED if cpus <= 4 => ANY,
            SUITED => 4,
            chosen => chosen,
        };
        if cpus <= 1 {
            (self.spin_ns, self.budget_ns) = (0, 0);
        }
        (self.cpus, self.herd) = (cpus, cpus * 4);
    }

    /// May unlock grant the lock to the next in line, so that nobody else can take a free word (grant.rs)?
    pub fn grants(&self) -> bool {
        self.cpus > self.grants_above
    }

    /// From now on this is the tuning in a process of this era, on `cpus` CPUs, and in an epoch whose window is `window_ns`. (It changes
    /// in place: copies would lie on the stack of a thread that waits.)
    pub fn adapt_to(&mut self, era: usize, cpus: u32, window_ns: u32) {
        self.adapt(cpus);
        self.era = era;
        if self.window == Window::Epoch {
            self.window_ns = window_ns;
        }
    }

    /// The same tuning in an epoch whose window is `window_ns`, if windows come from epochs.
    #[must_use]
    pub fn within(&self, window_ns: u32) -> Self {
        match self.window {
            Window::Epoch => Self { window_ns, ..*self },
            Window::Fixed => *self,
        }
    }
}

/// Declares options: what `explain`, the docs and every parser of `NAME:key=value` know about them, and which field of the
/// tuning each one sets.
macro_rules! options {
    ($($name:ident $key:literal $range:expr, default $default:expr, $meaning:literal, $set:expr;)*) => {
        $(
            #[doc = concat!("The option `", $key, "`: ", $meaning, ".")]
            pub const $name: OptionSpec = OptionSpec {
                key: $key,
                meaning: $meaning,
                min: *$range.start(),
                max: *$range.end(),
                default: $default,
            };
        )*

        impl Tuning {
            /// Sets the option called `key`; `false` if no front lock has such an option.
            pub fn set(&mut self, key: &str, value: u32) -> bool {
                $(if key == $key {
                    let set: fn(&mut Self, u32) = $set;
                    set(self, value);
                    return true;
                })*
                false
            }
        }
    };
}

options! {
    SPIN "spin" (0..=10_000_000), default Some(SPIN_NS),
        "ns that a waiter spins before it sleeps (0 if the program has one CPU)",
        |tuning, ns| tuning.spin_ns = ns;
    SPINNERS "spinners" (0..=7), default None,
        "threads that may spin ahead of the line at a time (7: any number)",
        |tuning, count| tuning.spinners = count;
    BYPASS "bypass" (0..=BYPASS_MAX), default None,
        "arrivals that may overtake the head of the line before it gets the lock",
        |tuning, count| tuning.bypass = count;
    BUDGET "budget" (0..=1_000_000_000), default Some(BUDGET_NS),
        "ns that a waiter may be held back so that a saturated lock stays where its data is cached",
        |tuning, ns| tuning.budget_ns = ns;
    TIMEOUT "timeout" (0..=1_000_000_000), default None,
        "ns after which nobody overtakes the head of the line any more (0: never)",
        |tuning, ns| tuning.timeout_ns = ns;
    ASLEEP "asleep" (1..=99), default None,
        "per cent of contended hand-overs that go to sleepers; above it, waiters hardly spin",
        |tuning, percent| tuning.asleep = percent;
    WINDOW "window" (0..=WINDOW_MAX_NS), default None,
        "ns for which little cores let others go first (0: as fifo)",
        |tuning, ns| (tuning.window_ns, tuning.window) = (ns, Window::Fixed);
    WAIT "wait" (0..=2), default Some(0),
        "how little cores stand by: 1 awake, 2 asleep, 0 asleep if waiters outnumber CPUs, else awake",
        |tuning, how| tuning.waiting = [Waiting::Auto, Waiting::Awake, Waiting::Asleep][how as usize % 3];
    SLOT "slot" (0..=15), default None,
        "the slot of the policy that programs the lock (0: none)",
        |tuning, slot| tuning.policy = slot;
    BIG "big" (0..=BYPASS_MAX), default None,
        "turns of big cores for each turn of a little core",
        |tuning, count| tuning.big = count;
}

/// The largest value of the field of bypasses.
pub const BYPASS_MAX: u32 = 511;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_has_chosen_stays() {
        for (cpus, spinners) in [(1, 0), (4, ANY), (5, 4), (64, 4)] {
            assert_eq!(Tuning::for_cpus(cpus).spinners, spinners, "{cpus}");
        }
        let mut chosen = Tuning::for_any();
        assert!(chosen.set("spinners", ANY) && chosen.set("spin", 7));
        assert_eq!((chosen.on(64).spinners, chosen.on(64).spin_ns), (ANY, 7));
    }
}
