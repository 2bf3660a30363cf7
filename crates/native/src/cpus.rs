//! How many CPUs the program may keep busy: affinity and CPU quota together.
//!
//! A spinning thread that takes a CPU from the holder delays everybody, so a lock must know how many
//! threads can really run. The machine's number of CPUs doesn't tell: `taskset` and cpusets narrow
//! the affinity, and containers narrow the quota.

use crate::file::{self, Exhausted, Path, number};
use crate::kernel::system_call;
use crate::kernel::{self, Argument};
use crate::place;
use crate::topology::{self, CpuSet};
use core::ffi::CStr;
use lockwright_platform::Class;

/// The most bytes that are read from a file.
const TEXT: usize = 4096;

/// How many CPUs the program may keep busy, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usable {
    /// The number of CPUs in the calling thread's affinity mask; 0 if the kernel doesn't tell.
    pub affinity: u32,
    /// The smallest CPU quota of the control groups that contain us, if any of them has one.
    pub quota: Option<Quota>,
}

/// A CPU quota: `time` in each `period`, both in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time that may be used in a period.
    pub time_us: u32,
    /// The period's length.
    pub period_us: u32,
}

impl Quota {
    /// How many CPUs the quota can keep busy, rounded up.
    pub fn cpus(self) -> u32 {
        self.time_us.div_ceil(self.period_us).max(1)
    }

    fn is_below(self, other: Self) -> bool {
        u64::from(self.time_us) * u64::from(other.period_us)
            < u64::from(other.time_us) * u64::from(self.period_us)
    }
}

impl Usable {
    /// Asks the kernel.
    pub fn read() -> Self {
        let mut mask = Mask::NONE;
        mask.read(0);
        Self { affinity: mask.count(), quota: own_quota(&mut [0; TEXT]).unwrap_or_default() }
    }

    /// How many CPUs the program may keep busy at once, at least 1.
    pub fn cpus(self) -> u32 {
        let quota = self.quota.map_or(u32::MAX, Quota::cpus);
        match self.affinity {
            0 if self.quota.is_none() => 1,
            0 => quota,
            affinity => affinity.min(quota),
        }
    }
}

/// How many CPUs this program may keep busy at once, by affinity and CPU quota together; at least 1.
pub fn usable() -> u32 {
    Usable::read().cpus()
}

/// What a process may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// How many CPUs it may keep busy at once, at least 1.
    pub cpus: u32,
    /// The fastest class among the CPUs that it may run on, as [`place`] knows it.
    pub fastest: Class,
}

/// Memory that [`Reach`] needs, 6 KB: keep it static where the stack may be small. It also remembers the process as last
/// seen.
pub struct Room {
    /// What all threads together may run on.
    all: Mask,
    one: Mask,
    /// A hash of what the first thread may run on.
    first: u64,
    text: [u8; TEXT],
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl Room {
    /// Empty.
    pub const fn new() -> Self {
        Self { all: Mask::NONE, one: Mask::NONE, first: 0, text: [0; TEXT] }
    }
}

impl Reach {
    /// What all threads together may run on: if a program binds each thread to its own CPU, a single thread's affinity
    /// says little. Looks at no more than 256 threads. `None`: no descriptor or no memory is left for that.
    pub fn of_process(room: &mut Room) -> Option<Self> {
        let Room { all, one, first, text } = room;
        one.read(process());
        *first = one.hash();
        all.read(0);
        each_thread(text, |thread| {
            one.read(thread);
            all.add(one);
        })
        .ok()?;
        Some(Self::of(all, own_quota(text).ok()?))
    }

    /// The same, using only `open`, `read` and `close`, for a process that a filter may kill for any other system call.
    /// (These three must be allowed, since the dynamic linker needed them.) Looks at the first thread. `None`: the kernel's
    /// files don't tell.
    pub fn by_files(room: &mut Room) -> Option<Self> {
        let Room { all, text, .. } = room;
        let status = file::read(c"/proc/self/status", text).ok()??;
        all.parse(status_line(status, b"Cpus_allowed:")?);
        all.keep_online(text).ok()?;
        let quota = own_quota(text).ok()?;
        (all.count() > 0).then(|| Self::of(all, quota))
    }

