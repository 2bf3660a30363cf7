//! Where a waiting thread is, noted by itself: so it can be taken out of its wait at whatever instruction it was torn away.
//!
//! ```text
//!   Outside ─► Joins ─► Waits ─► Holds ─► Leaves ─► Holds, without a node
//!      └──────────────────────────► Holds, without a node
//! ```
//!
//! A note and the step that it is about are two instructions, and a thread may be torn away between them. So a note comes *before* its
//! step, and whoever leaves finds out whether the step was done:
//!
//! - *Did it join?* A node names its predecessor before the exchange that makes it the last in line. So a walk from the line's
//!   end, from node to predecessor, comes to it, or it isn't in the line. (While it is, nobody behind it can leave the line.)
//!   Where the exchange fails, because others come at the same time, the thread learns its predecessor from a swap, which can't
//!   fail. Nothing tears the thread away until it has named that node (`Undisturbed`). Until then its node names itself, and whoever
//!   walks the line waits. (What a thread causes itself isn't kept away: a handler of a fault or single step, which must not jump
//!   from there.)
//! - *Has it left?* The same walk comes to the one behind it, or there is none.
//! - *A choice, followers that move* (choice.rs, near.rs): what is to be done is noted, and doing it twice is as good as once.
//!
//! One step can't be found out: word 0 doesn't say who took it. That note comes right after the exchange, as glibc's own lock writes its
//! owner. A thread that is torn away between the two has the lock for good.

use super::waiter::Waiter;
use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;
use lockwright_platform::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In no line, and without the lock.
    Outside,
    /// Maybe in line, by its node.
    Joins,
    /// In line, by its node. Maybe it has been granted the lock.
    Waits,
    /// It has the lock. If it has a node, that is in line.
    Holds,
    /// It has the lock, and its node, if it still has one, is leaving the line.
    Leaves,
}

/// A waiting thread's notes, for itself.
pub struct Seat<P: Machine> {
    pub(super) stage: Cell<Stage>,
    /// Null: it is in no line.
    pub(super) node: Cell<*const Waiter<P>>,
    /// A head that it has opened, and that may sleep at its gate.
    pub(super) head: Cell<*const Waiter<P>>,
    /// A choice that it may be making (choice.rs).
    pub(super) choice: Cell<*const ()>,
    /// A door that it is changing, see near.rs; 0: none.
    pub(super) door: Cell<u32>,
    pub(super) contends: Cell<bool>,
}

impl<P: Machine> Default for Seat<P> {
    fn default() -> Self {
        Self {
            stage: Cell::new(Stage::Outside),
            node: Cell::new(null()),
            head: Cell::new(null()),
            choice: Cell::new(null()),
            door: Cell::new(0),
            contends: Cell::new(false),
        }
    }
}

/// Orders a thread's own writes, in case a signal handler doesn't return.
fn fence() {
    // ORDERING: SeqCst, for the compiler alone; pairs with our own signal handlers: they see what came before this, and
    // nothing that comes after it.
    compiler_fence(SeqCst);
}

/// What a thread notes.
impl<P: Machine> Seat<P> {
    fn note(&self, stage: Stage) {
        fence();
        self.stage.set(stage);
        fence();
    }

    /// It is about to join the line with this node.
    pub(crate) fn joins(&self, node: &Waiter<P>) {
        self.node.set(node);
        self.note(Stage::Joins);
    }

    /// It is in the line.
    pub(crate) fn waits(&self) {
        self.note(Stage::Waits);
    }

    /// It has the lock.
    pub(super) fn holds(&self) {
        self.note(Stage::Holds);
    }

    /// It has the lock, and is about to give it back.
    pub(super) fn gives(&self) {
        self.note(Stage::Outside);
    }

    /// It has the lock, and is about to leave the line.
    pub(super) fn leaves(&self) {
        self.note(Stage::Leaves);
    }

    /// Its node isn't in line any more. `head` is now, and may sleep at its gate; or nobody.
    pub(super) fn has_left(&self, head: *const Waiter<P>) {
        fence();
        self.head.set(head);
        fence();
        self.node.set(null());
        fence();
    }

    /// It is about to make this choice; null: it has made it.
    pub(super) fn chooses(&self, choice: *const ()) {
        fence();
        self.choice.set(choice);
        fence();
    }

    /// It is about to change a door so that its word says this; 0: it has changed it.
    pub(super) fn changes(&self, door: u32) {
        fence();
        self.door.set(door);
        fence();
    }

    /// Is it counted among the contenders?
    pub(super) fn contends(&self, counted: bool) {
        self.contends.set(counted);
        fence();
    }
}

impl<P: Machine> Seat<P> {
    /// Does it hold the lock, as it has noted?
    pub fn has_it(&self) -> bool {
        self.stage.get() == Stage::Holds
    }

    /// Has it noted a node?
    pub fn has_node(&self) -> bool {
        !self.node.get().is_null()
    }
}
