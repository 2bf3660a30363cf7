//! Reads the kernel's files.
//!
//! A thread that waits for a lock may read them again, and its stack may be small. So large buffers lie in the table itself.

use super::{CLASSES, Cpu, CpuSet, DomainSource, FULL_CAPACITY, Source, Topology};
use crate::file::{Exhausted, Path};
use crate::place::CPUS;
use lockwright_platform::Class;

/// Buffers for reading.
#[derive(Clone, Debug)]
pub(super) struct Room {
    text: [u8; 4096],
    /// One figure for every CPU; 0: none.
    figures: [u32; CPUS],
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { text: [0; 4096], figures: [0; CPUS] }
    }
}

impl Topology {
    /// Reads what the kernel says in the files below `sysfs` (`/sys`, elsewhere only in tests).
    ///
    /// `false`: it had too few descriptors or too little memory to read all of it. Then the table doesn't describe the
    /// machine; read again later.
    pub fn read(&mut self, sysfs: &[u8]) -> bool {
        self.forget();
        let mut path = Path::new(sysfs);
        let root = path.len();
        self.read_online(&mut path)
            .and_then(|()| self.read_siblings(path.truncate(root)))
            .and_then(|()| self.read_domains(path.truncate(root)))
            .and_then(|()| self.read_classes(path.truncate(root)))
            .is_ok()
    }