    /// Has the affinity changed since `room` saw the process? Takes two system calls, and reads no files. It notices a change
    /// of the first thread, a change of all threads, and a change of the calling thread that leads to a new CPU.
    pub fn may_have_changed(room: &mut Room) -> bool {
        let Room { all, one, first, .. } = room;
        one.read(process());
        let is_moved = one.hash() != *first;
        one.read(0);
        is_moved || !one.is_within(all)
    }

    fn of(mask: &Mask, quota: Option<Quota>) -> Self {
        let cpus = (0..place::CPUS).filter(|&cpu| mask.has(cpu));
        Self {
            cpus: Usable { affinity: mask.count(), quota }.cpus(),
            fastest: cpus.map(place::class_of).min().unwrap_or(Class::BIG),
        }
    }
}

/// A set of CPUs. The kernel refuses a mask that is shorter than its own; it can be built for at most 8192 CPUs.
struct Mask([u64; 128]);

impl Mask {
    const NONE: Self = Self([0; 128]);

    /// Becomes a thread's affinity (0: the calling thread's); empty if the thread has ended, or the kernel doesn't tell.
    fn read(&mut self, thread: i32) {
        self.0.fill(0);
        // SAFETY: the kernel writes at most the size that it is told. A failure writes nothing.
        unsafe {
            system_call!(
                libc::SYS_sched_getaffinity,
                thread,
                size_of_val(&self.0),
                self.0.as_mut_ptr()
            );
        }
    }

    fn add(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// Becomes the mask in `text`, which is hexadecimal, with the highest CPUs first, as in `ff,ffffffff`.
    fn parse(&mut self, text: &[u8]) {
        self.0.fill(0);
        let digits = text.iter().rev().filter_map(|&byte| char::from(byte).to_digit(16));
        for (at, digit) in digits.take(self.0.len() * 16).enumerate() {
            self.0[at / 16] |= u64::from(digit) << (at % 16 * 4);
        }
    }

    /// Removes the CPUs that the kernel doesn't list as online.
    #[inline(never)]
    fn keep_online(&mut self, text: &mut [u8]) -> Result<(), Exhausted> {
        let online = file::read(topology::ONLINE, text)?.and_then(CpuSet::parse);
        online.inspect(|online| self.keep(online));
        Ok(())
    }

    /// Removes the CPUs that `others` lacks.
    fn keep(&mut self, others: &CpuSet) {
        for cpu in 0..place::CPUS {
            if !others.has(cpu) {
                self.0[cpu / 64] &= !(1 << (cpu % 64));
            }
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, more)| word & !more == 0)
    }

    /// FNV-1a.
    fn hash(&self) -> u64 {
        self.0
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, &word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
    }

    fn has(&self, cpu: usize) -> bool {
        self.0[cpu / 64] >> (cpu % 64) & 1 != 0
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// The process's id, which is its first thread's.
fn process() -> i32 {
    kernel::process_id() as i32
}

/// The value that follows `name` in `/proc/self/status`.
fn status_line<'a>(status: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let line = status.split(|&byte| byte == b'\n').find(|line| line.starts_with(name))?;
    Some(line[name.len()..].trim_ascii())
}

/// Calls `visit` with the kernel ids of the process's threads, 256 at most.
fn each_thread(buffer: &mut [u8], mut visit: impl FnMut(i32)) -> Result<(), Exhausted> {
    /// In the kernel's `struct linux_dirent64`: the offsets of its length and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    // SAFETY: a NUL-terminated path.
    let folder = unsafe { file::open(c"/proc/self/task".as_ptr(), libc::O_DIRECTORY)? };
    let Some(folder) = folder else { return Ok(()) };
    let mut left = 256;
    'all: loop {
        // SAFETY: the kernel writes at most the size that it is told.
        let read = unsafe {
            let to = buffer.as_mut_ptr().word();
            kernel::call(libc::SYS_getdents64, [folder.word(), to, buffer.len(), 0, 0, 0])
        };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        let mut entries = &buffer[..read.min(buffer.len())];
        while let Some(&[low, high]) = entries.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_le_bytes([low, high]));
            let name = entries.get(NAME..length).unwrap_or_default();
            if let Some(thread) = number(name.split(|&byte| byte == 0).next().unwrap_or_default()) {
                visit(thread as i32);
                left -= 1;
                if left == 0 {
                    break 'all;
                }
            }
            entries = entries.get(length.max(1)..).unwrap_or_default();
        }
    }
    // SAFETY: ours.
    unsafe { file::close(folder) };
    Ok(())
}

