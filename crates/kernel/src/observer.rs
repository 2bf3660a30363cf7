//! The program in the kernel: loaded, attached, read out.

use crate::profile::{Cost, Lock, Lost, Owner, Profile, Role, Sum, Unended, Wait};
use crate::raw::{self, tally};
use crate::{Kind, Obstacle};
use aya::maps::{Array, HashMap, MapData, StackTraceMap};
use aya::programs::BtfTracePoint;
use aya::sys::{Stats, enable_stats};
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

/// Whose waits are observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Those of the whole machine.
    All,
    /// Those of these processes, and of children that they get.
    Processes(Vec<u32>),
    /// Those of processes that we start from now on, and of their children.
    Children,
}

/// What they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Locks of the kernel of these kinds ([`kinds_of`](crate::kinds_of)); `u64::MAX`: all.
    Locks(u64),
    /// Futexes. Each system call of the machine takes a little longer meanwhile.
    Futexes,
}

/// An observation that goes on, until this goes.
pub struct Observer {
    ebpf: Ebpf,
    what: What,
    since: Instant,
    /// While this is open the kernel measures what our programs take.
    stats: Option<OwnedFd>,
}

/// A function of `bpf/contention.bpf.c`, and the tracepoint where it runs.
type Place = (&'static str, &'static str);

const LOCKS: [Place; 2] =
    [("contention_begin", "contention_begin"), ("contention_end", "contention_end")];
const FUTEXES: [Place; 2] = [("futex_begin", "sys_enter"), ("futex_end", "sys_exit")];
const DESCENDANTS: [Place; 2] = [("forked", "sched_process_fork"), ("freed", "sched_process_free")];

