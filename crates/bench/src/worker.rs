//! The worker: a separate process for each measurement, using the same program for every lock.
//!
//! ```text
//!  workload/             what the threads do: one file a workload
//!  turn                  one turn of them: ask, section, release, gap
//!  mutex monitor rw      locks, all alike: a mutex, one with condition variables, one for readers and writers
//!  pass times epoch_api  what each of them needs: threads that start together, and what the lock protects
//!  in_force              whose locks they were
//! ```

mod epoch_api;
mod in_force;
mod monitor;
mod mutex;
mod pass;
mod rw;
mod times;
mod turn;
mod workload;

use crate::point::{Call, Work};
use crate::spec::{Answer, Lock, Spec};
use crate::system;
use anyhow::{Context, Result, anyhow};
use lockwright_locks::catalog::find_read_write;
use monitor::{ParkingLotMonitor, PthreadMonitor, StdMonitor};
use mutex::{Mutex, ParkingLot, Pthread, Std, WithMutex, with_catalogue_lock};
use pass::unsupported;
use rw::PthreadRw;
use workload::barrier::barrier;
use workload::queue::queue;
use workload::rwlock::readers_and_writers;
use workload::{calls, epoch, epoch_cost, memory, order, uncontended};

/// Measures one point as requested by `spec` (JSON), and prints the answer.
pub(crate) fn main(spec: &str) -> Result<()> {
    system::die_with_parent();
    let spec: Spec = serde_json::from_str(spec).context("cannot read the worker's orders")?;
    if let Some(emulate) = &spec.point.emulate {
        system::publish_classes(emulate);
    }
    let mut answer = measure(&spec)?;
    answer.provider = system::provider_of_pthread_mutex_lock();
    answer.in_force = in_force::in_force();
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

/// Measures one point in this process.
pub(crate) fn measure(spec: &Spec) -> Result<Answer> {
    Ok(match &spec.point.work {
        Work::Queue { producers, consumers } => match spec.lock {
            Lock::Pthread => queue::<PthreadMonitor>(spec, *producers, *consumers),
            Lock::Std => queue::<StdMonitor>(spec, *producers, *consumers),
            Lock::ParkingLot => queue::<ParkingLotMonitor>(spec, *producers, *consumers),
            Lock::Catalogue(_) => unsupported(),
        },
        Work::Barrier => match spec.lock {
            Lock::Pthread => barrier::<PthreadMonitor>(spec),
            Lock::Std => barrier::<StdMonitor>(spec),
            Lock::ParkingLot => barrier::<ParkingLotMonitor>(spec),
            Lock::Catalogue(_) => unsupported(),
        },
        Work::Rwlock { reads } => match spec.lock {
            Lock::Pthread => readers_and_writers::<PthreadRw>(spec, *reads),
            Lock::Std => readers_and_writers::<std::sync::RwLock<()>>(spec, *reads),
            Lock::ParkingLot => readers_and_writers::<parking_lot::RwLock<()>>(spec, *reads),
            Lock::Catalogue(ref id) => {
                rw::with_catalogue_lock(id, spec, *reads).unwrap_or_else(unsupported)
            }
        },
        _ => match &spec.lock {
            Lock::Catalogue(id) if find_read_write(id).is_some() => unsupported(),
            Lock::Pthread => spec.run::<Pthread>(),
            Lock::Std => spec.run::<Std>(),
            Lock::ParkingLot => spec.run::<ParkingLot>(),
            Lock::Catalogue(id) => with_catalogue_lock(id, spec)
                .ok_or_else(|| anyhow!("no lock '{id}' in the catalogue"))?,
        },
    })
}

impl WithMutex for Spec {
    type Output = Answer;

    fn run<M: Mutex>(&self) -> Answer {
        let mut answer = match self.point.work {
            Work::Uncontended { second_thread } => {
                uncontended::uncontended::<M>(self, second_thread)
            }
            Work::Memory { .. } if M::SERVED => unsupported(),
            Work::Memory { locks, contended } => memory::memory::<M>(locks, contended),
            Work::Order { grace_ns } => order::order::<M>(self, grace_ns),
            Work::Epoch { slo_ns, locks } => epoch::bench_1::<M>(self, slo_ns, locks),
            Work::EpochCost => epoch_cost::cost(),
            Work::Calls { ref calls, mutexes, timeout_us } => {
                let can = |call: &Call| match call {
                    Call::Try => M::TRIES,
                    call => M::TIMED || !call.has_deadline(),
                };
                match calls.iter().all(can) {
                    true => calls::calls::<M>(self, calls, mutexes, timeout_us),
                    false => unsupported(),
                }
            }
            Work::Timedlock { .. } if !M::TIMED => unsupported(),
            Work::Trylock if !M::TRIES => unsupported(),
            _ => workload::mutex::competition::<M>(self),
        };
        answer.size_of = size_of::<M>() as u64;
        answer
    }
}
