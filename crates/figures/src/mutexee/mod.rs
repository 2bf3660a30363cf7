//! The figures of MUTEXEE (*Unlocking Energy*, USENIX ATC 2016).
//!
//! MUTEX is glibc's default mutex: the authors' programs initialize that one (lockin, bmarks/stress_one_in.c), although
//! the paper's Table 1 describes a mutex that spins first. Threads are placed like the paper's: on the cores of one
//! socket, then on those of the other, then on hyper-threads. With more threads than hardware threads, the scheduler
//! places them.

mod alone;
mod common;
mod grid;
mod single;
mod systems;

use crate::experiment::Experiment;

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "mutexee-1", measure: systems::figure_1 },
    Experiment { id: "mutexee-8", measure: single::figure_8 },
    Experiment { id: "mutexee-9", measure: single::figure_9 },
    Experiment { id: "mutexee-10", measure: single::figure_10 },
    Experiment { id: "mutexee-11", measure: single::figure_11 },
    Experiment { id: "mutexee-12", measure: grid::figure_12 },
    Experiment { id: "mutexee-13", measure: systems::figure_13 },
    Experiment { id: "mutexee-t2", measure: alone::table_2 },
];

/// The parts that fits need: the fitted rows, measured as in the whole figure.
pub static FITTED: &[Experiment] = &[Experiment { id: "mutexee-11", measure: single::rows_of_11 }];
