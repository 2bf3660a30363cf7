//! What LibASL's workloads have in common: operations that may have an SLO or a fixed window, and Bench-1's epoch,
//! which its other benchmarks vary.

use crate::load::{DataId, LockId, Me, ParamSpec, Setup};
use lockwright_locks::amp::feedback::Percentile;

/// Of the benchmarks whose epochs are followed by NOPs.
pub(super) const GAP: ParamSpec = ParamSpec {
    key: "gap",
    meaning: "NOPs between two epochs",
    default: 600.0,
    min: 0.0,
    max: 1e9,
};

/// The option `slo_us`.
pub(super) const SLO: ParamSpec = ParamSpec {
    key: "slo_us",
    meaning: "latency SLO of an operation (P99), µs; 0: cannot be met; negative: none, the reorder window is 100 ms",
    default: -1.0,
    min: -1.0,
    max: 1e6,
};

/// The option `window_us`.
pub(super) const WINDOW: ParamSpec = ParamSpec {
    key: "window_us",
    meaning: "fixed reorder window, µs; negative: by feedback from the SLO",
    default: -1.0,
    min: -1.0,
    max: 100_000.0,
};

/// How operations are executed.
#[derive(Clone, Copy)]
pub(super) struct Epochs {
    slo_ns: Option<u64>,
    window_ns: Option<u32>,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked ranges")]
impl Epochs {
    /// As the options say.
    pub(super) fn of(setup: &Setup<'_>) -> Self {
        let given = |key| Some(setup.param(key) * 1000.0).filter(|&ns| ns >= 0.0);
        Self {
            slo_ns: given(SLO.key).map(|ns| ns as u64),
            window_ns: given(WINDOW.key).map(|ns| ns as u32),
        }
    }

    /// The same with a fixed window, us; a negative one changes nothing.
    pub(super) fn within(self, window_us: f64) -> Self {
        let window_ns = Some(window_us * 1000.0).filter(|&ns| ns >= 0.0);
        Self { window_ns: window_ns.map(|ns| ns as u32).or(self.window_ns), ..self }
    }

    /// One operation.
    pub(super) fn run(self, me: &Me, body: impl FnOnce()) {
        match (self.window_ns, self.slo_ns) {
            (Some(window), slo) => me.operation_within(window, slo, body),
            (None, Some(slo)) => me.epoch(0, slo, Percentile::P99, body),
            (None, None) => me.operation(body),
        }
    }
}

/// How an epoch's lines are split among its critical sections, and which of the two locks protects each: each lock
/// protects half of the lines.
const SECTIONS: [(usize, f64); 4] =
    [(0, 4.0 / 64.0), (1, 12.0 / 64.0), (0, 28.0 / 64.0), (1, 20.0 / 64.0)];

/// Bench-1's epoch: four critical sections of different lengths under two locks.
#[derive(Clone, Copy)]
pub(super) struct Sections {
    locks: [LockId; 2],
    data: [DataId; 2],
}

impl Sections {
    /// For epochs of at most `lines` lines.
    pub(super) fn new(setup: &mut Setup<'_>, lines: u32) -> Self {
        let half = 1 + lines.div_ceil(2);
        Self { locks: [setup.lock(), setup.lock()], data: [setup.data(half), setup.data(half)] }
    }

    /// Executes the four sections, with `lines` lines and `nops` NOPs in all.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of lines")]
    pub(super) fn run(self, me: &Me, lines: u32, nops: f64) {
        let mut next = [0; 2];
        for (which, share) in SECTIONS {
            let (from, count) = (next[which], (f64::from(lines) * share).round() as u32);
            next[which] += count;
            me.locked(self.locks[which], || {
                if count > 0 {
                    me.touch(self.data[which], from..from + count);
                }
                me.nops(nops * share);
            });
        }
    }
}
