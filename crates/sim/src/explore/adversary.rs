//! Policies in explorations: adversaries, since a lock's promises must hold whatever a policy says.

use lockwright_platform::hooks::Hook;

/// An adversary lets a thread stand by for this long at most, ns.
const STANDBY_NS: u64 = 20_000;

/// How an adversary answers.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Always 0.
    Least,
    /// Always the largest answer.
    Most,
    /// The largest answer and 0 by turns.
    Alternating,
    /// Any answer; now and then one that is out of range.
    Random,
}

/// The policy of a schedule's programmed locks, in whatever slot.
#[derive(Debug)]
pub(crate) struct Adversary {
    rng: fastrand::Rng,
    way: Way,
    hooks: u32,
    /// It is loaded and unloaded meanwhile.
    comes_and_goes: bool,
    asked: u64,
}

impl Adversary {
    /// An adversary drawn from `rng`.
    pub(crate) fn new(mut rng: fastrand::Rng) -> Self {
        let ways = [Way::Least, Way::Most, Way::Alternating, Way::Random, Way::Random];
        let way = ways[rng.usize(0..ways.len())];
        let hooks = if rng.bool() { u32::MAX } else { rng.u32(..) };
        let comes_and_goes = rng.u8(0..4) == 0;
        Self { rng, way, hooks, comes_and_goes, asked: 0 }
    }

    /// The hooks that it has at the moment.
    pub(crate) fn hooks(&mut self) -> u32 {
        if self.comes_and_goes && self.rng.u8(0..4) == 0 { 0 } else { self.hooks }
    }

    /// Its answer.
    pub(crate) fn answer(&mut self, hook: Hook) -> u64 {
        self.asked += 1;
        // A schedule is over long before somebody has stood by for 100 ms, and would look like one in which nobody gets on.
        let most = if hook == Hook::LockContended { STANDBY_NS } else { u64::MAX };
        let largest = hook.largest().min(most);
        if hook == Hook::RwBias {
            // Only 1 changes anything: readers use the table.
            return [1, 1, 1, self.rng.u64(0..Hook::NOT_FOR_IT)][self.rng.usize(0..4)];
        }
        match self.way {
            Way::Least => 0,
            Way::Most => largest,
            Way::Alternating if self.asked.is_multiple_of(2) => 0,
            Way::Alternating => largest,
            Way::Random => match self.rng.u8(0..16) {
                0 => u64::MAX,
                1..4 => largest,
                _ => self.rng.u64(0..=largest.min(1_000)),
            },
        }
    }
}
