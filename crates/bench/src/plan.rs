//! What to run: the points, and the locks at each.

use crate::point::{Point, Work};
use crate::subject::Subject;
use serde::Serialize;
use std::path::Path;

/// One row of the grid: a point and its locks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The point.
    pub point: Point,
    /// Indices of the subjects; the reference comes first.
    pub subjects: Vec<usize>,
}

/// What to run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The locks. The first one is the reference.
    pub subjects: Vec<Subject>,
    /// The points.
    pub rows: Vec<Row>,
    /// For each row, the subjects that show the maximum rate at its point ([`ceilings`]); empty if none can.
    pub ceilings: Vec<Vec<usize>>,
    /// Number of repetitions.
    pub reps: u32,
    /// Length of one measurement.
    pub time_s: f64,
    /// Time limit of one measurement in seconds; `None`: it depends on length and threads.
    pub limit_s: Option<f64>,
    /// The seed for the lengths.
    pub seed: u64,
}

/// Subjects that show the maximum rate at the points of `rows`: two threads with a CPU each (the two fastest CPUs) and
/// a test-and-set lock, or one CPU alone; the higher rate counts. They are added to `subjects`. `library` slows
/// emulated cores down. There is no ceiling for points whose figure isn't the throughput of one exclusive lock.
pub(crate) fn ceilings(
    rows: &[Row],
    cpus: usize,
    library: Option<&Path>,
    subjects: &mut Vec<Subject>,
) -> Vec<Vec<usize>> {
    let mut place = |ceiling: Subject| {
        let known = subjects.iter().position(|subject| subject.name == ceiling.name);
        known.unwrap_or_else(|| {
            subjects.push(ceiling);
            subjects.len() - 1
        })
    };
    let mut of_row = |row: &Row| {
        let point = &row.point;
        if !has_ceiling(&point.work) || (point.emulate.is_some() && library.is_none()) {
            return Vec::new();
        }
        let library = point.emulate.as_ref().and(library);
        let pair = point.threads.min(2).min(cpus as u32);
        let counts = if pair == 2 { vec![2, 1] } else { vec![1] };
        counts.into_iter().map(|threads| place(Subject::ceiling(threads, library))).collect()
    };
    rows.iter().map(&mut of_row).collect()
}

/// Does the point's rate count critical sections under one lock, or epochs of them?
fn has_ceiling(work: &Work) -> bool {
    match work {
        Work::Mutex | Work::Trylock | Work::Timedlock { .. } | Work::Epoch { .. } => true,
        // Tickets move a second cache line. The figures of the others are not throughput under an exclusive lock.
        Work::Order { .. } | Work::Rwlock { .. } | Work::Queue { .. } | Work::Barrier => false,
        // There are several locks, and some attempts fail.
        Work::Calls { .. } => false,
        Work::Uncontended { .. } | Work::Memory { .. } | Work::EpochCost => false,
    }
}

/// The point that a subject measures. A ceiling has its own number of threads, and otherwise the same point.
pub(crate) fn point_of(subject: &Subject, point: &Point) -> Point {
    let Some(threads) = subject.alone else { return point.clone() };
    let work = match point.work {
        // The ceiling's holder always has the lock, so no attempt fails or times out.
        Work::Trylock | Work::Timedlock { .. } => Work::Mutex,
        ref work => work.clone(),
    };
    Point { work, threads, pin: true, latency: false, ..point.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Length;

    fn point(work: Work, threads: u32, emulate: Option<&str>) -> Row {
        let point = Point {
            work,
            threads,
            cs_ns: 100,
            gap_ns: 400,
            length: Length::Exponential,
            lines: 2,
            pin: false,
            hogs: 0,
            latency: true,
            emulate: emulate.map(Into::into),
        };
        Row { point, subjects: vec![0] }
    }

    #[test]
    fn each_point_of_throughput_has_its_ceiling() {
        let so = Path::new("/lib/liblockwright.so");
        let rows = [
            point(Work::Mutex, 8, None),
            point(Work::Mutex, 1, None),
            point(Work::Barrier, 8, None),
            point(Work::Epoch { slo_ns: 1, locks: 2 }, 4, Some("big:0,little:1x2")),
        ];
        let mut subjects = vec![Subject::glibc()];
        let ceilings = ceilings(&rows, 2, Some(so), &mut subjects);
        let names = |row: usize| ceilings[row].iter().map(|&at| &*subjects[at].name);
        assert!(names(0).eq(["ceiling, 2 CPUs", "ceiling, one CPU"]));
        assert!(names(1).eq(["ceiling, one CPU"]), "one thread has one CPU");
        assert_eq!(ceilings[2].len(), 0);
        assert!(names(3).eq(["ceiling, 2 CPUs, emulated", "ceiling, one CPU, emulated"]));
        assert_eq!(subjects.len(), 5, "none twice");

        let one_cpu = super::ceilings(&rows, 1, None, &mut vec![Subject::glibc()]);
        assert_eq!(one_cpu, [vec![1], vec![1], vec![], vec![]]);
    }

    #[test]
    fn a_ceiling_has_the_points_lengths_and_its_own_threads() {
        let timed = point(Work::Timedlock { timeout_us: 5 }, 8, None).point;
        let alone = point_of(&Subject::ceiling(2, None), &timed);
        assert_eq!((alone.threads, alone.pin, alone.latency), (2, true, false));
        assert_eq!(
            (alone.work, alone.cs_ns, alone.gap_ns, alone.lines),
            (Work::Mutex, 100, 400, 2)
        );
        assert_eq!(point_of(&Subject::glibc(), &timed), timed);
    }
}
