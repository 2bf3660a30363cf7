//! The columns of the table of locks: text, pages and `top` show the same numbers by the same names (docs/glossary.md).

use crate::profile::words::duration;
use lockwright_numbers::format::count;
use lockwright_observer::counts::observation::Ranked;

/// A figure of a lock.
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it means.
    pub(crate) meaning: &'static str,
    /// Shows a figure, with its unit.
    of: fn(f64) -> String,
    /// The figure: a count, a share (0 to 1), or ns; `None`: not known.
    pub(crate) figure: fn(&Ranked) -> Option<f64>,
}

impl Column {
    const fn new(
        name: &'static str,
        meaning: &'static str,
        shown: fn(f64) -> String,
        figure: fn(&Ranked) -> Option<f64>,
    ) -> Self {
        Self { name, meaning, of: shown, figure }
    }

    /// The figure, with its unit; `-`: not known.
    pub(crate) fn shown(&self, lock: &Ranked) -> String {
        (self.figure)(lock).map_or_else(|| "-".to_owned(), self.of)
    }
}

/// All of them.
pub(crate) const COLUMNS: [Column; 6] = [
    Column::new(
        "acquired",
        "how often threads took it, from its first timed wait to its last; known of most mutexes alone",
        counted,
        acquired,
    ),
    Column::new(
        "contended",
        "how often a thread found it taken and had to wait",
        counted,
        |lock| Some(lock.contended as f64),
    ),
    Column::new("total wait", "how long all threads together waited", timed, |lock| {
        Some(lock.wait_ns as f64)
    }),
    Column::new("mean", "how long a wait took on average", timed, mean_ns),
    Column::new("longest", "the longest wait", timed, longest_ns),
    Column::new("slept", "the share of waits in which the waiting thread slept", percent, slept),
];

/// The figure of this column.
pub(crate) fn shown(name: &str, lock: &Ranked) -> String {
    let column = COLUMNS.iter().find(|column| column.name == name);
    column.expect("one of the columns").shown(lock)
}

fn acquired(lock: &Ranked) -> Option<f64> {
    (lock.acquired > 0).then_some(lock.acquired as f64)
}

/// Unless no wait has ended.
fn mean_ns(lock: &Ranked) -> Option<f64> {
    (lock.mean_ns > 0).then_some(lock.mean_ns as f64)
}

fn longest_ns(lock: &Ranked) -> Option<f64> {
    let longest = lock.wait.max_ns.max(lock.unended_ns);
    (longest > 0).then_some(longest as f64)
}

fn slept(lock: &Ranked) -> Option<f64> {
    // A wait that has begun earlier may end in the period.
    let waits = lock.contended.max(lock.wait.count);
    (waits > 0).then(|| (lock.slept as f64 / waits as f64).min(1.0))
}

fn timed(ns: f64) -> String {
    duration(ns as u64)
}

fn counted(many: f64) -> String {
    count(many as u64)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Several locks as one row: what all of them waited.
pub(crate) fn together(locks: &[&Ranked]) -> Ranked {
    let mut sum = Ranked::default();
    for lock in locks {
        // Not known of one of them, not known of all.
        let is_known = lock.acquired > 0 && (sum.acquired > 0 || sum.locks == 0);
        sum.acquired = if is_known { sum.acquired + lock.acquired } else { 0 };
        sum.locks += lock.locks.max(1);
        sum.contended += lock.contended;
        sum.slept += lock.slept;
        sum.wait_ns += lock.wait_ns;
        sum.unended_ns = sum.unended_ns.max(lock.unended_ns);
        sum.wait.max_ns = sum.wait.max_ns.max(lock.wait.max_ns);
    }
    sum.mean_ns = sum.wait_ns / sum.contended.max(1);
    sum
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::lock;
    use super::*;

    #[test]
    fn a_row_has_units_and_leaves_out_what_is_not_known() {
        let mut one = lock(2_000_000, (1, 1, 500));
        (one.contended, one.slept, one.mean_ns) = (1000, 250, 2000);
        let row = |lock: &Ranked| COLUMNS.map(|column| column.shown(lock));
        assert_eq!(row(&one), ["-", "1.00 k", "2.00 ms", "2.00 µs", "1.00 µs", "25 %"]);
        one.acquired = 5000;
        assert_eq!(row(&one)[0], "5.00 k");
        let both = together(&[&one, &one]);
        assert_eq!(row(&both)[..4], ["10.0 k", "2.00 k", "4.00 ms", "2.00 µs"]);
        let none = lock(0, (0, 0, 0));
        assert_eq!((together(&[&one, &none]).acquired, together(&[&none, &one]).acquired), (0, 0));
        let never = Ranked::default();
        assert_eq!(row(&never)[..], ["-", "0", "0 ns", "-", "-", "-"]);
    }
}
