//! What FlexGuard asks of a machine.

use lockwright_platform::Machine;

/// A machine whose kernel tells whether it has preempted a thread that matters.
pub(crate) trait Monitored: Machine {
    /// The calling thread asks for a lock's word or has the lock (`true`), or no longer does: in pairs, for each lock.
    fn critical(is: bool);
    /// Has a critical thread lost its CPU to another one?
    fn is_preempted() -> bool;
}
