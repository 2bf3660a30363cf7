//! The locks that a function uses, also by way of wrappers, as far as threads have waited there.

use super::live::Live;
use super::outcome::busiest;
use super::passers::Passers;
use super::snapshot::{Lock, LockKind};
use super::watched::lease;
use super::wrapper::without_arguments;
use crate::process::Process;
use lockwright_contract::counters::control::Level;
use lockwright_symbols::{Symboliser, Unwinder};
use lockwright_text::Failure;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum number of locks that get names: those with the most waiting time.
const MOST: usize = 100;
/// How long the process counts, and how often it is told of wrappers meanwhile: it counts beyond those that it knows.
const TIME: Duration = Duration::from_millis(400);
const BETWEEN: Duration = Duration::from_millis(20);

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Its kind.
    pub kind: LockKind,
    /// Its address in the process.
    pub address: u64,
}

/// The locks whose waiters or holders were in this function, those with the most waiting time first. The process counts for [`TIME`], unless it
/// counted before; it is told of its wrappers.
///
/// # Errors
/// The process doesn't run under our library, or its counts can't be read.
pub fn used_in(process: &Process, function: &str) -> Result<Vec<Used>, Failure> {
    let live = Live::find(process)?;
    let mut symbols = Symboliser::of_process(process.pid).map_err(|error| process.gone(&error))?;
    let mut unwinder = Unwinder::new(&mut symbols);
    let mut passers = Passers::default();
    live.ask(process, Level::Counters, lease(TIME))?;
    let begun = Instant::now();
    let counts = loop {
        sleep(BETWEEN);
        let counts = live.snapshot(process)?;
        if let Some(counts) = &counts {
            passers.look_in(process, counts, &mut symbols, &mut unwinder);
        }
        if begun.elapsed() > TIME {
            break counts;
        }
    };
    live.leave(process, Level::Counters)?;
    let Some(counts) = counts else { return Ok(Vec::new()) };
    let seen = busiest(&counts, &mut symbols, 0, 0, MOST, Lock::rank);
    let used = seen.locks.iter().filter(|lock| {
        let mut sites = lock.waiters.iter().chain(&lock.holders);
        lock.address != 0 && sites.any(|site| is_named(&site.function, function))
    });
    Ok(used.map(|lock| Used { kind: lock.kind, address: lock.address }).collect())
}

/// Is this function meant? Users may leave out template arguments and parameters.
fn is_named(function: &str, wanted: &str) -> bool {
    function == wanted || without_arguments(function) == wanted
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn names_may_be_given_without_arguments() {
        for (function, wanted, is_it) in [
            ("get_row", "get_row", true),
            ("db::Table<int>::get(long)", "db::Table::get", true),
            ("db::Table<int>::get", "db::Table", false),
            ("put<int>", "put", true),
            ("put<int>", "put<long>", false),
            ("get_rows", "get_row", false),
        ] {
            assert_eq!(is_named(function, wanted), is_it, "{function} {wanted}");
        }
    }
}
