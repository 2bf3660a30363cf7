//! What it takes to look into a process: its threads' ids, its stacks, its names.

use crate::sampler::wait::is_static;
use lockwright_symbols::{
    Blocked, Frame, Registers, Symboliser, Unwinder, proc_text, task, threads,
};
use std::collections::HashMap;

/// A thread with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its id, as this machine's tools show it.
    pub tid: libc::pid_t,
    /// Its name; empty: it has ended.
    pub name: String,
    /// Its policy or nice value, if unlike most threads'.
    pub scheduling: Option<String>,
}

impl Named {
    pub(super) fn of(pid: libc::pid_t, tid: libc::pid_t) -> Self {
        let task = task(pid, tid).ok();
        let scheduling = task.as_ref().and_then(lockwright_symbols::Task::scheduling);
        Self { tid, name: task.map_or_else(String::new, |task| task.name), scheduling }
    }
}

/// Looks into a process.
pub(super) struct Observer {
    pub(super) pid: libc::pid_t,
    pub(super) symbols: Symboliser,
    unwinder: Unwinder,
    /// Threads' ids in our namespace, by their ids in the process's own: in a container they differ.
    pub(super) ids: HashMap<u32, libc::pid_t>,
    /// Has the program no C library in a file of its own?
    pub(super) is_static: bool,
}

impl Observer {
    pub(super) fn new(pid: libc::pid_t, mut symbols: Symboliser) -> Self {
        let unwinder = Unwinder::new(&mut symbols);
        let is_static = is_static(symbols.space());
        Self { pid, symbols, unwinder, ids: ids(pid), is_static }
    }

    /// Adds what the process has loaded since.
    pub(super) fn refresh(&mut self) {
        if self.symbols.refresh() {
            self.unwinder.refresh(&mut self.symbols);
            self.is_static = is_static(self.symbols.space());
        }
    }

    /// The stack of a thread that sleeps.
    pub(super) fn stack(&mut self, state: &Blocked) -> Vec<u64> {
        let registers = Registers {
            instruction: state.instruction,
            stack: state.stack_pointer,
            ..Registers::default()
        };
        self.unwinder.sleeping(self.symbols.space(), registers)
    }

    /// The functions of a stack by symbol tables alone. All debug information of a large program takes seconds to read, and most
    /// sleepers wait for nothing that another thread holds.
    pub(super) fn functions(&mut self, stack: &[u64]) -> Vec<Frame> {
        stack.iter().map(|&address| self.symbols.bare(address)).collect()
    }

    pub(super) fn frames(&mut self, stack: &[u64]) -> Vec<Frame> {
        stack.iter().flat_map(|&address| self.symbols.code(address).to_vec()).collect()
    }
}

/// Threads' ids in our namespace, by their ids in the process's own.
pub(super) fn ids(pid: libc::pid_t) -> HashMap<u32, libc::pid_t> {
    let inner = |tid: libc::pid_t| {
        let status = proc_text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        ids.split_whitespace().next_back()?.parse().ok()
    };
    let all = threads(pid).unwrap_or_default();
    all.into_iter().map(|tid| (inner(tid).unwrap_or(tid.cast_unsigned()), tid)).collect()
}
