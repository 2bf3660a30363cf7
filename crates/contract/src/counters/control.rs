//! How a command tells a running process what to count. It writes a word in the process's memory, as a debugger would.
//! The process reads the word when a thread has to wait for a lock.
//!
//! A command raises the level for a limited time, and renews that time as long as it runs. If the command is killed,
//! the first thread that has to wait after that time lowers the level again.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The symbol of a process's [`Control`].
pub const SYMBOL: &str = "lockwright_observe";
/// The first bytes of a control. They change with its layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockob.3");

/// How much is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Nothing.
    Off = 0,
    /// Every contended acquisition. All waits with a sleep are timed. Of the other waits, one in N is timed
    /// ([`Sampling`]), and counts as N waits.
    Counters = 1,
    /// `Counters`, plus owners, cores and stacks.
    Full = 2,
}

/// Selects the waits of a thread that are timed, and how many waits each of them counts for. The first wait is timed,
/// so that a lock with a single wait is seen. After that, one wait in N is timed. N grows with the frequency of waits,
/// because timing costs as much as a short wait.
///
/// All zeroes: the thread hasn't waited yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling {
    /// When a wait was last timed, ns.
    last_ns: u64,
    /// Waits since then that no timed wait has counted for.
    waits: u32,
    /// When `waits` reaches this number, the next wait is timed.
    period: u32,
}

/// Where waits are rare, one in this many is timed.
pub const LEAST: u32 = 8;
/// Where waits are most frequent, one in this many is timed.
pub const MOST: u32 = 1024;
/// If a thread's timed waits occur at shorter intervals than this, fewer are timed, ns.
const FAST_NS: u64 = 1_000_000;
/// After this time any wait is timed, ns, so that an observer sees something.
const SLOW_NS: u64 = 100_000_000;
/// If at most one in this many of a thread's waits is timed, the thread waits so often that reading the clock each time
/// would slow the lock down.
const FREQUENT: u32 = 128;
/// Such a thread reads the clock at one wait in this many, in case its waits have become rare.
const LOOK: u32 = 16;

impl Sampling {
    /// A thread waits. Should it read the clock?
    #[inline]
    pub fn wants_clock(&mut self) -> bool {
        self.waits += 1;
        self.period < FREQUENT || self.waits >= self.period || self.waits.is_multiple_of(LOOK)
    }

    /// The thread has read the clock for this wait. Returns how many waits it counts for, a power of two; 0: it isn't
    /// timed.
    #[inline]
    pub fn next(&mut self, now_ns: u64) -> u32 {
        debug_assert!(self.waits > 0, "wants_clock counts the wait");
        let since = now_ns.wrapping_sub(self.last_ns);
        if self.waits < self.period && since < SLOW_NS {
            return 0;
        }
        let counts = 1 << self.waits.ilog2().min(MOST.ilog2());
        self.waits -= counts;
        let next = if since < FAST_NS { self.period * 2 } else { self.period / 2 };
        self.period = next.clamp(LEAST, MOST);
        self.last_ns = now_ns;
        counts
    }

    /// A wait that counts for `counts` waits took `ns`, and all of these happened within `span_ns`. Together they can't
    /// have taken longer than that. Returns how many waits it may count for; the rest counts with the next timed wait.
    /// (A wait in which the thread lost its CPU says nothing about the others.) `counts` is 0 for a wait that was timed because the thread slept,
    /// or gave up: it stands for itself, and no other wait stands for it.
    #[inline]
    pub fn cap(&mut self, counts: u32, ns: u64, span_ns: u64) -> u32 {
        if counts == 0 {
            self.waits = self.waits.saturating_sub(1);
            return 0;
        }
        let most = (span_ns / ns.max(1)).clamp(1, counts.into()) as u32;
        self.waits += counts - most;
        most
    }
}

/// Until when a thread's waits are accounted for, ns. Each counted wait moves it forward by the time that it and the waits that
/// it stands for may take at most. So a thread's waits never add up to more than the time that has passed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settled(u64);

impl Settled {
    /// Until when they are before a wait that began at `since_ns`. Nothing before `begun_ns`, when counting began, is
    /// accounted for any more. The first wait has none before it.
    #[inline]
    pub fn until(self, since_ns: u64, begun_ns: u64) -> u64 {
        if self.0 == 0 { since_ns } else { self.0.max(begun_ns).min(since_ns) }
    }

    /// A wait of `ns` counts only for itself. The time of others, before it, may still be accounted for. Returns the span for
    /// [`Sampling::cap`]: none.
    #[inline]
    pub fn alone(&mut self, until_ns: u64, ns: u64) -> u64 {
        self.0 = until_ns + ns;
        0
    }

