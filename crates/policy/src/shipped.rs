//! The policies that come with lockwright.

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub idea: &'static str,
    /// Its source in C.
    pub source: &'static str,
    /// Its object file, which `cargo xtask bpf` makes.
    pub object: &'static [u8],
}

macro_rules! shipped {
    ($($name:literal $idea:literal;)*) => {
        &[$(Shipped {
            name: $name,
            idea: $idea,
            source: include_str!(concat!("../policies/", $name, ".bpf.c")),
            object: include_bytes!(concat!("../policies/", $name, ".bpf.o")),
        },)*]
    };
}

/// All of them: those that order waiters first.
pub fn shipped() -> &'static [Shipped] {
    shipped! {
        "big-first" "threads on faster cores go first, but nobody waits much longer than 2 ms";
        "numa" "waiters of the next holder's NUMA node go first (ShflLock)";
        "numa-turns" "NUMA nodes take turns: the others' threads stand by meanwhile";
        "proportional" "little cores get one turn for every ten of big cores (SHFL-PB10)";
        "slo-order" "threads on slower cores stand by for their epoch's window (LibASL)";
        "cal" "the waiter that has waited longest relative to its section goes first (CAL)";
        "inheritance" "threads that hold other locks go first";
        "priority" "larger tags go first, then higher priorities";
        "call-path" "threads that are inside an epoch go first, tighter SLOs before others";
        "pi" "the holder gets its waiters' priority, and they go by priority";
        "scl" "threads get equal shares of the lock's time (SCL)";
        "scl-amp" "threads get equal shares of the lock's work, on cores of any speed";
        "tenants" "tenants share the lock's time by their weights";
        "parking" "waiters stay awake, sleep, or wake early, by how long they will wait";
        "vcpu" "waiters that sleep or have lost their CPU are passed over";
        "bravo" "a lock that is mostly read gets distributed readers (BRAVO)";
        "histogram" "counts waits by their length, and reports the longest; changes nothing";
    }
}
