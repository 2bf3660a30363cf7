//! The machine's cores: classes, capacities, siblings, domains, and where each figure came from.
//!
//! No single file tells a big core from a little one on every machine, so [`Topology::read`] asks
//! several, the most telling first, and keeps the [`Source`] beside each figure. What the kernel doesn't
//! know (a virtual machine hides it), the user may: [`Topology::set`].
//!
//! Reading costs a few system calls a CPU: do it once, and where possible not before it is needed.

mod list;
mod read;
mod spec;
#[cfg(test)]
mod tests;

pub use list::CpuSet;
pub use spec::{Factor, SpecError, SpecProblem};

use crate::file::{Path, number};
use crate::place::{self, CPUS};
pub use lockwright_platform::Class;

pub use crate::place::CLASSES;

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

/// A number that changes when CPUs come online or go (a hash of the kernel's list of them); `None` if the list can't be
/// read.
pub fn online_hash() -> Option<u64> {
    let mut buffer = [0; 512];
    let path = Path::new(b"/sys/devices/system/cpu/online");
    let text = path.read(&mut buffer).ok().flatten()?;
    // FNV-1a.
    Some(text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
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

/// The machine's cores. A fixed table of about 30 KB: keep it static, or on a big stack.
#[derive(Clone, Debug)]
pub struct Topology {
    cpus: [Cpu; CPUS],
    /// Switched on, or can be.
    present: CpuSet,
    classes: usize,
    /// Names that the user gave; empty: by rank.
    names: [[u8; NAME_MAX + 1]; CLASSES],
    room: read::Room,
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
        let names = [[0; NAME_MAX + 1]; CLASSES];
        Self { cpus, present: CpuSet::EMPTY, classes: 1, names, room: read::Room::new() }
    }

    /// Slows the classes down, as emulation is about to: their CPUs' capacities are those of the factors.
    pub fn slow_down(&mut self, factors: &[Factor]) {
        for cpu in &mut self.cpus {
            let factor = factors.get(usize::from(cpu.class.0)).copied().unwrap_or(Factor::ONE);
            cpu.capacity = (u32::from(FULL_CAPACITY) * 1000 / factor.thousandths()).max(1) as u16;
        }
    }

    /// Gives class and domain to [`place::here`](crate::place::here), and the classes' speeds to [`place::speed`].
    pub fn publish(&self) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            place::set(number, cpu.class, cpu.domain);
        }
        for (_, cpu) in self.online() {
            place::set_speed(cpu.class, cpu.capacity);
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