    /// Resets the table in place.
    fn forget(&mut self) {
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            *cpu = Cpu::unknown(number as u16);
        }
        self.present = CpuSet::EMPTY;
        self.classes = 1;
        self.names = Default::default();
    }

    fn read_online(&mut self, path: &mut Path) -> Result<(), Exhausted> {
        let text = &mut self.room.text;
        let start = path.push(b"/devices/system/cpu/").len();
        let online = CpuSet::read(path.push(b"online"), text)?;
        // A kernel without sysfs still runs us on something.
        let online = online.filter(|set| !set.is_empty()).unwrap_or(CpuSet::of(&[0]));
        let present = CpuSet::read(path.truncate(start).push(b"present"), text)?;
        self.present = present.unwrap_or(online);
        for cpu in online.iter() {
            self.cpus[cpu].online = true;
        }
        Ok(())
    }

    fn read_siblings(&mut self, path: &mut Path) -> Result<(), Exhausted> {
        let start = path.push(b"/devices/system/cpu/").len();
        let mut buffer = [0; 8];
        let active = path.push(b"smt/active").read(&mut buffer)?;
        if active.map(<[u8]>::trim_ascii) == Some(b"0") {
            return Ok(());
        }
        let mut seen = CpuSet::EMPTY;
        for cpu in 0..CPUS {
            if !self.cpus[cpu].online || seen.has(cpu) {
                continue;
            }
            path.truncate(start).push(b"cpu").push_number(cpu as u32);
            let path = path.push(b"/topology/thread_siblings_list");
            let Some(core) = CpuSet::read(path, &mut self.room.text)? else { continue };
            let mut previous = core.iter().last().unwrap_or(cpu);
            for next in core.iter() {
                self.cpus[previous].sibling = next as u16;
                previous = next;
                seen.insert(next);
            }
        }
        Ok(())
    }

    fn read_domains(&mut self, path: &mut Path) -> Result<(), Exhausted> {
        let root = path.len();
        let start = path.push(b"/devices/system/node/").len();
        let nodes = CpuSet::read(path.push(b"online"), &mut self.room.text)?;
        for node in nodes.iter().flat_map(CpuSet::iter) {
            path.truncate(start).push(b"node").push_number(node as u32);
            let members = CpuSet::read(path.push(b"/cpulist"), &mut self.room.text)?;
            for cpu in members.iter().flat_map(CpuSet::iter) {
                self.cpus[cpu].node = node as u16;
                self.cpus[cpu].domain = node as u16;
                self.cpus[cpu].domain_source = DomainSource::Node;
            }
        }
        self.read_caches(path.truncate(root))
    }

    /// Sets domains by caches, for all CPUs or for none: a mixture of nodes and caches would be meaningless.
    fn read_caches(&mut self, path: &mut Path) -> Result<(), Exhausted> {
        let start = path.push(b"/devices/system/cpu/cpu").len();
        let caches = &mut self.room.figures;
        let mut domains = 0;
        let mut seen = CpuSet::EMPTY;
        for cpu in 0..CPUS {
            if !self.cpus[cpu].online || seen.has(cpu) {
                continue;
            }
            path.truncate(start).push_number(cpu as u32);
            let Some(shared) = last_level_cache(path, &mut self.room.text)? else { return Ok(()) };
            for member in shared.iter().chain([cpu]) {
                caches[member] = domains;
                seen.insert(member);
            }
            domains += 1;
        }
        for (cpu, &domain) in self.cpus.iter_mut().zip(&*caches).filter(|(cpu, _)| cpu.online) {
            cpu.domain = domain as u16;
            cpu.domain_source = DomainSource::LastLevelCache;
        }
        Ok(())
    }

    fn read_classes(&mut self, path: &mut Path) -> Result<(), Exhausted> {
        // Figures of one core type differ by a few percent, because firmware ranks favoured cores higher, which
        // boost higher. Different core types differ by a fifth or more.
        const EQUAL_PERCENT: u32 = 85;
        let root = path.len();
        if self.read_figures(path, b"cpu_capacity")? {
            // The kernel computes these from the core's type; favoured cores don't show.
            self.set_capacities(Source::CpuCapacity);
            self.set_classes_by_figures(Source::CpuCapacity, 97);
            if self.is_hybrid() {
                return Ok(());
            }
        }
        let has_counters = self.read_counters(path.truncate(root))?;
        for (source, name) in [
            (Source::Cppc, &b"acpi_cppc/highest_perf"[..]),
            (Source::MaxFrequency, b"cpufreq/cpuinfo_max_freq"),
        ] {
            if self.read_figures(path.truncate(root), name)? {
                self.set_capacities(source);
                if !has_counters {
                    self.set_classes_by_figures(source, EQUAL_PERCENT);
                }
                break;
            }
        }
        Ok(())
    }

    /// Sets the classes of an Intel hybrid, by the performance counters that each core type has.
    fn read_counters(&mut self, path: &mut Path) -> Result<bool, Exhausted> {
        let start = path.push(b"/devices/").len();
        let mut types = [CpuSet::EMPTY; 3];
        let mut count = 0;
        for name in [&b"cpu_core"[..], b"cpu_atom", b"cpu_lowpower"] {
            path.truncate(start).push(name).push(b"/cpus");
            let members = CpuSet::read(path, &mut self.room.text)?;
            if let Some(members) = members.filter(|set| !set.is_empty()) {
                types[count] = members;
                count += 1;
            }
        }
        if count < 2 {
            return Ok(false);
        }
        self.classes = count;
        for (rank, members) in types[..count].iter().enumerate() {
            for cpu in members.iter() {
                self.cpus[cpu].class = Class(rank as u8);
                self.cpus[cpu].class_source = Source::HybridCounters;
            }
        }
        Ok(true)
    }

    /// Reads `cpu*/name`; `false` unless every online CPU has a figure above 0.
    fn read_figures(&mut self, path: &mut Path, name: &[u8]) -> Result<bool, Exhausted> {
        let start = path.push(b"/devices/system/cpu/cpu").len();
        self.room.figures.fill(0);
        for (number, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online) {
            // The threads of a core share its figure, and reading such files can be slow.
            let known = self.room.figures[usize::from(cpu.sibling)];
            self.room.figures[number] = if known > 0 {
                known
            } else {
                path.truncate(start).push_number(number as u32).push(b"/").push(name);
                match path.read_number()? {
                    None | Some(0) => return Ok(false),
                    Some(figure) => figure,
                }
            };
        }
        Ok(true)
    }

    fn set_capacities(&mut self, source: Source) {
        let largest = self.room.figures.iter().copied().max().unwrap_or(0);
        for (cpu, &figure) in self.cpus.iter_mut().zip(&self.room.figures) {
            if cpu.online {
                let scaled = u64::from(figure) * u64::from(FULL_CAPACITY) / u64::from(largest);
                cpu.capacity = scaled.max(1) as u16;
                cpu.capacity_source = source;
            }
        }
    }

    /// Groups the figures into classes, from the largest down: a class ends below `percent` of its largest figure.
    fn set_classes_by_figures(&mut self, source: Source, percent: u32) {
        let figures = &self.room.figures;
        let mut below = u32::MAX;
        self.classes = 0;
        while let Some(largest) =
            figures.iter().copied().filter(|&figure| figure > 0 && figure < below).max()
        {
            let last = self.classes == CLASSES - 1;
            let least =
                if last { 1 } else { (u64::from(largest) * u64::from(percent) / 100).max(1) };
            for (cpu, &figure) in self.cpus.iter_mut().zip(figures) {
                if figure > 0 && figure < below && u64::from(figure) >= least {
                    cpu.class = Class(self.classes as u8);
                    cpu.class_source = source;
                }
            }
            self.classes += 1;
            below = least as u32;
        }
    }
}

/// The CPUs that share the last-level cache with the CPU whose folder is `path`.
fn last_level_cache(path: &mut Path, text: &mut [u8]) -> Result<Option<CpuSet>, Exhausted> {
    let start = path.push(b"/cache/index").len();
    // index0 and index1 are a core's own first level; a machine has two to five indexes.
    for index in (2..5u32).rev() {
        path.truncate(start).push_number(index).push(b"/shared_cpu_list");
        let shared = CpuSet::read(path, text)?;
        if let Some(shared) = shared.filter(|set| !set.is_empty()) {
            return Ok(Some(shared));
        }
    }
    Ok(None)
}
