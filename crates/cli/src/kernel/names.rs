//! Names for the addresses in an observation.

use super::user::Processes;
use crate::hints::warn;
use lockwright_kernel::{Lock, Named, StackWaits, Symbols};

/// Functions and variables of the kernel, and of processes.
pub(crate) struct Names {
    kernel: Symbols,
    pub(crate) processes: Processes,
}

impl Names {
    /// Reads the running kernel's symbols. If they are hidden, prints a warning.
    pub(crate) fn read() -> Self {
        let kernel = Symbols::read().unwrap_or_default();
        if kernel.is_hidden() {
            warn(
                "the kernel hides its function names: the report shows addresses",
                "sudo sysctl kernel.kptr_restrict=1, and run it with CAP_SYSLOG, as with sudo",
            );
        }
        Self { kernel, processes: Processes::default() }
    }

    /// Adds names to the waits.
    pub(crate) fn of(&mut self, waits: &[StackWaits]) -> Vec<Named> {
        waits.iter().map(|wait| self.named(wait)).collect()
    }

    fn named(&mut self, wait: &StackWaits) -> Named {
        let callers = match wait.process {
            None => self.kernel.callers(&wait.frames),
            Some(pid) => wait.frames.iter().map(|at| self.processes.function(pid, *at)).collect(),
        };
        let lock = match wait.process {
            None => self.lock(&wait.lock),
            Some(pid) => {
                let variable = self.processes.variable(pid, wait.lock.address);
                format!("{variable} of {}", self.processes.process(pid))
            }
        };
        Named { lock, address: wait.lock.address, kind: wait.kind, callers, sum: wait.sum.clone() }
    }

    fn lock(&self, lock: &Lock) -> String {
        if let Some(owner) = &lock.owner {
            return format!("{} of {} ({})", owner.role, owner.name, owner.process);
        }
        let variable = self.kernel.variable(lock.address);
        variable.unwrap_or_else(|| format!("{:#x}", lock.address))
    }
}

/// Is it the requested lock? `asked` is a name (`mmap_lock`, `tasklist_lock`) or an address.
pub(crate) fn is_lock(wait: &Named, asked: &str) -> bool {
    let name = wait.lock.split(" of ").next().unwrap_or_default();
    let variable = name.split('+').next().unwrap_or_default();
    let address = asked.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    wait.lock == asked || name == asked || variable == asked || address == Some(wait.address)
}

/// Is the requested function among the callers?
pub(crate) fn has_function(wait: &Named, asked: &str) -> bool {
    wait.callers.iter().any(|caller| caller == asked)
}