impl Observer {
    /// Begins to observe.
    ///
    /// # Errors
    ///
    /// What the kernel, or our privilege, lacks for it.
    pub fn attach(what: What, chosen: &Chosen) -> Result<Self, Obstacle> {
        if let Some(missing) = Obstacle::missing() {
            return Err(missing);
        }
        let with_ids = *chosen != Chosen::All || what == What::Futexes;
        if with_ids && let Some(foreign) = Obstacle::ids() {
            return Err(foreign);
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Obstacle::NoTypes);
        }
        let btf = Btf::from_sys_fs().map_err(|error| Obstacle::of(&error))?;
        let kinds = match what {
            What::Locks(kinds) => kinds,
            What::Futexes => 0,
        };
        let choosy = u8::from(*chosen != Chosen::All);
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("kinds", &kinds, true)
            .override_global("choosy", &choosy, true)
            .override_global("futex_call", &(libc::SYS_futex as u64), true)
            .load(raw::PROGRAM)?;
        let map = ebpf.map_mut("chosen").expect("a map of ours");
        let mut of = HashMap::<_, u32, u32>::try_from(map).expect("our struct's sizes");
        let seeds: Vec<(u32, u32)> = match chosen {
            Chosen::All => Vec::new(),
            Chosen::Processes(all) => all.iter().map(|process| (*process, 1)).collect(),
            // Not ourselves.
            Chosen::Children => vec![(process::id(), 0)],
        };
        for (process, counts) in seeds {
            of.insert(process, counts, 0).map_err(|error| Obstacle::of(&error))?;
        }
        // It needs CAP_SYS_ADMIN; without, we do not tell the cost.
        let stats = enable_stats(Stats::RunTime).ok();
        let mut observer = Self { ebpf, what, since: Instant::now(), stats };
        if *chosen != Chosen::All {
            observer.start(&btf, &DESCENDANTS)?;
        }
        // Ends first: a wait whose end is not seen seems to last.
        let mut places = observer.places();
        places.reverse();
        observer.start(&btf, &places)?;
        observer.since = Instant::now();
        Ok(observer)
    }

    /// Where waits begin and end.
    fn places(&self) -> [Place; 2] {
        match self.what {
            What::Locks(_) => LOCKS,
            What::Futexes => FUTEXES,
        }
    }

    fn start(&mut self, btf: &Btf, places: &[Place]) -> Result<(), Obstacle> {
        for (function, tracepoint) in places {
            let program = self.program(function);
            program.load(tracepoint, btf)?;
            program.attach()?;
        }
        Ok(())
    }

    fn program(&mut self, function: &str) -> &mut BtfTracePoint {
        let program = self.ebpf.program_mut(function).expect("our program has this function");
        program.try_into().expect("all our functions are of this type")
    }

    /// Is what we cost being measured?
    pub fn measures_itself(&self) -> bool {
        self.stats.is_some()
    }

    /// Processes of which futex waits were seen. Their code can be named only while they live.
    pub fn futex_users(&self) -> BTreeSet<u32> {
        let users = self.map::<u32, u32>("futex_users");
        users.keys().filter_map(Result::ok).collect()
    }

    /// Ends the observation.
    ///
    /// # Errors
    ///
    /// The kernel does not give out what it has counted.
    pub fn finish(mut self) -> Result<Profile, Obstacle> {
        let elapsed = self.since.elapsed();
        let cost = self.cost();
        // From here on nothing changes any more.
        for (function, _) in self.places() {
            let _ = self.program(function).unload();
        }
        let waits = self.waits().map_err(|error| Obstacle::of(&error))?;
        Ok(Profile { waits, unended: self.unended(), lost: self.lost(), cost, elapsed })
    }

    fn cost(&mut self) -> Option<Cost> {
        self.stats.as_ref()?;
        let each = |info: &aya::programs::ProgramInfo| {
            let runs = info.run_count();
            (info.run_time().as_nanos() as u64, runs)
        };
        let [begin, end] = self.places();
        let begin = each(&self.program(begin.0).info().ok()?);
        let end = each(&self.program(end.0).info().ok()?);
        let mean = |(ns, runs): (u64, u64)| ns as f64 / runs.max(1) as f64;
        Some(Cost {
            begin_ns: mean(begin),
            end_ns: mean(end),
            runs: begin.1 + end.1,
            total_ns: begin.0 + end.0,
        })
    }

    fn waits(&self) -> Result<Vec<Wait>, aya::maps::MapError> {
        let sums = self.map::<raw::Key, raw::Sum>("waits");
        let mut all = BTreeMap::<(u64, u8, u32, i32), Sum>::new();
        for entry in sums.iter() {
            let (key, sum) = entry?;
            let wait = all.entry((key.lock, key.kind, key.process, key.stack)).or_default();
            wait.add(key.bucket, sum.count, sum.total_ns, sum.max_ns);
        }
        let owners = self.map::<u64, raw::Owner>("owners");
        let owners: BTreeMap<u64, raw::Owner> = owners.iter().filter_map(Result::ok).collect();
        let stacks = StackTraceMap::try_from(self.ebpf.map("stacks").expect("a map of ours"))?;
        let frames = |id: i32| {
            let trace = u32::try_from(id).ok().and_then(|id| stacks.get(&id, 0).ok());
            trace.map(|trace| trace.frames().iter().map(|frame| frame.ip).collect())
        };
        let mut stack_of = BTreeMap::<i32, Vec<u64>>::new();
        let wait = |((address, kind, process, stack), sum)| {
            let kind = Kind(kind);
            let frames =
                stack_of.entry(stack).or_insert_with(|| frames(stack).unwrap_or_default()).clone();
            let is_futex = kind == Kind::FUTEX;
            let owner = if is_futex { None } else { owner(&owners, address, kind) };
            let process = is_futex.then_some(process);
            Wait { lock: Lock { address, owner }, kind, process, frames, sum }
        };
        Ok(all.into_iter().map(wait).collect())
    }

    /// One of the program's maps, which has such keys and values.
    fn map<K: Pod, V: Pod>(&self, name: &str) -> HashMap<&MapData, K, V> {
        let map = self.ebpf.map(name).expect("a map of ours");
        HashMap::try_from(map).expect("our structs mirror the program's")
    }

    fn unended(&self) -> Unended {
        let map = match self.what {
            What::Locks(_) => "sleeping",
            What::Futexes => "in_futex",
        };
        let pending = self.map::<u32, raw::Pending>(map);
        let since: Vec<_> = pending.iter().flatten().map(|(_, wait)| wait.since_ns).collect();
        let first = since.iter().min();
        Unended {
            count: since.len() as u64,
            longest_ns: first.map_or(0, |first| now_ns().saturating_sub(*first)),
        }
    }

    fn lost(&self) -> Lost {
        let tallies: Array<_, u64> =
            Array::try_from(self.ebpf.map("tallies").expect("a map of ours")).expect("an array");
        let get = |which| tallies.get(&which, 0).unwrap_or_default();
        Lost {
            waits: get(tally::LOST_WAITS),
            ns: get(tally::LOST_NS),
            stacks: get(tally::NO_STACK),
            unseen: get(tally::UNSEEN),
        }
    }
}

/// Whose lock it is.
fn owner(owners: &BTreeMap<u64, raw::Owner>, address: u64, kind: Kind) -> Option<Owner> {
    /// Longer than any of those locks.
    const LOCK: u64 = 64;
    let (at, owner) = owners.range(..=address).next_back()?;
    let role = Role::of(owner.role)?;
    let is_inner = *at != address;
    // Behind the first bytes of a lock at which one sleeps lies the spinlock of its line.
    let sleeps = matches!(role, Role::MmapLock | Role::CredGuard | Role::ExecUpdate);
    if is_inner && !(sleeps && kind.spins() && address - at < LOCK) {
        return None;
    }
    let name = String::from_utf8_lossy(&owner.comm);
    let name = name.trim_end_matches('\0').to_owned();
    Some(Owner { role, is_inner, process: owner.process, name })
}

/// The clock of the kernel's program, ns.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos() as u64
}
