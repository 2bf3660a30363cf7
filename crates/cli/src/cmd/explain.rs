//! `lockwright explain LOCK`.

use super::list;
use crate::hints::Failure;
use crate::{catalog, output};
use lockwright_locks::entry::{Entry, Kind, OptionSpec};
use lockwright_locks::spec::GLIBC;
use lockwright_numbers::units;
use std::process::ExitCode;

/// Explain a lock: order, space, wake-ups, delays, options
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright explain fifo
  lockwright explain mcs-stp")]
pub(crate) struct Args {
    /// The lock's name, as `lockwright list` shows it
    #[arg(value_parser = catalog::ANY, hide_possible_values = true)]
    lock: String,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let page = if args.lock == GLIBC { glibc() } else { page(catalog::entry(&args.lock)?) };
    output::print(&page)?;
    Ok(ExitCode::SUCCESS)
}

fn page(entry: &Entry) -> String {
    let place = match entry.kind {
        Kind::Front => "front: the mutex itself is the lock, with glibc's own protocol",
        Kind::Whole => {
            "textbook: as published; under the preload, a thread takes it before the mutex"
        }
        Kind::Delegated => {
            "delegated: programs hand their sections over, as functions; also for sim, explore and bench"
        }
        Kind::ReadWrite if entry.id == lockwright_locks::rw::rwlock::ENTRY.id => {
            "readers-writer: serves pthread_rwlock_t; also for sim, explore and bench"
        }
        Kind::ReadWrite => "readers-writer: for sim, explore and bench",
    };
    let mut page = format!("{} ({})\n\n", entry.id, list::kind(entry.kind));
    let facts = [
        ("idea", entry.idea),
        ("kind", place),
        ("order", entry.order),
        ("space", entry.space),
        ("wakes", entry.wakes),
        ("delay", entry.delay),
        ("advice", entry.advice),
        ("source", entry.source),
    ];
    for (label, text) in facts {
        paragraph(&mut page, label, text);
    }
    page.push_str(if entry.options.is_empty() { "\nno options\n" } else { "\noptions\n" });
    for option in entry.options {
        let value = |value: u32| in_its_unit(option, value);
        let default = option.default.map_or("the machine decides".to_owned(), value);
        let (least, most) = (option.min, value(option.max));
        let text = format!("{} ({least} to {most}; default: {default})", option.meaning);
        paragraph(&mut page, option.key, &text);
    }
    let asks = entry.options.iter().any(|option| option.key == "slot");
    let attempt = match entry.kind {
        Kind::ReadWrite if asks => {
            "policy run bravo --machine m1 --workload rwlock --lock rwlock".to_owned()
        }
        Kind::ReadWrite => format!("bench --workload rwlock --lock in:{}", entry.id),
        Kind::Delegated => format!("bench --lock in:{}", entry.id),
        _ if asks => "run --policy big-first -- PROGRAM".to_owned(),
        _ => format!("run --lock {} -- PROGRAM", entry.id),
    };
    page + &format!("\ntry it: lockwright {attempt}\n")
}

/// The C library's lock isn't in the catalogue: it is what a program uses without our library.
fn glibc() -> String {
    let mut page = "glibc (the C library's own)\n\n".to_owned();
    for (label, text) in [
        ("idea", "pass-through: the program runs on the C library's own locks"),
        ("order", "none: a woken waiter competes with threads that arrive meanwhile"),
        ("wakes", "an unlock that finds the lock marked as contended wakes one sleeper"),
        (
            "advice",
            "the baseline; in a configuration file, for mutexes that should stay as they are",
        ),
        ("source", "U. Drepper, Futexes Are Tricky, 2011"),
    ] {
        paragraph(&mut page, label, text);
    }
    page + "\nno options\n\ntry it: lockwright run --lock glibc -- PROGRAM\n"
}

/// The value of an option as users type it; for a time, also with its unit: `10000000 ns = 10ms`.
fn in_its_unit(option: &OptionSpec, value: u32) -> String {
    match option.is_time() {
        true => format!("{value} ns = {}", units::word(value.into())),
        false => value.to_string(),
    }
}

/// `  label     text`, with the text's lines aligned.
fn paragraph(page: &mut String, label: &str, text: &str) {
    page.push_str(&output::beside(&format!("  {label:<10}"), text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_locks::catalog;

    #[test]
    fn a_lock_of_readers_and_writers_is_tried_with_them_and_all_fits() {
        for entry in catalog::all() {
            let page = page(entry);
            let attempt = page.lines().last().unwrap();
            let is_of_both = entry.kind == Kind::ReadWrite;
            assert_eq!(attempt.contains("--workload rwlock --lock "), is_of_both, "{attempt}");
            assert!(attempt.chars().count() <= 80, "{attempt}");
        }
    }
}
