//! The machine's cores: classes, capacities, siblings, domains, and where each figure came from.
//!
//! No single file tells a big core from a little one on every machine, so [`Topology::read`] asks
//! several, the most telling first, and keeps the [`Source`] beside each figure. What the kernel doesn't
//! know (a virtual machine hides it), the user may: [`Topology::set`].
//!
//! Reading costs a few system calls a CPU: do it once, and where possible not before it is needed.

mod list;
mod spec;
#[cfg(test)]
mod tests;

pub use list::CpuSet;
pub use spec::{Factor, SpecError, SpecProblem};

use crate::file::{Path, number};
use crate::place::{self, CPUS};
pub use lockwright_platform::Class;

/// Classes that are told apart.
pub const CLASSES: usize = 8;

/// Bytes of a class's name.
pub const NAME_MAX: usize = 15;

/// Capacity of the fastest core, as the kernel counts.
pub const FULL_CAPACITY: u16 = 1024;

/// Where a CPU's class or capacity came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `LOCKWRIGHT_TOPOLOGY` or `--set`.
    User,
    /// `cpu*/cpu_capacity`: what the kernel's scheduler uses (ARM, Apple, RISC-V).
    CpuCapacity,
    /// `cpu_core/cpus`, `cpu_atom/cpus`, `cpu_lowpower/cpus`: performance counters of Intel hybrids.
    HybridCounters,
    /// `cpuid` leaf 0x1A, asked on the CPU itself.
    Cpuid,
    /// `acpi_cppc/highest_perf`: what the firmware says.
    Cppc,
    /// `cpufreq/cpuinfo_max_freq`.
    MaxFrequency,
    /// Nobody tells them apart.
    AllEqual,
}

/// A number that changes when CPUs come online or go (a hash of the kernel's list of them).
pub fn online_hash() -> u64 {
    let mut buffer = [0; 512];
    let text = Path::new(b"/sys/devices/system/cpu/online").read(&mut buffer).unwrap_or_default();
    // FNV-1a.
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Source {
    /// The file or instruction, as a user would look it up.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::CpuCapacity => "cpu_capacity",
            Self::HybridCounters => "cpu_core/cpu_atom",
            Self::Cpuid => "cpuid 0x1a",
            Self::Cppc => "acpi_cppc/highest_perf",
            Self::MaxFrequency => "cpuinfo_max_freq",
            Self::AllEqual => "all equal",
        }
    }
}

/// Where a CPU's domain came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainSource {
    /// `cache/index*/shared_cpu_list` of the last level.
    LastLevelCache,
    /// `node*/cpulist`.
    Node,
    /// Nobody tells them apart.
    AllEqual,
}

impl DomainSource {
    /// The file, as a user would look it up.
    pub fn name(self) -> &'static str {
        match self {
            Self::LastLevelCache => "last-level cache",
            Self::Node => "numa node",
            Self::AllEqual => "all equal",
        }
    }
}

/// What is known of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Present and switched on.
    pub online: bool,
    /// Rank of its class.
    pub class: Class,
    /// Where the class came from.
    pub class_source: Source,
    /// Speed, the fastest core's being [`FULL_CAPACITY`].
    pub capacity: u16,
    /// Where the capacity came from.
    pub capacity_source: Source,
    /// The next CPU of the same core, round and round; itself if it has the core alone.
    pub sibling: u16,
    /// NUMA node.
    pub node: u16,
    /// What shares its last-level cache, numbered from 0; the node if caches aren't told.
    pub domain: u16,
    /// Where the domain came from.
    pub domain_source: DomainSource,
}

impl Cpu {
    const fn unknown(number: u16) -> Self {
        Self {
            online: false,
            class: Class::BIG,
            class_source: Source::AllEqual,
            capacity: FULL_CAPACITY,
            capacity_source: Source::AllEqual,
            sibling: number,
            node: 0,
            domain: 0,
            domain_source: DomainSource::AllEqual,
        }
    }
}

