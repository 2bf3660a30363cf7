//! All threads write to one variable: RCL's "cost of all threads concurrently writing to a single variable".
//!
//! An operation is one attempt to take the lock, which for the simplest lock is one atomic operation. A thread that
//! gets the lock releases it.

use crate::load::{Setup, Workload};

/// What the list says.
pub(super) static ENTRY: Workload = Workload {
    id: "tries",
    idea: "every thread: try to take one lock, again and again; release it if that succeeds",
    source: "RCL: Lozi, Towards More Scalable Mutual Exclusion, PhD defence (\"Spinlocks\")",
    params: &[],
    holds: true,
    setup: &setup,
};

fn setup(setup: &mut Setup) {
    let lock = setup.lock();
    setup.threads(move |me| {
        while me.goes_on() {
            let mut got = false;
            me.operation(|| got = me.try_acquire(lock));
            if got {
                me.release(lock);
            }
        }
    });
}