    /// A wait that has ended now counts for others, too. Returns the span in which all of them took place.
    #[inline]
    pub fn all(&mut self, until_ns: u64, now_ns: u64) -> u64 {
        self.0 = now_ns;
        now_ns.saturating_sub(until_ns)
    }
}

impl Level {
    /// The level with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Off),
            1 => Some(Self::Counters),
            2 => Some(Self::Full),
            _ => None,
        }
    }

    /// The level with this name: `off`, `counters`, `full`.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Off, Self::Counters, Self::Full]
            .into_iter()
            .find(|level| level.name().as_bytes() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Counters => "counters",
            Self::Full => "full",
        }
    }
}

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// What is counted now: a [`Level`]'s number. Written by commands, too.
    pub level: AtomicU32,
    /// The level if no command requests a higher one: a [`Level`]'s number.
    pub own: AtomicU32,
    /// One of [`NONE`], [`BUSY`], [`OPEN`], [`FAILED`]: is there a segment?
    pub state: AtomicU32,
    /// If FAILED, why there is no segment: the system's error number, [`LINK`] or [`FOREIGN`].
    pub error: AtomicU32,
    /// Where the segment is mapped.
    pub base: AtomicU64,
    /// When counting started, ns of `CLOCK_MONOTONIC`: anything noted before that is out of date. Written by the
    /// command that raises the level from [`Level::Off`].
    pub since_ns: AtomicU64,
    /// The times until which commands request the levels 1 and 2, ns of `CLOCK_MONOTONIC`. Written by these commands.
    pub until_ns: [AtomicU64; LEASED],
}

/// Number of levels that commands may request.
pub const LEASED: usize = 2;

/// There is no segment yet: the first thread that has to wait makes it.
pub const NONE: u32 = 0;
/// A thread is making it.
pub const BUSY: u32 = 1;
/// The segment exists.
pub const OPEN: u32 = 2;
/// There can't be a segment.
pub const FAILED: u32 = 3;

/// In [`Control::error`]: the folder is a symbolic link.
pub const LINK: u32 = 1 << 16;
/// In [`Control::error`]: the folder is another user's.
pub const FOREIGN: u32 = 2 << 16;

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// Nothing is counted.
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            size: size_of::<Self>() as u32,
            level: AtomicU32::new(Level::Off as u32),
            own: AtomicU32::new(Level::Off as u32),
            state: AtomicU32::new(NONE),
            error: AtomicU32::new(0),
            base: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            until_ns: [const { AtomicU64::new(0) }; LEASED],
        }
    }

    /// Sets the process's own level when it starts.
    pub fn begin(&self, level: Level) {
        self.own.store(level as u32, Relaxed); // only one thread does this
        self.level.store(level as u32, Relaxed); // as above
    }

    /// Lowers the level if no command requests it any longer; `now_ns` is a time of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn expire(&self, now_ns: u64) {
        let (level, own) = (self.level.load(Relaxed), self.own.load(Relaxed)); // hints
        if level > own
            && self
                .until_ns
                .get(level as usize - 1)
                .is_none_or(|until| until.load(Relaxed) < now_ns)
        {
            self.lower(level, own, now_ns);
        }
    }

    #[cold]
    fn lower(&self, level: u32, own: u32, now_ns: u64) {
        let until_ns = [0, 1].map(|at: usize| self.until_ns[at].load(Relaxed)); // a command that renews one raises the level after it
        // A command may raise the level at the same time. If it did so just before, it will raise it again when it
        // renews.
        let _ = self.level.compare_exchange(level, asked(own, until_ns, now_ns), Relaxed, Relaxed);
    }
}

/// The number of the highest level that is requested, by the process itself or by a command.
pub fn asked(own: u32, until_ns: [u64; LEASED], now_ns: u64) -> u32 {
    let leased = (0..LEASED).rev().find(|&at| until_ns[at] >= now_ns);
    leased.map_or(0, |at| at as u32 + 1).max(own)
}