/// The machine's cores. A fixed table of about 20 KB: keep it static, or on a big stack.
#[derive(Clone, Debug)]
pub struct Topology {
    cpus: [Cpu; CPUS],
    /// Switched on, or can be.
    present: CpuSet,
    classes: usize,
    /// Names that the user gave; empty: by rank.
    names: [[u8; NAME_MAX + 1]; CLASSES],
}

impl Default for Topology {
    fn default() -> Self {
        Self::new()
    }
}

impl Topology {
    /// Nothing known yet: no CPU online, all equal.
    pub const fn new() -> Self {
        let mut cpus = [Cpu::unknown(0); CPUS];
        let mut at = 0;
        while at < CPUS {
            cpus[at] = Cpu::unknown(at as u16);
            at += 1;
        }
        Self { cpus, present: CpuSet::EMPTY, classes: 1, names: [[0; NAME_MAX + 1]; CLASSES] }
    }

    /// Reads what the kernel tells below `sysfs` (`/sys`, elsewhere only in tests).
    pub fn read(&mut self, sysfs: &[u8]) {
        *self = Self::new();
        let online = CpuSet::read(Path::new(sysfs).push(b"/devices/system/cpu/online"));
        // A kernel without sysfs still runs us on something.
        let online = online.filter(|set| !set.is_empty()).unwrap_or(CpuSet::of(&[0]));
        self.present =
            CpuSet::read(Path::new(sysfs).push(b"/devices/system/cpu/present")).unwrap_or(online);
        for cpu in online.iter() {
            self.cpus[cpu].online = true;
        }
        self.read_siblings(sysfs);
        self.read_domains(sysfs);
        self.read_classes(sysfs);
    }

