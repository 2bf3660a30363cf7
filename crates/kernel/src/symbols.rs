//! Names of the kernel's functions: `/proc/kallsyms`.

use std::fs;
use std::io;

/// The kernel's symbols, by address.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Sorted by address.
    all: Vec<(u64, String)>,
    /// The address ranges of the locks' functions.
    locks: Vec<(u64, u64)>,
}

/// Lock functions outside those ranges, and the functions between them and the tracepoint.
const LOCKS: [&str; 17] = [
    "mutex_",
    "__mutex_",
    "rwsem_",
    "down_",
    "up_",
    "__down_",
    "percpu_down_",
    "__percpu_down_",
    "_raw_",
    "queued_",
    "native_queued_",
    "__pv_queued_",
    "rt_mutex_",
    "__rt_mutex_",
    "rwbase_",
    "ww_mutex_",
    "__ww_mutex_",
];
const TRACE: [&str; 6] =
    ["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "trace_contention_", "bpf_get_"];

impl Symbols {
    /// Reads the running kernel's symbols.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::of(&fs::read_to_string("/proc/kallsyms")?))
    }

    /// Parses the file's text: `ffffffff81000000 T _text`, `... t cleanup [module]`.
    pub fn of(text: &str) -> Self {
        let mut all: Vec<_> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let name = words.nth(1)?;
                // Offsets in per-CPU memory are not addresses.
                (address >> 63 == 1).then(|| (address, name.to_owned()))
            })
            .collect();
        // A function may have several names; the sort is stable, so the kernel's first one wins.
        all.sort_by_key(|(address, _)| *address);
        let at = |wanted: &str| all.iter().find(|(_, name)| name == wanted).map(|(at, _)| *at);
        let range = |part: &str| {
            Some((at(&format!("__{part}_text_start"))?, at(&format!("__{part}_text_end"))?))
        };
        let locks = ["sched", "lock"].into_iter().filter_map(range).collect();
        all.dedup_by_key(|(address, _)| *address);
        Self { all, locks }
    }

    /// Are there no symbols? To users who may not see addresses, the kernel shows zeros.
    pub fn is_hidden(&self) -> bool {
        self.all.is_empty()
    }

    /// The symbol at or before the address, and the distance from it.
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        // An address further away belongs to something else, which has no name.
        const NEAR: u64 = 1 << 20;
        let at = self.all.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, name) = &self.all[at];
        let behind = address - start;
        (behind < NEAR).then_some((name.as_str(), behind))
    }

    /// The function at an address, or else the address as text.
    pub fn function(&self, address: u64) -> String {
        self.find(address).map_or_else(|| format!("{address:#x}"), |(name, _)| name.to_owned())
    }

    /// A variable and the offset in it, if the kernel names its variables: `tasklist_lock`, `init_task+0x1c`.
    pub fn variable(&self, address: u64) -> Option<String> {
        // We can't tell what is between code and data, so an address too far from a symbol is in no variable.
        const LARGEST: u64 = 1 << 14;
        let (name, behind) = self.find(address)?;
        let is_mark = name.starts_with('_') && (name.ends_with("_end") || name.ends_with("_stop"));
        match behind {
            _ if is_mark => None,
            0 => Some(name.to_owned()),
            1..LARGEST => Some(format!("{name}+{behind:#x}")),
            _ => None,
        }
    }

    /// The callers of a lock, the innermost first, without the functions of the lock and of the tracepoint.
    pub fn callers(&self, frames: &[u64]) -> Vec<String> {
        // A return address is after the call, which may be a function's last instruction.
        let calls = frames.iter().map(|address| address.saturating_sub(1));
        calls.skip_while(|address| self.is_of_lock(*address)).map(|at| self.function(at)).collect()
    }

    fn is_of_lock(&self, address: u64) -> bool {
        let Some((name, _)) = self.find(address) else { return false };
        self.locks.iter().any(|(start, end)| (*start..*end).contains(&address))
            || LOCKS.iter().chain(&TRACE).any(|start| name.starts_with(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
0000000000001000 A per_cpu_offset_of_something
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81001000 T vm_mmap_pgoff
ffffffff81002000 t rwsem_down_write_slowpath
ffffffff82000000 T __sched_text_start
ffffffff82000100 T down_write_killable
ffffffff82000200 T schedule
ffffffff82001000 T __sched_text_end
ffffffff82001000 T after\t[module]
";

    #[test]
    fn callers_begin_behind_the_lock() {
        let symbols = Symbols::of(TEXT);
        let frames =
            [0xffffffff81002040, 0xffffffff82000110, 0xffffffff81001010, 0xffffffff82000210];
        assert_eq!(symbols.callers(&frames), ["vm_mmap_pgoff", "schedule"]);
        assert_eq!(symbols.function(0xffffffff81000000), "_text");
        assert_eq!(symbols.function(0x1000), "0x1000");
        assert_eq!(symbols.function(0xffffffff82001000), "__sched_text_end");
    }

    #[test]
    fn zeros_are_no_addresses() {
        assert!(Symbols::of("0000000000000000 T _text\n0000000000000000 T schedule\n").is_hidden());
    }
}
