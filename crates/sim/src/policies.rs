//! Policies that program simulated locks, by slot, and what they see of a thread.

use lockwright_platform::hooks::{Hook, Policy};
use std::fmt;
use std::sync::Arc;

/// The number of slots, with slot 0, which has no policy.
pub const SLOTS: usize = 16;

/// A policy for a lock of a run. Each run makes its own instance.
#[derive(Clone)]
pub struct SlotPolicy {
    name: String,
    make: Arc<dyn Fn() -> Box<dyn Policy> + Send + Sync>,
}

impl SlotPolicy {
    /// The policy that `make` makes. `name` tells it from others: runs that differ only in their policies differ by their names.
    pub fn new(
        name: impl Into<String>,
        make: impl Fn() -> Box<dyn Policy> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), make: Arc::new(make) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for SlotPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotPolicy").field(&self.name).finish()
    }
}

/// A machine's policies, by slot.
#[derive(Default)]
pub(crate) struct Policies([Option<Box<dyn Policy>>; SLOTS]);

impl Policies {
    /// New instances of these.
    pub(crate) fn of<'a>(programs: impl Iterator<Item = (u32, &'a SlotPolicy)>) -> Self {
        let mut policies = Self::default();
        for (slot, program) in programs {
            policies.0[slot as usize] = Some((program.make)());
        }
        policies
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&dyn Policy> {
        self.0.get(slot as usize)?.as_deref()
    }
}

/// What policies see of a thread, beyond its core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Person {
    /// The SLO of its epoch, ns; 0: none.
    pub(crate) slo_ns: u64,
    pub(crate) in_epoch: bool,
    pub(crate) tag: u64,
    pub(crate) prio: i32,
    /// How many programmed locks it holds.
    pub(crate) held: u32,
    /// Since when it holds one, ns.
    pub(crate) since: u64,
    /// How long it has held some, ns.
    pub(crate) total: u64,
}

impl Person {
    pub(crate) fn hears(&mut self, hook: Hook, now: u64) {
        match hook {
            Hook::LockAcquired => {
                if self.held == 0 {
                    self.since = now;
                }
                self.held += 1;
            }
            Hook::LockRelease if self.held > 0 => {
                self.held -= 1;
                if self.held == 0 {
                    self.total += now - self.since;
                }
            }
            _ => {}
        }
    }
}
