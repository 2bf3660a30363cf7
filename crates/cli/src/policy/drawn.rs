//! Situations at locks, drawn by chance: on them policies are timed and compared. The same seed draws the same.

use lockwright_platform::hooks::{ASLEEP, Context, Hook, IN_EPOCH, Node, OFF_CPU, World};

/// Draws situations at a few locks of a machine with two NUMA nodes of eight cores, half of them little.
pub(crate) struct Drawn {
    random: fastrand::Rng,
    now_ns: u64,
}

/// The number of threads among which waiters are drawn.
const THREADS: u32 = 24;
const CPUS: u32 = 16;
/// Where time begins: no waiter has waited for longer.
const START_NS: u64 = 1_000_000_000_000;

impl Drawn {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), now_ns: START_NS }
    }

    /// A time between these two, ns: as likely between 1 and 10 us as between 10 and 100 us.
    fn time(&mut self, least: f64, most: f64) -> u64 {
        (least * (most / least).powf(self.random.f64())) as u64
    }

    fn thread(&mut self, tid: u32) -> Node {
        // What a thread is stays the same, whenever it is drawn.
        let mut own = fastrand::Rng::with_seed(u64::from(tid));
        let cpu = self.random.u32(0..CPUS);
        let core_class = cpu % 2;
        let is_in_epoch = own.u32(0..3) == 0;
        let mut flags = 0;
        for (flag, of) in [(ASLEEP, 4), (OFF_CPU, 8)] {
            flags |= if self.random.u32(0..of) == 0 { flag } else { 0 };
        }
        let window_ns = if is_in_epoch { self.time(1e3, 1e7) as u32 } else { 100_000_000 };
        Node {
            tid,
            cpu,
            numa: cpu * 2 / CPUS,
            core_class,
            prio: [0, 0, 0, -5, -10, 20][own.usize(0..6)],
            flags: if is_in_epoch { flags | IN_EPOCH } else { flags },
            speed: if core_class == 0 { 1024 } else { 400 },
            passed: self.random.u32(0..6),
            wait_ns: self.time(1e3, 1e8),
            cs_ns: self.time(100.0, 1e5),
            cs_total_ns: self.time(1e6, 1e10),
            held_locks: [0, 0, 0, 1, 2][self.random.usize(0..5)],
            window_ns,
            slo_ns: if is_in_epoch { [50_000, 200_000, 1_000_000][own.usize(0..3)] } else { 0 },
            tag: [0, 0, 1, 2][own.usize(0..4)],
        }
    }

    /// What a hook may be told.
    pub(crate) fn context(&mut self, hook: Hook) -> Context {
        let mut tids: Vec<u32> = (0..THREADS).map(|number| 5000 + number).collect();
        self.random.shuffle(&mut tids);
        self.now_ns += self.time(100.0, 1e5);
        let is_free = matches!(hook, Hook::LockAcquire | Hook::LockAcquired | Hook::LockRelease);
        let mut context = Context {
            reserved: 0,
            lock_id: 0x55d0_c4a0_12a0 + 64 * u64::from(self.random.u32(0..3)),
            lock_kind: if hook == Hook::RwBias { 3 } else { 0 },
            nwaiters: self.random.u32(if is_free { 0..3 } else { 1..THREADS }),
            now_ns: if is_free && self.random.bool() { 0 } else { self.now_ns },
            avg_cs_ns: self.time(100.0, 1e5),
            own: self.thread(tids[0]),
            ..Context::default()
        };
        if is_free || matches!(hook, Hook::LockContended | Hook::RwBias) {
            (context.own.wait_ns, context.own.passed, context.own.flags) =
                (0, 0, context.own.flags & IN_EPOCH);
        }
        if matches!(hook, Hook::CmpNode | Hook::SkipShuffle) {
            context.batch = self.random.u32(0..16);
        }
        if hook == Hook::CmpNode {
            context.nwaiters = context.nwaiters.max(3);
            context.round = self.random.u32(0..16.min(context.nwaiters - 2));
            context.best = self.thread(tids[1]);
            context.curr = match context.round {
                0 => context.best,
                _ => self.thread(tids[2]),
            };
            // The line is in the order of arrival, but for those that were moved.
            if context.curr.wait_ns > context.best.wait_ns && self.random.u32(0..4) > 0 {
                std::mem::swap(&mut context.curr.wait_ns, &mut context.best.wait_ns);
            }
        }
        context
    }

    /// What its helpers would answer there.
    pub(crate) fn world(&self, context: &Context) -> DrawnWorld {
        DrawnWorld { now_ns: self.now_ns, own: context.own }
    }
}

/// The world in which a drawn thread asks.
pub(crate) struct DrawnWorld {
    now_ns: u64,
    own: Node,
}

impl World for DrawnWorld {
    fn now(&self) -> u64 {
        self.now_ns
    }
    fn cpu(&self) -> u32 {
        self.own.cpu
    }
    fn numa(&self) -> u32 {
        self.own.numa
    }
    fn class(&self) -> u32 {
        self.own.core_class
    }
    fn pid_tgid(&self) -> u64 {
        5000 << 32 | u64::from(self.own.tid)
    }
    fn tag(&self, tid: u32) -> u64 {
        if tid == self.own.tid { self.own.tag } else { 0 }
    }
    fn prio(&self, tid: u32) -> i32 {
        if tid == self.own.tid { self.own.prio } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_and_all_is_as_a_line_has_it() {
        let (mut one, mut other) = (Drawn::new(7), Drawn::new(7));
        for _ in 0..200 {
            for hook in Hook::ALL {
                let context = one.context(hook);
                assert_eq!(context, other.context(hook));
                let tids = [context.own.tid, context.best.tid];
                assert!(hook != Hook::CmpNode || tids[0] != tids[1], "{context:?}");
                assert!(context.round < 16 && context.own.numa < 2, "{context:?}");
            }
        }
        assert_ne!(Drawn::new(8).context(Hook::CmpNode), Drawn::new(7).context(Hook::CmpNode));
    }
}
