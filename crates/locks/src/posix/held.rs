//! The locks that a thread holds by nodes (front/grant.rs): it unlocks by those, and need not touch the mutex.
//!
//! A thread remembers a few of them. For a lock that it has forgotten, unlock frees the word, and the line notices that by
//! itself. A thread may also remember a lock that it no longer holds, because another thread unlocked it, or code that knows
//! nothing of us; then the node says so.

use crate::front::{Waiter, Word0};
use core::cell::Cell;
use core::ptr::{from_ref, null};
use lockwright_platform::Machine;

/// How many mutexes held by nodes a thread remembers at a time.
const MOST: usize = 2;

/// A thread's list of them. Zeroes are the list of a thread that holds nothing.
#[repr(C)]
pub struct Held<P: Machine> {
    nodes: [Cell<*const Waiter<P>>; MOST],
    era: Cell<usize>,
}

impl<P: Machine> Default for Held<P> {
    fn default() -> Self {
        Self { nodes: [const { Cell::new(null()) }; MOST], era: Cell::new(0) }
    }
}

impl<P: Machine> Held<P> {
    /// Identifies this thread in nodes.
    pub fn by(&self) -> *const () {
        from_ref(self).cast()
    }

    /// May the thread hold anything by a node?
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.nodes.iter().any(|node| !node.get().is_null())
    }

    /// Notes that the thread has the lock with this word, by this node.
    pub(super) fn note(&self, word: &Word0<P>, node: *const Waiter<P>, era: usize) {
        if self.era.replace(era) != era {
            self.nodes.iter().for_each(|node| node.set(null())); // from before a fork
        }
        for slot in &self.nodes {
            // We had this node before, for another lock.
            if core::ptr::eq(slot.get(), node) {
                slot.set(null());
            }
        }
        // SAFETY: nodes stay readable.
        let is_stale = |old: *const Waiter<P>| unsafe { !(*old).is_by(self.by()) };
        let free = |slot: &Cell<*const Waiter<P>>| slot.get().is_null() || is_stale(slot.get());
        match self.nodes.iter().find(|slot| free(slot)) {
            Some(slot) => slot.set(node),
            // Forget the first: it may be out of date, and nobody may ever ask for it.
            None => self.nodes[0].set(self.nodes[MOST - 1].replace(node)),
        }
        debug_assert!(is_held(word, node, self.by()), "just acquired");
    }

    /// Does the thread certainly hold it by a node? No, if code that knows nothing of us may have unlocked it, or if somebody
    /// sleeps on the word.
    pub(super) fn is_surely_held(&self, word: &Word0<P>, era: usize) -> bool {
        self.is_any() && word.is_chained() && self.slot(word, era).is_some()
    }

    /// Does the thread hold it by a node, or seem to?
    pub fn has(&self, word: &Word0<P>, era: usize) -> bool {
        self.is_any() && self.slot(word, era).is_some()
    }

    /// The thread is about to unlock: by which node does it hold the lock, or seem to? Null: by the word.
    pub(super) fn take(&self, word: &Word0<P>, era: usize) -> *const Waiter<P> {
        match self.slot(word, era) {
            Some(slot) => slot.replace(null()),
            None => null(),
        }
    }

    #[inline(always)]
    fn slot(&self, word: &Word0<P>, era: usize) -> Option<&Cell<*const Waiter<P>>> {
        let is_this = |node: *const Waiter<P>| !node.is_null() && is_held(word, node, self.by());
        self.nodes.iter().find(|slot| is_this(slot.get())).filter(|_| self.era.get() == era)
    }
}

fn is_held<P: Machine>(word: &Word0<P>, node: *const Waiter<P>, by: *const ()) -> bool {
    // SAFETY: nodes stay readable.
    unsafe { (*node).is_held(word, by) }
}
