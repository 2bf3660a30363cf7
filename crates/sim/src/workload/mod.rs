//! The workloads: each its own file, and one line here.

mod cal;
mod cycles;
mod rcl;
mod sections;

use crate::load::Workload;

/// Every workload.
pub static WORKLOADS: &[&Workload] = &[&sections::ENTRY, &cal::ENTRY, &cycles::ENTRY, &rcl::ENTRY];

/// The workload called `id`.
pub fn find(id: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().copied().find(|workload| workload.id == id)
}
