//! The machine's cores: classes, capacities, siblings, domains, and where each figure came from.
//!
//! No single file tells big cores from little ones on every machine. So [`Topology::read`] tries
//! several, the most reliable first, and keeps the [`Source`] beside each figure. If the kernel doesn't know
//! (a virtual machine hides the classes), the user may: [`Topology::set`].
//!
//! Reading costs a few system calls per CPU: do it once, and if possible not before it is needed.

mod list;
mod read;
mod spec;
#[cfg(test)]
mod tests;

pub use list::CpuSet;
pub use spec::{Factor, SpecError, SpecProblem};

use crate::file::{self, number};
use crate::place::{self, CPUS};
use core::ffi::CStr;
pub use lockwright_platform::Class;

pub use crate::place::CLASSES;

/// The longest name of a class, in bytes.
pub const NAME_MAX: usize = 15;

/// The capacity of the fastest core, as the kernel counts it.
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
    /// `cpuid` leaf 0x1A, run on the CPU itself.
    Cpuid,
    /// `acpi_cppc/highest_perf`: what the firmware says.
    Cppc,
    /// `cpufreq/cpuinfo_max_freq`.
    MaxFrequency,
    /// No source tells them apart.
    AllEqual,
}

/// The kernel's list of CPUs that are online.
pub(crate) const ONLINE: &CStr = c"/sys/devices/system/cpu/online";

/// A number that changes when CPUs come online or go offline (a hash of the kernel's list of them); `None` if the list can't
/// be read.
#[inline(never)] // on a small stack, its buffer makes room for what comes next
pub fn online_hash() -> Option<u64> {
    let mut buffer = [0; 512];
    let text = file::read(ONLINE, &mut buffer).ok().flatten()?;
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
    /// No source tells them apart.
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

/// What is known about one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Present and switched on.
    pub online: bool,
    /// Rank of its class.
    pub class: Class,
    /// Where the class came from.
    pub class_source: Source,
    /// Its speed; the fastest core has [`FULL_CAPACITY`].
    pub capacity: u16,
    /// Where the capacity came from.
    pub capacity_source: Source,
    /// The next CPU of the same core, in a ring; itself if it is the core's only CPU.
    pub sibling: u16,
    /// NUMA node.
    pub node: u16,
    /// The number, from 0, of the set of CPUs that share its last-level cache; the node if the kernel doesn't tell.
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
    /// CPUs that are switched on, or can be.
    present: CpuSet,
    classes: usize,
    /// The names that the user gave; empty: the default name of this rank.
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

    /// Records that emulation slows the classes down: sets their CPUs' capacities by the factors.
    pub fn slow_down(&mut self, factors: &[Factor]) {
        for cpu in &mut self.cpus {
            let factor = factors.get(usize::from(cpu.class.0)).copied().unwrap_or(Factor::ONE);
            cpu.capacity = (u32::from(FULL_CAPACITY) * 1000 / factor.thousandths()).max(1) as u16;
        }
    }

    /// Publishes classes and domains for [`place::here`](crate::place::here), and the classes' speeds for [`place::speed`].
    pub fn publish(&self) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            place::set(number, cpu.class, cpu.domain);
        }
        for (_, cpu) in self.online() {
            place::set_speed(cpu.class, cpu.capacity);
        }
    }

    /// The CPU with this number, if it is online.
    pub fn cpu(&self, number: usize) -> Option<&Cpu> {
        self.cpus.get(number).filter(|cpu| cpu.online)
    }

    /// All CPUs that are online, with their numbers.
    pub fn online(&self) -> impl Iterator<Item = (usize, &Cpu)> {
        self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online)
    }

    /// The number of classes, at least 1.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Does the machine have cores of different speeds?
    pub fn is_hybrid(&self) -> bool {
        self.classes > 1
    }

    /// The class's name: the one that the user gave, or the default name of its rank.
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

    /// Asks each CPU itself for its type, by moving the calling thread there and back. This is for machines where sysfs
    /// doesn't tell (an Intel hybrid under a hypervisor that pins). `true`: it told classes apart.
    ///
    /// Only CPUs in the thread's affinity mask can be asked. If an online CPU isn't in the mask, or the
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

/// What the instruction says about hybrids. It describes only the CPU that runs it.
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

/// The number in a list element, if it is a CPU that is in the table.
fn cpu_number(text: &[u8]) -> Option<usize> {
    number(text).map(|cpu| cpu as usize).filter(|&cpu| cpu < CPUS)
}