    /// Gives class and domain to [`place::here`](crate::place::here).
    pub fn publish(&self) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            place::set(number, cpu.class, cpu.domain);
        }
    }

    /// The CPU called `number`, if it is online.
    pub fn cpu(&self, number: usize) -> Option<&Cpu> {
        self.cpus.get(number).filter(|cpu| cpu.online)
    }

    /// Every CPU that is online, with its number.
    pub fn online(&self) -> impl Iterator<Item = (usize, &Cpu)> {
        self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online)
    }

    /// Number of classes, at least 1.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Are there cores of different speed?
    pub fn is_hybrid(&self) -> bool {
        self.classes > 1
    }

    /// The class's name: the user's, else by rank.
    pub fn class_name(&self, class: Class) -> &str {
        let rank = usize::from(class.0);
        if let Some(name) = self.names.get(rank)
            && let Some(len) = name.iter().position(|&byte| byte == 0)
            && len > 0
        {
            return core::str::from_utf8(&name[..len]).unwrap_or("?");
        }
        match rank {
            0 => "big",
            last if last + 1 == self.classes => "little",
            1 if self.classes == 3 => "mid",
            1 => "mid1",
            2 => "mid2",
            3 => "mid3",
            4 => "mid4",
            5 => "mid5",
            _ => "mid6",
        }
    }

    fn read_siblings(&mut self, sysfs: &[u8]) {
        let mut path = Path::new(sysfs);
        path.push(b"/devices/system/cpu/");
        let start = path.len();
        let mut buffer = [0; 8];
        if path.push(b"smt/active").read(&mut buffer).map(<[u8]>::trim_ascii) == Some(b"0") {
            return;
        }
        let mut seen = CpuSet::EMPTY;
        for cpu in 0..CPUS {
            if !self.cpus[cpu].online || seen.has(cpu) {
                continue;
            }
            path.truncate(start).push(b"cpu").push_number(cpu as u32);
            let Some(core) = CpuSet::read(path.push(b"/topology/thread_siblings_list")) else {
                continue;
            };
            let mut previous = core.iter().last().unwrap_or(cpu);
            for next in core.iter() {
                self.cpus[previous].sibling = next as u16;
                previous = next;
                seen.insert(next);
            }
        }
    }

    fn read_domains(&mut self, sysfs: &[u8]) {
        let mut path = Path::new(sysfs);
        path.push(b"/devices/system/node/");
        let start = path.len();
        let nodes = CpuSet::read(path.push(b"online"));
        for node in nodes.iter().flat_map(CpuSet::iter) {
            path.truncate(start).push(b"node").push_number(node as u32);
            let members = CpuSet::read(path.push(b"/cpulist"));
            for cpu in members.iter().flat_map(CpuSet::iter) {
                self.cpus[cpu].node = node as u16;
                self.cpus[cpu].domain = node as u16;
                self.cpus[cpu].domain_source = DomainSource::Node;
            }
        }
        let mut domains = 0;
        let mut caches = [Cpu::unknown(0).domain; CPUS];
        let mut seen = CpuSet::EMPTY;
        for cpu in 0..CPUS {
            if !self.cpus[cpu].online || seen.has(cpu) {
                continue;
            }
            let Some(shared) = last_level_cache(sysfs, cpu) else {
                return; // all or none: a mixture of nodes and caches would have no meaning
            };
            for member in shared.iter().chain([cpu]) {
                caches[member] = domains;
                seen.insert(member);
            }
            domains += 1;
        }
        for (cpu, domain) in self.cpus.iter_mut().zip(caches).filter(|(cpu, _)| cpu.online) {
            cpu.domain = domain;
            cpu.domain_source = DomainSource::LastLevelCache;
        }
    }

    fn read_classes(&mut self, sysfs: &[u8]) {
        // Figures of one type of core differ by a few percent: firmware ranks the favoured cores, which
        // boost higher. Types of core differ by a fifth and more.
        const EQUAL_PERCENT: u32 = 85;
        if let Some(figures) = Figures::read(self, sysfs, b"cpu_capacity") {
            // The kernel computes these from the core's type; favoured cores don't show.
            figures.set_capacities(self, Source::CpuCapacity);
            figures.set_classes(self, Source::CpuCapacity, 97);
            if self.is_hybrid() {
                return;
            }
        }
        let cppc = Figures::read(self, sysfs, b"acpi_cppc/highest_perf");
        let frequency = match cppc {
            None => Figures::read(self, sysfs, b"cpufreq/cpuinfo_max_freq"),
            Some(_) => None,
        };
        let performance =
            cppc.zip(Some(Source::Cppc)).or(frequency.zip(Some(Source::MaxFrequency)));
        if let Some((figures, source)) = &performance {
            figures.set_capacities(self, *source);
        }
        if !self.read_counters(sysfs)
            && let Some((figures, source)) = &performance
        {
            figures.set_classes(self, *source, EQUAL_PERCENT);
        }
    }

    /// Classes of an Intel hybrid, from the counters that each type of core has.
    fn read_counters(&mut self, sysfs: &[u8]) -> bool {
        let types = [&b"cpu_core"[..], b"cpu_atom", b"cpu_lowpower"].map(|name| {
            CpuSet::read(Path::new(sysfs).push(b"/devices/").push(name).push(b"/cpus"))
                .filter(|set| !set.is_empty())
        });
        if types.iter().flatten().count() < 2 {
            return false;
        }
        self.classes = 0;
        for members in types.iter().flatten() {
            for cpu in members.iter() {
                self.cpus[cpu].class = Class(self.classes as u8);
                self.cpus[cpu].class_source = Source::HybridCounters;
            }
            self.classes += 1;
        }
        true
    }

    /// Asks each CPU itself for its type, by moving the calling thread there and back, where sysfs tells
    /// nothing (an Intel hybrid under a hypervisor that pins); `true` if that told classes apart.
    ///
    /// Only CPUs in the thread's affinity mask can be asked: if one that is online isn't, or the
    /// processor has no such instruction, nothing changes.
    pub fn ask_each_cpu(&mut self) -> bool {
        if self.is_hybrid() || !cpuid::is_hybrid() {
            return false;
        }
        let Some(home) = CpuSet::affinity() else { return false };
        let mut atoms = CpuSet::EMPTY;
        let mut cores = 0;
        for (cpu, _) in self.online() {
            if !home.has(cpu) || !CpuSet::of(&[cpu]).pin() {
                home.pin();
                return false;
            }
            if cpuid::is_atom() {
                atoms.insert(cpu);
            } else {
                cores += 1;
            }
        }
        home.pin();
        if cores == 0 || atoms.is_empty() {
            return false;
        }
        self.classes = 2;
        for (number, cpu) in self.cpus.iter_mut().enumerate().filter(|(_, cpu)| cpu.online) {
            cpu.class = Class(u8::from(atoms.has(number)));
            cpu.class_source = Source::Cpuid;
        }
        true
    }
}

