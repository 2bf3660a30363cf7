//! The hooks of a lock policy: what a policy is asked, what it is told, and which answers count.
//!
//! S. Park, D. Zhou, Y. Qian, I. Calciu, T. Kim, S. Kashyap, *Application-Informed Kernel Synchronization Primitives*, OSDI 2022;
//! S. Park, I. Calciu, T. Kim, S. Kashyap, *Contextual Concurrency Control*, HotOS 2021, table 1.
//!
//! `include/lockwright_policy.h` shows the same to policies in C. The layouts only grow, at their ends.

/// What a policy may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Hook {
    /// A waiter that is about to be first in line looks at those behind it, in order. Should `curr` be next? 0: no. 1: yes, look no
    /// further. 2: rather than `best`, but look on. 3: yes, and look on: it goes first together with all others that get this answer, in
    /// their order (then `best` doesn't count).
    CmpNode = 0,
    /// Should this waiter (`own`) leave the order as it is? 0: no. 1: yes.
    SkipShuffle = 1,
    /// How should this waiter wait, until it is first? 0: as the lock does. 1: asleep. 2: asleep, but awake before its turn. 3: as the
    /// lock does, and the holder gets this waiter's priority until it releases.
    ScheduleWaiter = 2,
    /// A thread asks for the lock, whether or not it is free. 0: as the lock does. 1: it may take a free lock past the line.
    LockAcquire = 3,
    /// A thread found the lock taken. How long does it stand by before it joins the line, ns?
    LockContended = 4,
    /// A thread has the lock. The answer is 0.
    LockAcquired = 5,
    /// The holder is about to release the lock. The answer is 0.
    LockRelease = 6,
    /// A thread has a readers-writer lock, to read ([`READER`]) or to write, and hasn't got it by distributed readers' table. How should
    /// readers ask from now on? 0: as the lock does. 1: distributed. 2: not distributed. Only readers' answers count: a writer that has had
    /// to wait for distributed readers, for [`Node::wait_ns`], has ended that.
    RwBias = 7,
}

impl Hook {
    /// All hooks, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::CmpNode,
        Self::SkipShuffle,
        Self::ScheduleWaiter,
        Self::LockAcquire,
        Self::LockContended,
        Self::LockAcquired,
        Self::LockRelease,
        Self::RwBias,
    ];

    /// Its name, as policies write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CmpNode => "cmp_node",
            Self::SkipShuffle => "skip_shuffle",
            Self::ScheduleWaiter => "schedule_waiter",
            Self::LockAcquire => "lock_acquire",
            Self::LockContended => "lock_contended",
            Self::LockAcquired => "lock_acquired",
            Self::LockRelease => "lock_release",
            Self::RwBias => "rw_bias",
        }
    }

    /// The largest answer; a larger one counts as 0.
    pub const fn largest(self) -> u64 {
        match self {
            Self::SkipShuffle | Self::LockAcquire => 1,
            Self::CmpNode | Self::ScheduleWaiter | Self::RwBias => 3,
            Self::LockContended => 100_000_000,
            Self::LockAcquired | Self::LockRelease => 0,
        }
    }

    /// The answer of [`RwBias`](Self::RwBias) for a lock that the policy isn't for: the policy that was loaded before is asked.
    pub const NOT_FOR_IT: u64 = 3;

    /// Its bit in a set of hooks.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// In a set of hooks: the policy reads `cs_ns` or `avg_cs_ns`. Otherwise locks don't measure them, and they are 0.
pub const LENGTHS: u32 = 1 << 15;
/// In a set of hooks: the policy reads `nwaiters`. Otherwise it is 0: a holder would move the lock's cache line to know it.
pub const WAITERS: u32 = 1 << 14;
/// In a set of hooks: the policy reads something of a [`Node`]. Otherwise nobody describes threads.
pub const THREADS: u32 = 1 << 13;
/// In a set of hooks: the policy reads `now_ns`. Otherwise it is 0, unless the lock has read the clock anyway.
pub const CLOCK: u32 = 1 << 12;
/// What a policy may read that takes time to know.
pub const READS: u32 = LENGTHS | WAITERS | THREADS | CLOCK;

