//! Reads the kernel's files.
//!
//! A thread that waits for a lock may read them again, and its stack may be small. So large buffers lie in the table itself,
//! and the steps aren't inlined: their frames would add up.

use super::{CLASSES, Cpu, CpuSet, DomainSource, FULL_CAPACITY, Source, Topology};
use crate::file::{Exhausted, Path};
use crate::place::CPUS;
use lockwright_platform::Class;

/// Buffers for reading.
#[derive(Clone, Debug)]
pub(super) struct Room {
    path: Path,
    text: [u8; 4096],
    /// One figure for every CPU; 0: none.
    figures: [u32; CPUS],
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { path: Path::new(), text: [0; 4096], figures: [0; CPUS] }
    }
}

impl Topology {
    /// Reads what the kernel says in the files below `sysfs` (`/sys`, elsewhere only in tests).
    ///
    /// `false`: it had too few descriptors or too little memory to read all of it. Then the table doesn't describe the
    /// machine; read again later.
    pub fn read(&mut self, sysfs: &[u8]) -> bool {
        self.forget();
        let root = self.room.path.truncate(0).push(sysfs).len();
        self.read_online(root)
            .and_then(|()| self.read_siblings(root))
            .and_then(|()| self.read_nodes(root))
            .and_then(|()| self.read_caches(root))
            .and_then(|()| self.read_classes(root))
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

    #[inline(never)]
    fn read_online(&mut self, root: usize) -> Result<(), Exhausted> {
        let Room { path, text, .. } = &mut self.room;
        let start = path.truncate(root).push(b"/devices/system/cpu/").len();
        let mut online = CpuSet::EMPTY;
        online.read(path.push(b"online"), text)?;
        if online.is_empty() {
            online.insert(0); // a kernel without sysfs still runs us on something
        }
        if !self.present.read(path.truncate(start).push(b"present"), text)? {
            self.present = online;
        }
        for cpu in online.iter() {
            self.cpus[cpu].online = true;
        }
        Ok(())
    }

    #[inline(never)]
    fn read_siblings(&mut self, root: usize) -> Result<(), Exhausted> {
        let Room { path, text, .. } = &mut self.room;
        let start = path.truncate(root).push(b"/devices/system/cpu/").len();
        let mut buffer = [0; 8];
        let active = path.push(b"smt/active").read(&mut buffer)?;
        if active.map(<[u8]>::trim_ascii) == Some(b"0") {
            return Ok(());
        }
        let (mut seen, mut core) = (CpuSet::EMPTY, CpuSet::EMPTY);
        for cpu in 0..CPUS {
            if !self.cpus[cpu].online || seen.has(cpu) {
                continue;
            }
            path.truncate(start).push(b"cpu").push_number(cpu as u32);
            if !core.read(path.push(b"/topology/thread_siblings_list"), text)? {
                continue;
            }
            let mut previous = core.iter().last().unwrap_or(cpu);
            for next in core.iter() {
                self.cpus[previous].sibling = next as u16;
                previous = next;
                seen.insert(next);
            }
        }
        Ok(())
    }

    /// Sets domains by NUMA nodes.
    #[inline(never)]
    fn read_nodes(&mut self, root: usize) -> Result<(), Exhausted> {
        let Room { path, text, .. } = &mut self.room;
        let start = path.truncate(root).push(b"/devices/system/node/").len();
        let (mut nodes, mut members) = (CpuSet::EMPTY, CpuSet::EMPTY);
        nodes.read(path.push(b"online"), text)?;
        for node in nodes.iter() {
            path.truncate(start).push(b"node").push_number(node as u32);
            members.read(path.push(b"/cpulist"), text)?;
            for cpu in members.iter() {
                self.cpus[cpu].node = node as u16;
                self.cpus[cpu].domain = node as u16;
                self.cpus[cpu].domain_source = DomainSource::Node;
            }
        }
        Ok(())
    }

    /// Sets domains by caches, for all CPUs or for none: a mixture of nodes and caches would be meaningless.
    #[inline(never)]
    fn read_caches(&mut self, root: usize) -> Result<(), Exhausted> {
        let Room { path, text, figures: caches } = &mut self.room;
        let start = path.truncate(root).push(b"/devices/system/cpu/cpu").len();
        let (mut seen, mut shared) = (CpuSet::EMPTY, CpuSet::EMPTY);
        let mut domains = 0;
        for cpu in 0..CPUS {
            if !self.cpus[cpu].online || seen.has(cpu) {
                continue;
            }
            path.truncate(start).push_number(cpu as u32);
            read_last_level_cache(path, text, &mut shared)?;
            if shared.is_empty() {
                return Ok(());
            }
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

    #[inline(never)]
    fn read_classes(&mut self, root: usize) -> Result<(), Exhausted> {
        // Figures of one core type differ by a few percent, because firmware ranks favoured cores higher, which
        // boost higher. Different core types differ by a fifth or more.
        const EQUAL_PERCENT: u32 = 85;
        if self.read_figures(root, b"cpu_capacity")? {
            // The kernel computes these from the core's type; favoured cores don't show.
            self.set_capacities(Source::CpuCapacity);
            self.set_classes_by_figures(Source::CpuCapacity, 97);
            if self.is_hybrid() {
                return Ok(());
            }
        }
        let has_counters = self.read_counters(root)?;
        for (source, name) in [
            (Source::Cppc, &b"acpi_cppc/highest_perf"[..]),
            (Source::MaxFrequency, b"cpufreq/cpuinfo_max_freq"),
        ] {
            if self.read_figures(root, name)? {
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
    #[inline(never)]
    fn read_counters(&mut self, root: usize) -> Result<bool, Exhausted> {
        let Room { path, text, .. } = &mut self.room;
        let start = path.truncate(root).push(b"/devices/").len();
        let mut types = [CpuSet::EMPTY; 3];
        let mut count = 0;
        for name in [&b"cpu_core"[..], b"cpu_atom", b"cpu_lowpower"] {
            path.truncate(start).push(name).push(b"/cpus");
            types[count].read(path, text)?;
            count += usize::from(!types[count].is_empty());
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
    #[inline(never)]
    fn read_figures(&mut self, root: usize, name: &[u8]) -> Result<bool, Exhausted> {
        let Room { path, figures, .. } = &mut self.room;
        let start = path.truncate(root).push(b"/devices/system/cpu/cpu").len();
        figures.fill(0);
        for (number, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online) {
            // The threads of a core share its figure, and reading such files can be slow.
            let known = figures[usize::from(cpu.sibling)];
            figures[number] = if known > 0 {
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

/// Reads which CPUs share the last-level cache with the CPU whose folder is `path`; `shared` is empty if the kernel doesn't tell.
fn read_last_level_cache(
    path: &mut Path,
    text: &mut [u8],
    shared: &mut CpuSet,
) -> Result<(), Exhausted> {
    let start = path.push(b"/cache/index").len();
    // index0 and index1 are a core's own first level; a machine has two to five indexes.
    for index in (2..5u32).rev() {
        path.truncate(start).push_number(index).push(b"/shared_cpu_list");
        shared.read(path, text)?;
        if !shared.is_empty() {
            break;
        }
    }
    Ok(())
}
