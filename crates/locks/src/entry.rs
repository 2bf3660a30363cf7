//! What the catalogue says about a lock.

/// How a lock gets into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Word 0 of `pthread_mutex_t` *is* the lock (glibc's own protocol). The algorithm decides who waits, and
    /// how. We recommend these for programs.
    Front,
    /// The textbook algorithm, as published. Under the preload it stands in front of word 0: its
    /// holder may compete for the word.
    Whole,
    /// Runs sections on a thread other than the one that asked, listed apart: programs have to hand their sections over.
    Delegated,
    /// A readers-writer lock, listed apart: it serves no mutex.
    ReadWrite,
}

/// What a lock promises about the order of its waiters. `sim` and `explore` check it at every acquisition. No
/// lock's promise covers threads that don't queue (trylock, timed locks, signalled condvar waiters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// None: any waiter may be overtaken any number of times.
    Nothing,
    /// First come, first served: once others can see that a waiter waits, no later arrival is served
    /// before it.
    Arrival,
    /// While a waiter is head of the line, at most `bypass` (see the tuning) threads that came after it
    /// take the lock. While the head naps or watches, for a bounded time, they don't count.
    Bypass,
    /// `Arrival` unless threads outnumber the CPUs; always `Bypass`.
    ArrivalOrBypass,
}

/// One option of a lock, as in `fifo:bypass=64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// The word before `=`.
    pub key: &'static str,
    /// What it means, with its unit.
    pub meaning: &'static str,
    /// The smallest legal value.
    pub min: u32,
    /// The largest legal value.
    pub max: u32,
    /// The default value; `None`: the machine decides (CPUs, affinity, quota).
    pub default: Option<u32>,
}

impl OptionSpec {
    /// Is it a time, in ns?
    pub fn is_time(&self) -> bool {
        self.meaning.starts_with("ns ")
    }

    /// The same, with a lock's own default.
    pub const fn or(self, default: u32) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// What the catalogue says about a lock. Each lock's file exports its entry as `ENTRY`; the catalogue has those of presets.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, everywhere: file name, command line, environment.
    pub id: &'static str,
    /// Front, whole, delegated, or a readers-writer lock.
    pub kind: Kind,
    /// The lock whose rule or algorithm it shares, with other defaults; `None`: it has a file of its own.
    pub preset_of: Option<&'static str>,
    /// One line: the idea.
    pub idea: &'static str,
    /// Authors, title, venue, year, figure; or where the protocol comes from.
    pub source: &'static str,
    /// In which order waiters get the lock, in words.
    pub order: &'static str,
    /// The same, in the form that is checked.
    pub promise: Promise,
    /// Do waiters on slower cores stand by for a window of time before they ask?
    pub stands_by: bool,
    /// Bytes per lock and per waiter.
    pub space: &'static str,
    /// Who sleeps, who wakes whom, and when.
    pub wakes: &'static str,
    /// Who may be delayed, by what, and for how long at most, if that is bounded.
    pub delay: &'static str,
    /// When to use it, and when not.
    pub advice: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
}