/// The quota that applies to us.
fn own_quota(text: &mut [u8]) -> Result<Option<Quota>, Exhausted> {
    quota(c"/proc/self/cgroup", b"/sys/fs/cgroup", text)
}

/// The tightest quota on the way from our own control group up to the root.
///
/// In a container the path may name groups that are not mounted there, and can't be read. The mount's root, at which we always
/// look, is then the container's own group.
fn quota(membership: &CStr, mount: &[u8], text: &mut [u8]) -> Result<Option<Quota>, Exhausted> {
    let Some(text) = file::read(membership, text)? else { return Ok(None) };
    let mut tightest = None;
    for group in text.split(|&byte| byte == b'\n').filter_map(CpuGroup::parse) {
        if group.unified {
            // Alone, or beside version 1 hierarchies.
            for folder in [&b""[..], b"/unified"] {
                climb(mount, folder, group.path, &mut tightest, Quota::read)?;
            }
        } else {
            for folder in [&b"/cpu"[..], b"/cpu,cpuacct"] {
                climb(mount, folder, group.path, &mut tightest, Quota::read_version_1)?;
            }
        }
    }
    Ok(tightest)
}

impl Quota {
    fn new(time_us: u32, period_us: u32) -> Option<Self> {
        (time_us > 0 && period_us > 0).then_some(Self { time_us, period_us })
    }

    /// The quota of the group whose folder this is.
    fn read(folder: &mut Path) -> Result<Option<Self>, Exhausted> {
        let mut buffer = [0; 64];
        Ok(folder.push(b"/cpu.max").read(&mut buffer)?.and_then(parse_max))
    }

    /// The same in a version 1 hierarchy.
    fn read_version_1(folder: &mut Path) -> Result<Option<Self>, Exhausted> {
        let len = folder.len();
        let time = folder.push(b"/cpu.cfs_quota_us").read_number()?;
        let period = folder.truncate(len).push(b"/cpu.cfs_period_us").read_number()?;
        Ok(time.zip(period).and_then(|(time, period)| Self::new(time, period)))
    }
}

/// Reads the quota in `mount/folder/group`, then in each folder above it, up to `mount/folder`; keeps the tightest.
#[inline(never)]
fn climb(
    mount: &[u8],
    folder: &[u8],
    group: &[u8],
    tightest: &mut Option<Quota>,
    read: fn(&mut Path) -> Result<Option<Quota>, Exhausted>,
) -> Result<(), Exhausted> {
    let mut path = Path::new();
    let start = path.push(mount).push(folder).len();
    let mut rest = group;
    loop {
        rest = rest.strip_suffix(b"/").unwrap_or(rest);
        if let Some(quota) = read(path.truncate(start).push(rest))?
            && tightest.is_none_or(|other| quota.is_below(other))
        {
            *tightest = Some(quota);
        }
        match rest.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => rest = &rest[..slash],
            None => return Ok(()),
        }
    }
}

/// A line of `/proc/self/cgroup` that concerns CPU time.
#[derive(Debug, PartialEq, Eq)]
struct CpuGroup<'a> {
    /// Version 2.
    unified: bool,
    path: &'a [u8],
}

impl<'a> CpuGroup<'a> {
    /// Reads `0::/path` (version 2) or `4:cpu,cpuacct:/path` (version 1).
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (hierarchy, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let unified = hierarchy == b"0" && controllers.is_empty();
        let cpu = controllers.split(|&byte| byte == b',').any(|name| name == b"cpu");
        (unified || cpu).then_some(Self { unified, path })
    }
}

/// Reads `cpu.max`: `150000 100000`, or `max 100000` (no quota).
fn parse_max(text: &[u8]) -> Option<Quota> {
    let mut words = text.trim_ascii().split(|&byte| byte == b' ');
    Quota::new(number(words.next()?)?, number(words.next()?)?)
}

#[cfg(test)]
mod tests;
