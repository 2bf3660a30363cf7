//! The stacks of simulated threads.

use crate::directory::LINE;
use crate::units::Tid;
use corosensei::stack::{DefaultStack, Stack, StackPointer};
use std::cell::RefCell;

/// Bytes of a stack.
const SIZE: usize = 128 << 10;

/// Stacks begin this far apart within a page, and so in other sets of the first-level cache: there, a set has room for
/// eight lines or so. If all stacks began where a page does, threads would evict each other's frames. Words on a stack
/// stay where they are in their simulated line.
const APART: usize = 5 * LINE;
const PAGE: usize = 4096;

thread_local! {
    /// Stacks of coroutines that have ended.
    static SPARE: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A thread's stack.
pub(super) struct OwnStack {
    memory: DefaultStack,
    base: StackPointer,
}

impl OwnStack {
    /// A stack for the thread of this number.
    pub(super) fn of(thread: Tid) -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let memory = spare.unwrap_or_else(|| DefaultStack::new(SIZE).expect("memory for a stack"));
        let base = memory.base().get() - thread as usize * APART % PAGE;
        Self { memory, base: StackPointer::new(base).expect("not at address 0") }
    }

    /// The next thread may have it.
    pub(super) fn give_back(self) {
        SPARE.with_borrow_mut(|spare| spare.push(self.memory));
    }
}

// SAFETY: the stack, with its guard page, is `memory`. It begins a few lines lower: that is aligned, and leaves far more than needed.
unsafe impl Stack for OwnStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}
