//! The program in the kernel: loaded, attached, read out.

use crate::profile::{Cost, Lock, Lost, Owner, Profile, Role, StackWaits, Sum, Unended};
use crate::raw::{self, tally};
use crate::{Kind, Obstacle};
use aya::maps::{Array, HashMap, MapData, StackTraceMap};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use lockwright_contract::histogram::{BUCKETS, middle};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

/// Whose waits are observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Waits of the whole machine.
    All,
    /// Waits of these processes, and of children that they create.
    Processes(Vec<u32>),
    /// Waits of processes that we start from now on, and of their children.
    Children,
}

/// What they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitedFor {
    /// Kernel locks of these kinds ([`kinds_of`](crate::kinds_of)); `u64::MAX`: all.
    Locks(u64),
    /// Futexes. Meanwhile every system call of the machine takes a little longer.
    Futexes,
}

/// A running observation; it ends when this is dropped.
pub struct Observer {
    ebpf: Ebpf,
    what: WaitedFor,
    since: Instant,
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
    /// What the kernel or our privileges lack for it.
    pub fn attach(what: WaitedFor, chosen: &Chosen) -> Result<Self, Obstacle> {
        if let Some(missing) = Obstacle::missing() {
            return Err(missing);
        }
        let with_ids = *chosen != Chosen::All || what == WaitedFor::Futexes;
        if with_ids && let Some(foreign) = Obstacle::ids() {
            return Err(foreign);
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Obstacle::NoTypes);
        }
        let btf = Btf::from_sys_fs().map_err(|error| Obstacle::of(&error))?;
        let kinds = match what {
            WaitedFor::Locks(kinds) => kinds,
            WaitedFor::Futexes => 0,
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
        let mut observer = Self { ebpf, what, since: Instant::now() };
        if *chosen != Chosen::All {
            observer.start(&btf, &DESCENDANTS)?;
        }
        // Attach the ends first: a wait whose end isn't seen would never seem to end.
        let mut places = observer.places();
        places.reverse();
        observer.start(&btf, &places)?;
        observer.since = Instant::now();
        Ok(observer)
    }