/// CPUs that share the last-level cache with `cpu`.
fn last_level_cache(sysfs: &[u8], cpu: usize) -> Option<CpuSet> {
    let mut path = Path::new(sysfs);
    path.push(b"/devices/system/cpu/cpu").push_number(cpu as u32).push(b"/cache/index");
    let start = path.len();
    // index0 and index1 are a core's own first level; a machine has two to five.
    (2..5u32).rev().find_map(|index| {
        path.truncate(start).push_number(index);
        CpuSet::read(path.push(b"/shared_cpu_list")).filter(|set| !set.is_empty())
    })
}

/// One figure for every CPU that is online.
struct Figures {
    figures: [u32; CPUS],
    largest: u32,
}

impl Figures {
    /// Reads `cpu*/name`; `None` unless every CPU that is online has one above 0.
    fn read(topology: &Topology, sysfs: &[u8], name: &[u8]) -> Option<Self> {
        let mut path = Path::new(sysfs);
        path.push(b"/devices/system/cpu/cpu");
        let start = path.len();
        let mut read = Self { figures: [0; CPUS], largest: 0 };
        for (number, cpu) in topology.online() {
            // Both threads of a core are the same core, and such files can be slow.
            let sibling = usize::from(cpu.sibling);
            let figure = match read.figures[sibling] {
                0 => path.truncate(start).push_number(number as u32).push(b"/").push(name),
                known => {
                    read.figures[number] = known;
                    continue;
                }
            }
            .read_number()
            .filter(|&figure| figure > 0)?;
            read.figures[number] = figure;
            read.largest = read.largest.max(figure);
        }
        (read.largest > 0).then_some(read)
    }

    fn set_capacities(&self, topology: &mut Topology, source: Source) {
        for (cpu, &figure) in topology.cpus.iter_mut().zip(&self.figures) {
            if cpu.online {
                let scaled = u64::from(figure) * u64::from(FULL_CAPACITY) / u64::from(self.largest);
                cpu.capacity = scaled.max(1) as u16;
                cpu.capacity_source = source;
            }
        }
    }

    /// Groups the figures, from the largest down: a class ends below `percent` of its largest figure.
    fn set_classes(&self, topology: &mut Topology, source: Source, percent: u32) {
        let mut below = u32::MAX;
        topology.classes = 0;
        while let Some(largest) =
            self.figures.iter().copied().filter(|&figure| figure > 0 && figure < below).max()
        {
            let last = topology.classes == CLASSES - 1;
            let least =
                if last { 1 } else { (u64::from(largest) * u64::from(percent) / 100).max(1) };
            for (cpu, &figure) in topology.cpus.iter_mut().zip(&self.figures) {
                if figure > 0 && figure < below && u64::from(figure) >= least {
                    cpu.class = Class(topology.classes as u8);
                    cpu.class_source = source;
                }
            }
            topology.classes += 1;
            below = least as u32;
        }
    }
}

/// The instruction's own word on hybrids. It speaks only of the CPU that runs it.
#[cfg(target_arch = "x86_64")]
mod cpuid {
    use core::arch::x86_64::{__cpuid_count, __get_cpuid_max};

    pub(super) fn is_hybrid() -> bool {
        __get_cpuid_max(0).0 >= 0x1a && __cpuid_count(7, 0).edx & (1 << 15) != 0
    }

    /// Core type 0x20 is Atom, 0x40 is Core.
    pub(super) fn is_atom() -> bool {
        __cpuid_count(0x1a, 0).eax >> 24 == 0x20
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod cpuid {
    pub(super) fn is_hybrid() -> bool {
        false
    }

    pub(super) fn is_atom() -> bool {
        false
    }
}

/// The number that a list element is, if it is a CPU that the table holds.
fn cpu_number(text: &[u8]) -> Option<usize> {
    number(text).map(|cpu| cpu as usize).filter(|&cpu| cpu < CPUS)
}
