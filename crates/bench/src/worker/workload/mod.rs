//! What the threads do: one file per workload.

pub(super) mod barrier;
pub(super) mod calls;
pub(super) mod epoch;
pub(super) mod epoch_cost;
pub(super) mod memory;
pub(super) mod mutex;
pub(super) mod order;
pub(super) mod queue;
pub(super) mod rwlock;
pub(super) mod uncontended;
