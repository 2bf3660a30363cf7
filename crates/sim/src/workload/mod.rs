//! The workloads: each has its own file, and one line here.

mod bench;
mod bench1;
mod bench2;
mod bench3;
mod cal;
mod cycles;
mod databases;
mod epochs;
mod rcl;
mod readers;
pub mod replay;
mod sections;
mod tries;

use crate::load::Workload;

/// Every workload.
pub static WORKLOADS: &[&Workload] = &[
    &sections::ENTRY,
    &bench1::ENTRY,
    &bench2::ENTRY,
    &bench3::ENTRY,
    &bench::ENTRY,
    &cal::ENTRY,
    &cycles::ENTRY,
    &rcl::ENTRY,
    &readers::ENTRY,
    &tries::ENTRY,
    &databases::KYOTO,
    &databases::LMDB,
    &databases::LEVELDB,
    &databases::SQLITE,
];

/// The workload called `id`.
pub fn find(id: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().copied().find(|workload| workload.id == id)
}
