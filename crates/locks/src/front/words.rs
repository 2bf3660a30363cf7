//! The fields of the two words that a front lock keeps beside word 0: counts, flags, and hints.

/// The side word's fields. The lowest five bits and two more belong to the runtime (which lock this mutex runs on).
pub mod side {
    /// Bits that the front locks leave alone: the runtime's.
    pub const LOCK: u32 = 0x1f;
    /// It is the turn of the line's head, which has napped: nobody overtakes it. While it naps: nobody has taken the lock since
    /// the head looked. A hint, on two CPUs.
    pub const TURN: u32 = 1 << 5;
    /// When a thread last left the line, waiters and holder outnumbered the CPUs.
    pub const CROWDED: u32 = 1 << 6;
    /// One thread that waits beside the line (3 bits).
    pub const SPINNER: u32 = 1 << 7;
    /// The field of threads that wait beside the line.
    pub const SPINNERS: u32 = 7 << 7;
    /// One arrival that overtook the line since a thread last left it (9 bits). Only the holder writes it.
    pub const BYPASS: u32 = 1 << 10;
    /// The field of bypasses.
    pub const BYPASSES: u32 = 0x1ff << 10;
    /// One generation of the runtime's table (2 bits, which wrap): the runtime's, too.
    pub const GENERATION: u32 = 1 << 19;
    /// The field of generations.
    pub const GENERATIONS: u32 = 3 << 19;
    /// One thread that a signal moved to word 0 and no unlock has woken yet (5 bits). Only the holder writes it.
    pub const MOVED: u32 = 1 << 21;
    /// The field of moved threads.
    pub const MOVEDS: u32 = 31 << 21;
    /// One unlock that preferred moved threads to others asleep on word 0, since the last that did not (3 bits). Only the holder
    /// writes it.
    pub const PREFERENCE: u32 = 1 << 26;
    /// The field of preferences.
    pub const PREFERENCES: u32 = 7 << 26;
    /// Somebody has held the lock by a node, and no unlock by a node has found the line empty since. Only the holder writes it.
    pub const BY_NODE: u32 = 1 << 29;
    /// The era in which the threads beside the line counted themselves: one fork (2 bits, the highest: they wrap).
    pub const FORK: u32 = 1 << 30;
    /// The field of forks.
    pub const ERA: u32 = 3 << 30;
}

/// The mood word's fields, all hints. The lower half belongs to the runtime (condvar waiters). If glibc's own code works on the
/// mutex, it counts holders in the whole word, and not atomically. So it may undo our writes, or change our half by a carry.
///
/// That costs time, but never a wake: word 0, gates and `next` alone decide who sleeps and who is woken. And it heals:
/// NAPPING, which lets arrivals overtake uncounted, when the head looks at the word again; LENGTH, when the line
/// becomes empty; the others by what waiters observe.
pub mod mood {
    /// One step towards "saturated" (3 bits).
    pub const STEP: u32 = 1 << 16;
    /// The field of steps.
    pub const STEPS: u32 = 7 << 16;
    /// The thread whose turn it is runs on a core of a slower class.
    pub const SLOW: u32 = 1 << 19;
    /// The lock counts as saturated; under mutexee.rs, most hand-overs go to threads that have slept.
    pub const SATURATED: u32 = 1 << 21;
    /// Steps at which it begins to count as saturated.
    pub const SATURATED_AT: u32 = 6 << 16;
    /// Steps below which it no longer does.
    pub const IDLE_AT: u32 = 3 << 16;
    /// Holders seem to lose their CPUs: a thread has waited awake for as long as that can pay, and the holder did not release.
    pub const STALLED: u32 = 1 << 22;
    /// One waiter in the line (9 bits, which wrap).
    pub const WAITER: u32 = 1 << 23;
    /// How many waiters the field can tell apart.
    pub const WAITERS: u32 = 1 << 9;
    /// The field of waiters.
    pub const LENGTH: u32 = (WAITERS - 1) << 23;
    /// Larger values say nothing: a waiter that is about to join may not be counted, and then the count falls below 0.
    pub const MOST: u32 = WAITERS - 16;

    /// How many waiters are in the line, by this mood word.
    pub fn waiters(mood: u32) -> u32 {
        let count = mood / WAITER; // the word's highest field
        if count < MOST { count } else { 0 }
    }

    /// This many waiters are a crowd on any machine.
    pub const MANY: u32 = WAITERS - 64;
    /// The line's head naps or watches (batch.rs), or the lock is saturated and its head isn't awake yet. Any thread that finds
    /// the word free may take it, uncounted.
    pub const NAPPING: u32 = 1 << 20;
}