    /// Where waits begin and end.
    fn places(&self) -> [Place; 2] {
        match self.what {
            WaitedFor::Locks(_) => LOCKS,
            WaitedFor::Futexes => FUTEXES,
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

    /// Processes with futex waits. Their code can be named only while they live.
    pub fn futex_users(&self) -> BTreeSet<u32> {
        let users = self.map::<u32, u32>("futex_users");
        users.keys().filter_map(Result::ok).collect()
    }

    /// Ends the observation.
    ///
    /// # Errors
    ///
    /// The kernel doesn't hand over its counts.
    pub fn finish(mut self) -> Result<Profile, Obstacle> {
        let elapsed = self.since.elapsed();
        // From here on, nothing changes.
        for (function, _) in self.places() {
            let _ = self.program(function).unload();
        }
        let waits = self.waits().map_err(|error| Obstacle::of(&error))?;
        Ok(Profile {
            waits,
            unended: self.unended(),
            lost: self.lost(),
            cost: self.cost(),
            elapsed,
        })
    }

    fn cost(&self) -> Cost {
        let counts = self.array("costs");
        let sum = |first: u32| {
            let mut sum = Sum::default();
            for bucket in 0..BUCKETS {
                let count = counts.get(&(first + bucket as u32), 0).unwrap_or_default();
                if count > 0 {
                    let ns = middle(bucket);
                    sum.add(bucket as u16, count, count * ns, ns);
                }
            }
            sum
        };
        Cost { begin: sum(0), end: sum(BUCKETS as u32) }
    }

    fn waits(&self) -> Result<Vec<StackWaits>, aya::maps::MapError> {
        let sums = self.map::<raw::Key, raw::Sum>("waits");
        let mut all = BTreeMap::<(u64, u8, u8, u32, i32), Sum>::new();
        for entry in sums.iter() {
            let (key, sum) = entry?;
            let of = (key.lock, key.kind, key.role, key.process, key.stack);
            all.entry(of).or_default().add(key.bucket, sum.count, sum.total_ns, sum.max_ns);
        }
        let stacks =
            |name: &str| StackTraceMap::try_from(self.ebpf.map(name).expect("a map of ours"));
        let (sleepers, spinners) = (stacks("stacks")?, stacks("spin_stacks")?);
        let frames = |id: i32, spins: bool| {
            let stacks = if spins { &spinners } else { &sleepers };
            let trace = u32::try_from(id).ok().and_then(|id| stacks.get(&id, 0).ok());
            trace.map(|trace| trace.frames().iter().map(|frame| frame.ip).collect())
        };
        let owners =
            Owners::of(all.keys().map(|(lock, _, role, process, _)| (*lock, *role, *process)));
        let names = self.map::<u32, raw::Name>("names");
        let mut stack_of = BTreeMap::<(i32, bool), Vec<u64>>::new();
        let wait = |((address, kind, role, process, stack), sum)| {
            let kind = Kind(kind);
            let of = (stack, kind.spins());
            let known = stack_of.entry(of);
            let frames = known.or_insert_with(|| frames(of.0, of.1).unwrap_or_default()).clone();
            let owner = owners.owner(address, role, process).map(|(role, process)| {
                let name = names.get(&process, 0).unwrap_or_default();
                let name = String::from_utf8_lossy(&name);
                let name = name.split('\0').next().unwrap_or_default().to_owned();
                Owner { role, process, name }
            });
            let process = (kind == Kind::FUTEX).then_some(process);
            StackWaits { lock: Lock { address, owner }, kind, process, frames, sum }
        };
        Ok(all.into_iter().map(wait).collect())
    }

    /// One of the program's maps, with such keys and values.
    fn map<K: Pod, V: Pod>(&self, name: &str) -> HashMap<&MapData, K, V> {
        let map = self.ebpf.map(name).expect("a map of ours");
        HashMap::try_from(map).expect("our structs mirror the program's")
    }

    /// One of the program's arrays of counts.
    fn array(&self, name: &str) -> Array<&MapData, u64> {
        let map = self.ebpf.map(name).expect("a map of ours");
        Array::try_from(map).expect("an array of such numbers")
    }

    fn unended(&self) -> Unended {
        let map = match self.what {
            WaitedFor::Locks(_) => "sleeping",
            WaitedFor::Futexes => "in_futex",
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
        let tallies = self.array("tallies");
        let get = |which| tallies.get(&which, 0).unwrap_or_default();
        Lost {
            waits: get(tally::LOST_WAITS),
            ns: get(tally::LOST_NS),
            stacks: get(tally::NO_STACK),
            unseen: get(tally::UNSEEN),
        }
    }
}

/// The owners of the locks that were seen, by address. After a process ends, another one's lock may have the same
/// address.
#[derive(Default)]
struct Owners(BTreeMap<u64, BTreeSet<(Role, u32)>>);

impl Owners {
    /// From addresses with role and process.
    fn of(seen: impl Iterator<Item = (u64, u8, u32)>) -> Self {
        let mut owners = Self::default();
        for (address, role, process) in seen {
            if let Some(role) = Role::of(role) {
                owners.0.entry(address).or_default().insert((role, process));
            }
        }
        owners
    }

    /// The lock's own process. If another process waits for it, without a role there, the address tells the owner,
    /// unless several processes had a lock there.
    fn owner(&self, address: u64, role: u8, process: u32) -> Option<(Role, u32)> {
        match (Role::of(role), self.0.get(&address)) {
            (Some(role), _) => Some((role, process)),
            (None, Some(known)) if known.len() == 1 => known.first().copied(),
            _ => None,
        }
    }
}

/// The clock of the program in the kernel, ns.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_two_processes_lock_tells_nothing_of_a_third_ones_wait() {
        let owners = Owners::of([(64, 1, 7), (64, 0, 0), (96, 1, 7), (96, 1, 8)].into_iter());
        assert_eq!(owners.owner(64, 1, 7), Some((Role::MmapLock, 7)));
        assert_eq!(owners.owner(64, 0, 0), Some((Role::MmapLock, 7)));
        assert_eq!(owners.owner(96, 1, 8), Some((Role::MmapLock, 8)));
        assert_eq!(owners.owner(96, 0, 0), None);
        assert_eq!(owners.owner(32, 0, 0), None);
    }
}