/// A thread that waits, or asks, as a policy sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Node {
    /// The kernel's thread id.
    pub tid: u32,
    /// The CPU on which it asked.
    pub cpu: u32,
    /// That CPU's NUMA node, or cluster.
    pub numa: u32,
    /// The class of its core; 0: the fastest.
    pub core_class: u32,
    /// Its priority: 0 to 19 below normal is -1 to -19, real-time is above 0. 0: normal.
    pub prio: i32,
    /// [`ASLEEP`], [`OFF_CPU`], [`IN_EPOCH`], [`READER`].
    pub flags: u32,
    /// The speed of its core, in 1024ths of the fastest.
    pub speed: u32,
    /// How many waiters have been moved past it.
    pub passed: u32,
    /// How long it has waited, ns.
    pub wait_ns: u64,
    /// How long the section that it asks for usually lasts on a core like its own, ns; 0: not known. See [`LENGTHS`].
    pub cs_ns: u64,
    /// How long it has held locks that run on policies with `lock_acquired` and `lock_release`, ns.
    pub cs_total_ns: u64,
    /// How many such locks it holds.
    pub held_locks: u32,
    /// The reorder window of its epoch, ns; 100 ms outside epochs.
    pub window_ns: u32,
    /// The SLO of its epoch, ns; 0: none.
    pub slo_ns: u64,
    /// What somebody has tagged the thread with; 0: nothing.
    pub tag: u64,
}

/// In [`Node::flags`]: it sleeps, or is about to.
pub const ASLEEP: u32 = 1;
/// In [`Node::flags`]: it waits awake, but seems to have lost its CPU.
pub const OFF_CPU: u32 = 2;
/// In [`Node::flags`]: it is in an epoch.
pub const IN_EPOCH: u32 = 4;
/// In [`Node::flags`], for `rw_bias`: it asks to read. Without it, to write.
pub const READER: u32 = 8;

/// What a hook is told. Policies only read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Context {
    /// The kernel's, in its own tracepoints; here 0, and policies may not read it.
    pub reserved: u64,
    /// Identifies the lock: its address.
    pub lock_id: u64,
    /// 0: a plain mutex. 1: recursive. 2: error-checking. 3: a readers-writer lock.
    pub lock_kind: u32,
    /// `cmp_node`: the place of `curr` behind the one that looks, from 0.
    pub round: u32,
    /// `cmp_node`: how many waiters have been moved past the next in line.
    pub batch: u32,
    /// How many threads wait in line; a hint. See [`WAITERS`].
    pub nwaiters: u32,
    /// The clock, ns; 0 in `lock_contended`, and in hooks that are asked while the lock is free. See [`CLOCK`].
    pub now_ns: u64,
    /// How long the lock is usually held on the fastest cores, ns; 0: not known.
    pub avg_cs_ns: u64,
    /// The thread that asks.
    pub own: Node,
    /// `cmp_node`: the best so far; at first the next in line.
    pub best: Node,
    /// `cmp_node`: the waiter in question.
    pub curr: Node,
}

const _: () = assert!(size_of::<Node>() == 80 && size_of::<Context>() == 288);

/// What a policy's helpers ask of the machine on which it runs, about the thread that calls the hook.
pub trait World {
    /// The clock, ns.
    fn now(&self) -> u64;
    /// The thread's CPU.
    fn cpu(&self) -> u32;
    /// That CPU's NUMA node, or cluster.
    fn numa(&self) -> u32;
    /// The class of its core.
    fn class(&self) -> u32;
    /// Process << 32 | thread.
    fn pid_tgid(&self) -> u64;
    /// What this thread has been tagged with; 0: nothing.
    fn tag(&self, tid: u32) -> u64;
    /// This thread's priority, see [`Node::prio`].
    fn prio(&self, tid: u32) -> i32;
    /// The policy reads, or writes, memory of its own at this address: its maps and variables. Simulated cores fetch the cache line.
    fn touches(&self, address: usize, writes: bool) {
        let _ = (address, writes);
    }
}

/// A policy's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The answer; one out of range counts as 0.
    pub value: u64,
    /// How many instructions it took; 0: not counted. Simulated time passes by this.
    pub insns: u32,
}

/// A policy in this process: eBPF, or Rust. Locks reach it by [`Programmable::ask`](crate::Programmable::ask).
pub trait Policy {
    /// The sum of its hooks' [bits](Hook::bit), and of what they read, of [`READS`].
    fn hooks(&self) -> u32;
    /// Asks it.
    fn ask(&self, hook: Hook, context: &Context, world: &dyn World) -> Answer;
}