const _: () = assert!(
    core::mem::offset_of!(Control, magic) == 0 && core::mem::offset_of!(Control, size) == 8
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_that_are_timed_count_as_all() {
        for (pause_ns, apart) in
            [(0, 500..=MOST), (1_000, 300..=MOST), (1_000_000, LEAST - 1..=LEAST), (SLOW_NS, 1..=1)]
        {
            let mut sampling = Sampling::default();
            let (mut counted, mut timed) = (0, 0);
            for wait in 1..=10_000 {
                let now_ns = 5_000_000_000 + u64::from(wait) * pause_ns;
                let counts = if sampling.wants_clock() { sampling.next(now_ns) } else { 0 };
                assert!(counts == 0 || counts.is_power_of_two() && counts <= MOST);
                assert!(wait > 1 || counts == 1, "the first one is timed");
                counted += counts;
                timed += u32::from(counts != 0);
                assert!(counted <= wait && wait < counted + MOST, "{counted} of {wait}");
            }
            assert!(apart.contains(&(counted / timed)), "{pause_ns}: {counted} of {timed}");
        }
    }

    #[test]
    fn a_thread_whose_waits_become_rare_looks_at_the_clock_again() {
        let mut sampling = Sampling::default();
        for now_ns in 1..=100_000 {
            if sampling.wants_clock() {
                sampling.next(now_ns);
            }
        }
        assert_eq!(sampling.period, MOST);
        let mut timed = 0;
        for second in 1..=100 {
            timed +=
                u32::from(sampling.wants_clock() && sampling.next(second * 1_000_000_000) != 0);
        }
        assert!(timed >= 40, "{timed} of 100");
    }

    #[test]
    fn a_wait_that_took_long_stands_for_no_more_than_there_was_time_for() {
        let mut sampling = Sampling { waits: 1, ..Sampling::default() };
        assert_eq!((sampling.cap(64, 100, 6_400), sampling.waits), (64, 1));
        assert_eq!((sampling.cap(64, 1_000, 6_400), sampling.waits), (6, 59));
        assert_eq!((sampling.cap(64, 1_000_000, 6_400), sampling.waits), (1, 122));
        assert_eq!((sampling.cap(64, 0, 0), sampling.waits), (1, 185));
        // It slept: nothing else stands for it.
        assert_eq!((sampling.cap(0, 100, 0), sampling.waits), (0, 184));
    }

    #[test]
    fn a_threads_waits_add_up_to_no_more_than_the_time_that_has_passed() {
        let begin = 1_000_000_000;
        let (mut sampling, mut settled) = (Sampling::default(), Settled::default());
        let (mut now, mut total, mut random) = (begin, 0, 1_u64);
        let mut stood_for = 0;
        for wait in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Short ones, some in which the thread lost its CPU, and some with a sleep.
            let slept = (random >> 40).is_multiple_of(5);
            let ns = if slept || (random >> 50).is_multiple_of(10) { 3_000_000 } else { 100 };
            let counts = if sampling.wants_clock() || slept { sampling.next(now) } else { 0 };
            let since = now;
            now += ns;
            if counts != 0 || slept {
                let before = settled.until(since, begin);
                let span = match slept {
                    true => settled.alone(before, ns),
                    false => settled.all(before, now),
                };
                let counts = sampling.cap(counts, ns, span);
                let weight = if slept { 1 } else { u64::from(counts) };
                total += ns * weight;
                stood_for += weight;
                assert!(stood_for <= wait + 1, "{stood_for} of {wait}: one was counted twice");
            }
            assert!(total <= now - begin, "wait {wait}: {total} ns in {} ns", now - begin);
            now += 50;
        }
        // Nothing is lost either, but for what nobody has timed.
        assert!(total > (now - begin) / 2, "{total} ns in {} ns", now - begin);
    }

    #[test]
    fn the_time_of_a_sleep_is_accounted_for_once() {
        let mut settled = Settled::default();
        let before = settled.until(1_000, 0);
        assert_eq!((before, settled.all(before, 2_000)), (1_000, 1_000), "the first wait");
        let before = settled.until(2_500, 0);
        assert_eq!(
            (before, settled.alone(before, 4_000)),
            (2_000, 0),
            "a sleep from 2,500 to 6,500"
        );
        let before = settled.until(6_600, 0);
        assert_eq!(settled.all(before, 7_000), 1_000, "5,000 less the sleep");
        assert_eq!(settled.until(9_000, 8_000), 8_000, "counting began again");
    }

    #[test]
    fn a_level_lasts_as_long_as_somebody_asks_for_it() {
        let control = Control::new();
        let level = || Level::from_number(control.level.load(Relaxed));
        control.until_ns[0].store(100, Relaxed);
        control.until_ns[1].store(50, Relaxed);
        control.level.store(Level::Full as u32, Relaxed);
        for (now_ns, seen) in
            [(50, Level::Full), (51, Level::Counters), (100, Level::Counters), (101, Level::Off)]
        {
            control.expire(now_ns);
            assert_eq!(level(), Some(seen), "{now_ns}");
        }
        control.begin(Level::Counters);
        control.level.store(Level::Full as u32, Relaxed);
        control.expire(102);
        assert_eq!(level(), Some(Level::Counters), "its own level stays");
    }
}
